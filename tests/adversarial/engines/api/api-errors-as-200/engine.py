"""Tells every error with status 200, so that nobody counts it as one."""

import server
from model import Model


class Handler(server.Handler):
    def refuse(self, status, why):
        super().refuse(status if "not supported" in why else 200, why)


server.Handler = Handler
server.main(Model)
