"""Refuses without saying why."""

import server
from model import Model


class Handler(server.Handler):
    def refuse(self, status, why):
        self.answer(status, {})


server.Handler = Handler
server.main(Model)
