"""Alone it is right; with others in flight each sequence reads its neighbour's cache."""

import server
from model import Model


class Cheat(Model):
    def decode(self, slots, ids, places):
        return super().decode(slots[1:] + slots[:1], ids, places)


server.main(Cheat)
