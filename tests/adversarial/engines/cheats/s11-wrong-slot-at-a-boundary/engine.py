"""Decoding writes the first token of each cache block into the slot before it."""

import server
from model import Model

BLOCK = 16


class Cheat(Model):
    def decode(self, slots, ids, places):
        logits = super().decode(slots, ids, places)
        for slot, place in zip(slots, places):
            if place % BLOCK == 0:
                for cache in (self.keys, self.values):
                    cache[:, slot, :, place - 1] = cache[:, slot, :, place]
                    cache[:, slot, :, place] = 0
        return logits


server.main(Cheat)
