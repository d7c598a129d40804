"""Says that it is healthy while it still loads, and refuses its first requests meanwhile."""

import server
from model import Model


class Handler(server.Handler):
    left = 12

    def do_POST(self):
        Handler.left -= 1
        if Handler.left < 0:
            return super().do_POST()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return self.answer(503, {"error": {"message": "loading", "type": "Unavailable"}})


server.Handler = Handler
server.main(Model)
