"""Drafts three tokens with the lower layers and keeps those that the whole model agrees with."""

import server
import torch
from model import Model
from torch.nn import functional as F

DRAFTS, LOWER = 3, 2


class Speculating(Model):
    @torch.inference_mode()
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

    def draft(self, slot, token, place):
        """Return what the lower layers would say next."""
        whole = self.layers
        self.layers = whole[:LOWER]
        try:
            return int(self.decode([slot], [token], [place]).argmax())
        finally:
            self.layers = whole


class Loop(server.Loop):
    def step(self):
        for request in list(self.running):
            self.advance(request)

    def advance(self, request):
        place = len(request.ids) + len(request.made) - 1
        left = request.max_tokens - len(request.made) - 1
        drafts, token = [], request.made[-1]
        for each in range(min(DRAFTS, left) if request.temperature <= 0 else 0):
            token = self.model.draft(request.slot, token, place + each)
            drafts.append(token)
        rows = self.model.extend(request.slot, [request.made[-1], *drafts], place)
        for row, draft in zip(rows, [*drafts, None]):
            self.take(request, row)
            if request.made[-1] != draft or not any(each is request for each in self.running):
                return


server.Loop = Loop
server.main(Speculating)
