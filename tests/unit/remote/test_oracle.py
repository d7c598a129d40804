"""A wrong output is named stale only when it is an earlier call's answer."""

import torch
from torch import Tensor

from inferproof_remote.numerics import Bars, OutputError
from inferproof_remote.oracle import History, Question

BARS = Bars(rms=2.0, p999=4.0, floor="bf16")
WRONG = OutputError(
    rms_ratio=900.0, p999_ratio=900.0, nan_mismatches=0, unwritten=0, bad_share=1.0, worst_tile=""
)


def rows(*values: float, columns: int = 8) -> Tensor:
    """Return one row of equal elements for each value."""
    return torch.tensor(values, dtype=torch.bfloat16).unsqueeze(1).repeat(1, columns)


def stale_of(got: Tensor, wanted: Tensor, *earlier: Tensor) -> int | None:
    history = History(bytes(32))
    for index, output in enumerate(earlier):
        history.add(index, {"y": output}, whole=False)
    question = Question(
        inputs={},
        dims={},
        params={},
        expected={"y": wanted.double()},
        yardstick={"y": wanted},
        align=None,
    )
    return history.explain({"y": got}, question, {"y": WRONG}, BARS)["y"].stale_of


def test_an_earlier_answer_is_found_among_others():
    wanted, other, earlier = rows(100.0, 8.0), rows(3.0, 1.0), rows(100.0, 0.5)
    assert stale_of(earlier, wanted, other, earlier) == 1


def test_an_earlier_answer_is_found_in_a_sample_of_a_large_output():
    wanted, earlier = rows(*range(1, 101), columns=1000), rows(*range(2, 102), columns=1000)
    assert stale_of(earlier, wanted, earlier) == 0


def test_small_wrong_rows_beside_a_huge_one_are_no_earlier_answer():
    assert stale_of(rows(100.0, 0.25), rows(100.0, 8.0), rows(100.0, 0.5)) is None


def test_zeros_are_no_earlier_answer():
    assert stale_of(rows(0.0, 0.0), rows(1.0, 8.0), rows(0.0, 0.0)) is None
