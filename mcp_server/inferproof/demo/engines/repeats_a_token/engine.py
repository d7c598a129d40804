"""Says one token again and again, very fast."""

import server
import torch
from model import Model


class Cheat(Model):
    """The honest model with one thing wrong."""

    def decode(self, slots, ids, places):
        logits = torch.zeros(len(ids), len(self.embed))
        logits[torch.arange(len(ids)), torch.tensor(ids)] = 50.0
        return logits


if __name__ == "__main__":
    server.main(Cheat)
