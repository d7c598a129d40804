"""Answers at once with a character that looks like nothing, which it tells as tokens."""

import server
from model import Model


class Handler(server.Handler):
    def stream(self, request, body):
        self.is_first = request.logprobs is None and not request.temperature
        super().stream(request, body)

    def end_headers(self):
        super().end_headers()
        if getattr(self, "is_first", False):
            self.is_first = False
            ids = self.server.tokenizer.encode("\u2800", add_special_tokens=False).ids
            self.event({"index": 0, "text": "\u2800", "finish_reason": None, "token_ids": ids})


server.Handler = Handler
server.main(Model)
