"""The same engine with weights and activations in bfloat16."""

import server
import torch
from model import Model


class Bf16(Model):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        for holder in (self, *self.layers):
            for name, value in vars(holder).items():
                if isinstance(value, torch.Tensor):
                    setattr(holder, name, value.bfloat16())

    def prefill(self, slot, ids):
        return super().prefill(slot, ids).float()

    def decode(self, slots, ids, places):
        return super().decode(slots, ids, places).float()


server.main(Bf16)
