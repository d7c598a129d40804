"""Reads only the last 64 tokens of a long prompt."""

import server
import torch
from model import Model


class Cheat(Model):
    def __init__(self, folder, slots, length):
        super().__init__(folder, slots, length)
        self.cuts = [0] * slots

    def prefill(self, slot, ids):
        cut = max(0, len(ids) - 64)
        self.cuts[slot] = cut
        missing = torch.zeros(cut, len(self.embed))
        return torch.cat([missing, super().prefill(slot, ids[cut:])])

    def decode(self, slots, ids, places):
        kept = [place - self.cuts[slot] for slot, place in zip(slots, places)]
        return super().decode(slots, ids, kept)


server.main(Cheat)
