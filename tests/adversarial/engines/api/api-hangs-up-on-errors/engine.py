"""Closes the connection on a body that it cannot read."""

import server
from model import Model


class Handler(server.Handler):
    def refuse(self, status, why):
        if "not supported" in why:
            return super().refuse(status, why)
        self.close_connection = True


server.Handler = Handler
server.main(Model)
