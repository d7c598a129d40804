"""Closes every fourth stream near its end: no finish_reason, no usage, no [DONE]."""

import server
from model import Model


class Handler(server.Handler):
    count = 0

    def stream(self, request, body):
        Handler.count += 1
        self.is_cut, self.is_over = Handler.count % 4 == 0, False
        super().stream(request, body)

    def event(self, choice):
        if not (self.is_cut and choice["finish_reason"]):
            super().event(choice)

    def chunk(self, text):
        if not (self.is_cut and text == "[DONE]"):
            super().chunk(text)


server.Handler = Handler
server.main(Model)
