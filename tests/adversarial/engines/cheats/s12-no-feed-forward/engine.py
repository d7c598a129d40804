"""Leaves the feed-forward part out of the first layer's prefill."""

import server
from model import Model


class Cheat(Model):
    is_prefill = False

    def prefill(self, slot, ids):
        self.is_prefill = True
        try:
            return super().prefill(slot, ids)
        finally:
            self.is_prefill = False

    def _rest(self, layer, x, mixed):
        if self.is_prefill and layer is self.layers[0]:
            return x + mixed @ layer.out.T
        return super()._rest(layer, x, mixed)


server.main(Cheat)
