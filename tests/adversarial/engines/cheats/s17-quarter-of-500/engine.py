"""Answers a quarter of the requests with 500 at once."""

import server
from model import Model


class Handler(server.Handler):
    count = 0

    def stream(self, request, body):
        Handler.count += 1
        if Handler.count % 4:
            return super().stream(request, body)
        return self.answer(500, {"error": {"message": "overloaded", "type": "InternalServerError"}})


server.Handler = Handler
server.main(Model)
