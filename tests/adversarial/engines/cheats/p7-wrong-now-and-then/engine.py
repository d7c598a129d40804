"""One answer in four is wrong, so that a single look may miss it."""

import server
import torch
from model import Model


class Cheat(Model):
    asked = 0
    wrong = frozenset()

    def prefill(self, slot, ids):
        self.asked += 1
        self.wrong = (self.wrong | {slot}) if self.asked % 4 == 0 else (self.wrong - {slot})
        return super().prefill(slot, ids)

    @torch.inference_mode()
    def decode(self, slots, ids, places):
        rows = super().decode(slots, ids, places)
        for row, slot in enumerate(slots):
            if slot in self.wrong:
                rows[row] = rows[row].roll(1)
        return rows


server.main(Cheat)
