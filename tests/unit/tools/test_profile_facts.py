"""What a profile of device code tells a model: short, proven, and beside its parent's."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from inferproof.backends import torch_profile
from inferproof.core.evidence import Evidence, ProfileFacts
from inferproof.core.reports import JobReport
from inferproof.tools.facts import facts_of, rows_of
from inferproof.tools.profile import profile
from inferproof.tools.profile_facts import changes
from inferproof.tools.results import JobResult, size_bytes
from inferproof.tools.spec import Call, Keeper
from unit.server.fake_keeper import CANDIDATE, EVIDENCE, FakeKeeper, evidence, job_report

REAL = Path(__file__).parents[1] / "remote" / "ncu"
PARENT = "7" * 64
BEFORE = "6" * 64
# Four characters of English and numbers are about one token.
MOST_CHARACTERS = 2000 * 4 * 3 // 4


def facts(name: str = "honest-rms-norm-fast", **changed: object) -> ProfileFacts:
    raw: dict[str, Any] = json.loads((REAL / f"{name}.json").read_text())
    return torch_profile.parse(json.dumps(raw | changed).encode())


def of(profiled: ProfileFacts) -> Evidence:
    return evidence("profile").model_copy(update={"profile": profiled})


@dataclass
class ProfileKeeper(FakeKeeper):
    """One that has evidence of two profiles."""

    held: dict[str, Evidence] = field(default_factory=dict[str, Evidence])

    def evidence(self, ref: str) -> Evidence:
        return self.held[ref]


def asked(keeper: FakeKeeper) -> JobResult:
    call = Call(keeper=cast("Keeper", keeper), on_progress=None, server_is_ending=lambda: False)
    return asyncio.run(profile(call, candidate=CANDIDATE))


def profiled_after(parent: str | None, *, earlier: ProfileFacts | None) -> ProfileKeeper:
    ended: Callable[..., JobReport] = job_report
    report = ended(verdicts=(), evidence=EVIDENCE).model_copy(update={"tool": "profile"})
    before = report.model_copy(update={"candidate": PARENT, "evidence": BEFORE})
    held = {EVIDENCE: of(facts(parent=parent))} | ({BEFORE: of(earlier)} if earlier else {})
    return ProfileKeeper(ends_with=report, held=held, known=(before,) if earlier else ())


@pytest.mark.parametrize("name", ["honest-rms-norm-fast", "launch-bound"])
def test_a_real_profile_fits_two_thousand_tokens(name: str) -> None:
    keeper = ProfileKeeper(
        ends_with=job_report(verdicts=(), evidence=EVIDENCE), held={EVIDENCE: of(facts(name))}
    )
    result = asked(keeper)
    assert size_bytes(result) <= MOST_CHARACTERS
    assert result.left_out == {}


def test_the_bottleneck_comes_with_proof_levers_and_both_rooflines() -> None:
    told = [(fact.name, str(fact.value)) for fact in facts_of(of(facts()))]
    by_name = dict(told)
    assert by_name["bottleneck"] == "memory"
    assert "DRAM moves 3.20 TB/s" in dict(reversed(told))["proof"]
    assert [name for name, _ in told].count("lever") == 3
    assert by_name["roofline"].startswith("76% of the measured memory ceiling")
    assert by_name["datasheet"] == "73% of the datasheet"


def test_each_hot_launch_is_one_line_of_counters() -> None:
    first = rows_of(of(facts()))[0]
    assert first.startswith("100.0% launch 0 rms_norm: DRAM 67 %, L2 83 %")
    assert "waits for long_scoreboard 40%" in first


def test_a_counter_that_is_missing_is_not_found() -> None:
    raw = json.loads((REAL / "honest-rms-norm-fast.json").read_text())
    del raw["device"]["kernels"][0]["counters"]["tensor_pct"]
    lacking = torch_profile.parse(json.dumps(raw).encode())
    assert "tensor not found" in rows_of(of(lacking))[0]


def test_the_change_since_the_parents_last_profile_is_told() -> None:
    slower = facts(seconds_per_call=76.48e-6)
    result = asked(profiled_after(PARENT, earlier=slower))
    told = {fact.name: str(fact.value) for fact in result.facts}
    assert told["parent time_per_call"] == "76.48 to 38.24 us (2.000 x)"
    assert told["parent bottleneck"] == "memory to memory"
    assert told["parent counters"] == "the same"


def test_a_parent_that_was_never_profiled_is_said_so() -> None:
    result = asked(profiled_after(PARENT, earlier=None))
    assert "it was never profiled" in [fact.value for fact in result.facts]


def test_without_a_parent_nothing_is_compared() -> None:
    result = asked(profiled_after(None, earlier=facts()))
    assert not any(fact.name.startswith("parent") for fact in result.facts)


def test_profiles_of_different_shapes_are_not_compared() -> None:
    (only,) = changes(facts(), facts(dims={"tokens": 1, "hidden": 4096}))
    assert only.value == "its last profile is of another shape"
