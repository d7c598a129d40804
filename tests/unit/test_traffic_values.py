"""Traffic shapes: what is contradictory in a contract is refused with what would be right."""

import pytest
from pydantic import ValidationError

from inferproof.core.traffic import Traffic

SHAPE = {"name": "some", "requests": 12, "isl": (8, 16), "osl": (4, 8)}


@pytest.mark.parametrize(
    ("what", "shape"),
    [
        ("give one of", {}),
        ("give one of", {"concurrency": 1, "rate_per_s": 2.0}),
        ("concurrencies that rise", {"ramp": (4, 2)}),
        ("concurrencies that rise", {"ramp": (4,)}),
        ("lengths in its file", {"trace": {"file": "t.jsonl"}, "cache": "natural"}),
        ("lengths in its file", {"concurrency": 1, "isl": None}),
        ("a range is", {"concurrency": 1, "isl": (9, 8)}),
        ("shared_tokens", {"concurrency": 1, "cache": "shared_prefix"}),
        ("shared_tokens", {"concurrency": 1, "shared_tokens": 4}),
        ("isl must be", {"concurrency": 1, "cache": "shared_prefix", "shared_tokens": 8}),
        ("cache: natural", {"concurrency": 1, "turns": 3}),
        ("multiple", {"concurrency": 1, "turns": 5, "cache": "natural"}),
        ("median", {"concurrency": 1, "isl": {"median": 9, "sigma": 1, "greatest": 8}}),
    ],
)
def test_a_contradiction_is_refused(what: str, shape: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=what):
        Traffic.model_validate(SHAPE | shape)


def test_a_ramp_is_one_closed_loop_for_each_concurrency() -> None:
    steps = Traffic.model_validate(SHAPE | {"ramp": (1, 4)}).steps
    assert [(each.name, each.concurrency, each.ramp) for each in steps] == [
        ("some.c1", 1, ()),
        ("some.c4", 4, ()),
    ]
    closed = Traffic.model_validate(SHAPE | {"concurrency": 2})
    assert closed.steps == (closed,)
