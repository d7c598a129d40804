"""Counts the tokens of a stream one too high; those of a whole answer are right."""

import server
from model import Model


class Handler(server.Handler):
    def part(self, **fields):
        if "usage" in fields:
            fields["usage"] = {**fields["usage"], "completion_tokens": fields["usage"]["completion_tokens"] + 1}
        super().part(**fields)


server.Handler = Handler
server.main(Model)
