"""Prefills a prompt in chunks of 32 tokens, each on top of the cache of those before."""

import server
import torch
from model import Model
from torch.nn import functional as F

CHUNK = 32


class Chunked(Model):
    @torch.inference_mode()
    def prefill(self, slot, ids):
        starts = range(0, len(ids), CHUNK)
        return torch.cat([self.extend(slot, ids[at : at + CHUNK], at) for at in starts])

    def extend(self, slot, ids, start):
        """Return the logits of tokens that follow `start` tokens in the cache."""
        end = start + len(ids)
        places = torch.arange(start, end)
        mask = torch.arange(end)[None] <= places[:, None]
        x = self.embed[torch.tensor(ids)]
        for index, layer in enumerate(self.layers):
            q, k, v = self._project(layer, x, places)
            self.keys[index, slot, :, start:end] = k.transpose(0, 1)
            self.values[index, slot, :, start:end] = v.transpose(0, 1)
            seen = self.keys[index, slot, :, :end][None], self.values[index, slot, :, :end][None]
            mixed = F.scaled_dot_product_attention(
                q.transpose(0, 1)[None], *seen, attn_mask=mask, enable_gqa=True
            )
            x = self._rest(layer, x, mixed[0].transpose(0, 1).reshape(len(ids), -1))
        return F.linear(F.rms_norm(x, x.shape[-1:], self.norm, self.eps), self.head)


if __name__ == "__main__":
    server.main(Chunked)
