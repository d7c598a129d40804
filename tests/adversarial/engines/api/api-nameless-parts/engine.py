"""Streams parts that say neither what they are nor to which answer they belong."""

import json

import server
from model import Model


class Handler(server.Handler):
    def part(self, **fields):
        self.chunk(json.dumps(fields))


server.Handler = Handler
server.main(Model)
