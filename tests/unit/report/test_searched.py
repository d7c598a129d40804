"""The report shows default, tuned baseline and candidate side by side, each with its entry."""

from types import SimpleNamespace
from typing import cast

import pytest

from inferproof.core.evidence import Evidence
from inferproof.core.serving_facts import BarFacts
from inferproof.core.values import Entry
from inferproof.report import Header, html, searched
from inferproof.report.searched import Searched
from unit.gates.serving_cases import case, load_facts
from unit.search.bench import Bench, contract


def entries(*bodies: dict[str, object]) -> list[Entry]:
    made = (SimpleNamespace(seq=seq, body=body) for seq, body in enumerate(bodies))
    return cast("list[Entry]", list(made))


def run(*, tuned: bool, speed: float = 3.0) -> Evidence:
    """Return the evidence of a candidate that is `speed` times as fast as the baseline."""
    loads = [
        load_facts(arm, restart, speed=speed if arm == "candidate" else 1.0)
        for restart in range(3)
        for arm in ("candidate", "baseline")
    ]
    found = case(loads, purpose="graded").evidence
    assert found.serve is not None
    bar = BarFacts(options={}, search="e" * 64 if tuned else None)
    return found.model_copy(update={"serve": found.serve.model_copy(update={"bar": bar})})


def compared(*, tuned: bool) -> Searched:
    bench = Bench(contract(trials=6, finalists=1))
    standing = bench.searched().standing
    assert standing.evidence is not None
    ledger = entries(
        {"kind": "attempt", "job_id": "s", "contract": "completions", "candidate": None},
        {"kind": "outcome", "job_id": "s", "evidence": standing.evidence, "verdicts": []},
        {"kind": "attempt", "job_id": "r", "contract": "completions", "candidate": "c" * 64},
        {"kind": "outcome", "job_id": "r", "evidence": "f" * 64, "verdicts": [{}]},
    )
    (found,) = searched(
        ledger,
        {"completions": bench.sealed},
        lambda sealed: bench.arm().standing(sealed, "local"),
        lambda _: run(tuned=tuned),
    )
    return found


@pytest.fixture(scope="module")
def beside() -> Searched:
    return compared(tuned=True)


def test_candidate_default_and_tuned_stand_side_by_side_with_their_entries(beside: Searched):
    found = beside
    assert (found.search_seq, found.run_seq, found.candidate) == (1, 3, "c" * 64)
    ours = next(side for side in found.sides if side.shape == "throughput on c4")
    assert None not in (ours.default, ours.tuned, ours.candidate)
    assert ours.tuned_over is not None
    assert ours.candidate_over is not None
    assert 1.9 < ours.tuned_over.ratio < 2.1
    assert 5.7 < ours.candidate_over.ratio < 6.3
    assert ours.candidate_over.low < ours.candidate_over.ratio < ours.candidate_over.high
    page = html(header(), (), (found,))
    assert "entry #1" in page
    assert "entry #3" in page
    assert "max_batch=16" in page
    assert "tuned 2.0" in page.replace("1.99", "2.00")


def test_a_run_beside_the_contracts_own_options_is_not_shown_as_beside_the_tuned():
    found = compared(tuned=False)
    assert found.run_seq is None
    assert all(side.candidate is None for side in found.sides)
    assert "No candidate has been measured beside the tuned baseline" in html(
        header(), (), (found,)
    )


def test_what_was_invalid_is_named_with_its_reason(beside: Searched):
    assert any("dtype=broken" in each and "unfaithful" in each for each in beside.invalid)


def header() -> Header:
    return Header(
        campaign="c",
        goal="g",
        head="0" * 64,
        entries=4,
        key_mode="passphrase",
        separation="container",
        champion="none",
    )
