"""Sends the whole text in one chunk."""

import server
from model import Model


class Handler(server.Handler):
    def event(self, choice):
        self.kept = getattr(self, "kept", [])
        self.kept.append(choice)
        if choice["finish_reason"]:
            text = "".join(each["text"] for each in self.kept)
            ids = [token for each in self.kept for token in each["token_ids"]]
            super().event({**choice, "text": text, "token_ids": ids})
            self.kept = []


server.Handler = Handler
server.main(Model)
