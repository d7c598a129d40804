"""Sends eight tokens in a chunk, the first of them alone."""

import server
from model import Model


class Handler(server.Handler):
    kept, sent = (), 0

    def event(self, choice):
        self.kept = (*self.kept, choice)
        if self.sent and len(self.kept) < 8 and not choice["finish_reason"]:
            return
        text = "".join(each["text"] for each in self.kept)
        ids = [token for each in self.kept for token in each["token_ids"]]
        super().event({**choice, "text": text, "token_ids": ids})
        self.kept, self.sent = (), 0 if choice["finish_reason"] else self.sent + 1


server.Handler = Handler
server.main(Model)
