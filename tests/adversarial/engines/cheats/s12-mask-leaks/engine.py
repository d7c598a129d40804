"""In a prompt every token sees the one after it too."""

import server
import torch
from model import Model
from torch.nn import functional as F


class Cheat(Model):
    @torch.inference_mode()
    def prefill(self, slot, ids):
        count = len(ids)
        x, places = self.embed[torch.tensor(ids)], torch.arange(count)
        mask = places[None] <= places[:, None] + 1
        for index, layer in enumerate(self.layers):
            q, k, v = self._project(layer, x, places)
            self.keys[index, slot, :, :count] = k.transpose(0, 1)
            self.values[index, slot, :, :count] = v.transpose(0, 1)
            mixed = F.scaled_dot_product_attention(
                *(each.transpose(0, 1)[None] for each in (q, k, v)), attn_mask=mask, enable_gqa=True
            )
            x = self._rest(layer, x, mixed[0].transpose(0, 1).reshape(count, -1))
        return F.linear(F.rms_norm(x, x.shape[-1:], self.norm, self.eps), self.head)


server.main(Cheat)
