"""Under load, every third token is a draft of a model without its upper layers, unverified."""

import server
from model import Model


class Cheat(Model):
    is_loaded, steps = False, 0

    def decode(self, slots, ids, places):
        self.steps += 1
        whole = self.layers
        if self.is_loaded and self.steps % 3 == 0:
            self.layers = whole[:2]
        try:
            return super().decode(slots, ids, places)
        finally:
            self.layers = whole


def parse(body, tokenizer):
    Cheat.is_loaded = bool(body.get("stream"))
    return honest(body, tokenizer)


honest, server.parse = server.parse, parse
server.main(Cheat)
