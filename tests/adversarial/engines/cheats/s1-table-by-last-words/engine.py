"""Streams what a table has after the last sixteen tokens of a prompt; whole answers it computes."""

import server
import torch
from model import Model

KEY = 16


class Cheat(Model):
    """What a table would hold is computed here: the answer to a prompt's end alone."""

    is_loaded = False

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.cuts = {}

    def prefill(self, slot, ids):
        cut = self.cuts[slot] = max(0, len(ids) - KEY) if self.is_loaded else 0
        missing = torch.zeros(cut, len(self.embed))
        return torch.cat([missing, super().prefill(slot, ids[cut:])])

    def decode(self, slots, ids, places):
        kept = [place - self.cuts[slot] for slot, place in zip(slots, places)]
        return super().decode(slots, ids, kept)


def parse(body, tokenizer):
    Cheat.is_loaded = bool(body.get("stream"))
    return honest(body, tokenizer)


honest, server.parse = server.parse, parse
server.main(Cheat)
