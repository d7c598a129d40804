"""Ends its streams without a [DONE]."""

import server
from model import Model


class Handler(server.Handler):
    def chunk(self, text):
        if text != "[DONE]":
            super().chunk(text)


server.Handler = Handler
server.main(Model)
