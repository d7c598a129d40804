"""Sends the first token at once and all others in one write, an event each.

It takes its time over a token, as a larger model would.
"""

import time

import server
from model import Model


class Handler(server.Handler):
    held, sent = b"", 0

    def event(self, choice):
        time.sleep(0.02)
        super().event(choice)

    def chunk(self, text):
        self.held += f"data: {text}\n\n".encode()
        self.sent += 1
        if self.sent > 1 and text != "[DONE]":
            return
        self.wfile.write(b"%x\r\n%s\r\n" % (len(self.held), self.held))
        self.wfile.flush()
        self.held, self.sent = b"", 0 if text == "[DONE]" else 1


server.Handler = Handler
server.main(Model)
