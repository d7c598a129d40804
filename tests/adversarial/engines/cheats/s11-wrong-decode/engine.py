"""Scores prompts right and is one position off when it decodes."""

import server
from model import Model


class Cheat(Model):
    def decode(self, slots, ids, places):
        return super().decode(slots, ids, [place - 1 for place in places])


server.main(Cheat)
