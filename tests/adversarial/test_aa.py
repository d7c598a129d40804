"""Judging an engine against itself: chance is not called faster, a real difference is."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from adversarial.engines.aa import (
    ALL,
    ALPHA,
    ARMS,
    CONTRACT,
    AaRound,
    at_least,
    case,
    count_faster,
    read,
    report,
    tries,
)
from inferproof.campaign.contracts import load_contract
from inferproof.core.serving_facts import LoadFacts
from inferproof.gates import ratios
from unit.gates.serving_cases import load_facts

SERVICE = load_contract(CONTRACT).service
TRIES, SEEDS, REQUESTS = 30, 10, 8


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratios, "RESAMPLES", 100)


def synthetic(seed: int, *, speed: float = 1.0, count: int = 12) -> list[AaRound]:
    """Return rounds whose requests scatter by a tenth; the candidate is `speed` times as fast."""
    draw = random.Random(seed)
    return [
        AaRound(bits=f"{number}", loads=tuple(_runs(draw, number, speed)))
        for number in range(count)
    ]


def _runs(draw: random.Random, number: int, speed: float) -> Sequence[LoadFacts]:
    def scattered(value: float, arm: str) -> float:
        return value / (speed if arm == "candidate" else 1.0) * draw.gauss(1.0, 0.1)

    return [
        LoadFacts.model_validate(
            load_facts(
                arm,
                number,
                traffic=shape.name,
                ttft_ms=[scattered(100, arm) for _ in range(REQUESTS)],
                tpot_ms=[scattered(10, arm) for _ in range(REQUESTS)],
                output_tokens_per_s=1 / scattered(1 / 128, arm),
            )
        )
        for arm in ARMS
        for shape in SERVICE.graded
    ]


def test_where_nothing_differs_faster_is_no_more_frequent_than_alpha() -> None:
    restarts = SERVICE.restarts
    drawn = [each for seed in range(SEEDS) for each in tries(synthetic(seed), restarts, TRIES, "")]
    found = count_faster(case(SERVICE, each) for each in drawn)
    assert found[ALL] <= ALPHA * len(drawn)


def test_a_real_gain_is_found_when_the_names_are_right() -> None:
    rounds = synthetic(1, speed=1.3)
    loads = [run for one in rounds[: SERVICE.restarts] for run in one.loads]
    assert count_faster(iter([case(SERVICE, loads)]))[ALL] == 1


def test_the_names_of_the_arms_are_exchanged_in_about_half_of_the_rounds() -> None:
    rounds = synthetic(2)
    drawn = tries(rounds, 2, 100, "names")
    assert len({tuple((run.arm, run.seed, run.ttft_ms) for run in each) for each in drawn}) == 100
    own = {(run.arm, run.ttft_ms) for one in rounds for run in one.loads}
    kept = [(run.arm, run.ttft_ms) in own for each in drawn for run in each]
    assert 0.4 < sum(kept) / len(kept) < 0.6
    for each in drawn:
        assert sorted((run.restart, run.arm, run.traffic) for run in each) == sorted(
            (restart, arm, shape.name)
            for restart in range(2)
            for arm in ARMS
            for shape in SERVICE.graded
        )


def test_too_few_rounds_for_so_many_tries_are_said() -> None:
    with pytest.raises(SystemExit, match="2 rounds make 4 tries, not 5"):
        tries(synthetic(1, count=2), 2, 5, "few")


def test_a_line_that_was_cut_is_recorded_again(tmp_path: Path) -> None:
    file, rounds = tmp_path / "rounds.jsonl", synthetic(1, count=2)
    assert read(file) == []
    lines = [one.model_dump_json() for one in rounds]
    file.write_text(f"{lines[0]}\n{lines[1]}\n{lines[0][:40]}", encoding="utf-8")
    assert read(file) == rounds
    assert file.read_text(encoding="utf-8").splitlines() == lines
    file.write_text(lines[0][:40], encoding="utf-8")
    assert read(file) == []


def test_the_chance_of_a_count_is_exact() -> None:
    assert at_least(0, 100, ALPHA) == pytest.approx(1.0)
    assert at_least(1, 100, ALPHA) == pytest.approx(1 - (1 - ALPHA) ** 100)
    assert at_least(2, 2, 0.5) == pytest.approx(0.25)


def test_what_is_called_faster_too_often_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    found = Counter({"ttft_ms on single": 3, ALL: 2, "verdict: not_faster": 98})
    assert report(found, 100) == 0
    told = capsys.readouterr().out
    assert "ABOVE ALPHA: ttft_ms on single faster in 3 of 100 tries" in told
    assert f"within alpha: {ALL} faster in 2 of 100 tries" in told
    assert report(found + Counter({ALL: 1}), 100) == 1
