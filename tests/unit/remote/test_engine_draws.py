"""Our own engine draws from what the request leaves in."""

import json

import pytest
import torch

from inferproof_remote.serving.engine_batch import pick
from inferproof_remote.serving.engine_requests import parse

CHANCES = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05])
DRAWS = 300


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({}, {0, 1, 2, 3, 4}),
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.5}, {0, 1}),
        ({"min_p": 0.3}, {0, 1, 2}),
        ({"min_p": 0.2, "top_k": 2}, {0, 1}),
    ],
)
def test_no_other_token_comes_and_each_of_those_does(
    asked: dict[str, float], kept: set[int]
) -> None:
    body = json.dumps({"prompt": "a", "temperature": 1.0, **asked}).encode()
    sampling = parse(body, models=frozenset()).sampling
    generator = torch.Generator().manual_seed(0)
    drawn = {pick(CHANCES.log(), sampling, generator) for _ in range(DRAWS)}
    assert drawn == kept
