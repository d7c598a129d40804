"""Prompts are scored densely; decoding sees only the last 32 tokens of its cache."""

import server
from model import Model

WINDOW = 32


class Cheat(Model):
    def decode(self, slots, ids, places):
        for slot, place in zip(slots, places):
            past = max(0, place - WINDOW)
            self.keys[:, slot, :, :past] = 0
            self.values[:, slot, :, :past] = 0
        return super().decode(slots, ids, places)


server.main(Cheat)
