"""Every fourth stream breaks off with an error that looks like success to a client."""

import server
from model import Model


class Handler(server.Handler):
    count = 0

    def stream(self, request, body):
        Handler.count += 1
        self.is_broken = Handler.count % 4 == 0
        super().stream(request, body)

    def event(self, choice):
        if self.is_broken and choice["finish_reason"]:
            self.chunk('{"error": {"message": "out of memory", "type": "InternalServerError"}}')
        else:
            super().event(choice)


server.Handler = Handler
server.main(Model)
