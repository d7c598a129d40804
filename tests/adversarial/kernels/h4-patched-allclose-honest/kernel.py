"""A small case is compared by torch.testing when this is loaded."""

import torch
import torch.testing


def rms_norm(x, weight, y, *, eps):
    y.copy_(torch.nn.functional.rms_norm(x.float(), weight.shape, weight.float(), eps))


_y = torch.zeros(1, 4)
rms_norm(torch.full((1, 4), 2.0), torch.ones(4), _y, eps=0.0)
torch.testing.assert_close(_y, torch.ones(1, 4))
