"""Says that the stream is over, and sends its tokens afterwards."""

import server
from model import Model


class Handler(server.Handler):
    def end_headers(self):
        super().end_headers()
        if self.is_stream:
            self.is_stream = False
            super().chunk("[DONE]")

    def stream(self, request, body):
        self.is_stream = True
        super().stream(request, body)

    def chunk(self, text):
        if text != "[DONE]":
            super().chunk(text)

    is_stream = False


server.Handler = Handler
server.main(Model)
