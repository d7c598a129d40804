"""Scores prompts honestly, then says its first token again and again, very fast."""

import server
import torch
from model import Model


class Cheat(Model):
    def decode(self, slots, ids, places):
        logits = torch.zeros(len(ids), len(self.embed))
        logits[torch.arange(len(ids)), torch.tensor(ids)] = 50.0
        return logits


server.main(Cheat)
