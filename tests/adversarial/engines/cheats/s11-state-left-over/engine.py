"""A request begins with what the one before it left in the first places of its slot."""

import server
from model import Model

LEFT = 4


class Cheat(Model):
    used = frozenset()

    def prefill(self, slot, ids):
        old = [cache[:, slot, :, :LEFT].clone() for cache in (self.keys, self.values)]
        logits = super().prefill(slot, ids)
        if slot in self.used:
            for cache, left in zip((self.keys, self.values), old):
                cache[:, slot, :, :LEFT] = left
        self.used |= {slot}
        return logits


server.main(Cheat)
