"""Answers a wrong request as if the fault were its own."""

import server
from model import Model


class Handler(server.Handler):
    def refuse(self, status, why):
        super().refuse(status if "not supported" in why else 500, why)


server.Handler = Handler
server.main(Model)
