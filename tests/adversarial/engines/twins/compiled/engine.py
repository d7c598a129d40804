"""The feed-forward part and the head are compiled by torch.compile, before it serves."""

import os

os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import server
import torch
import torch._inductor.config
from model import Model


torch._inductor.config.cpp_cache_precompile_headers = False  # larger than /tmp may be


class Compiled(Model):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._rest = torch.compile(self._rest, dynamic=True)
        self.prefill(0, list(range(1, 20)))
        self.prefill(0, list(range(1, 40)))
        self.decode([0, 1], [1, 2], [20, 4])
        self.decode([0], [1], [20])


server.main(Compiled)
