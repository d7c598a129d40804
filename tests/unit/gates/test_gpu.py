"""Gates on evidence of a GPU: which accelerator counts, and a gain smaller than the clocks."""

import pytest

from inferproof.core.gpu_facts import ChainFacts, Clocks, GpuFacts
from inferproof.core.values import Outcome, Purpose, Reason
from inferproof.gates.base import Case
from inferproof.gates.intervals import speeds
from inferproof.gates.provenance import Provenance
from inferproof.gates.speed import Speedup
from unit.gates.cases import honest

IDLE = Clocks(
    sm_mhz=(1980, 1980), memory_mhz=None, celsius=None, milliwatts=None, throttle=(), samples=1
)


def on_gpu(
    *, host_share: float = 1.0, accelerator: str | None = None, purpose: Purpose = Purpose.GRADED
) -> Case:
    """Return the honest case as measured on an H200 whose second clock reads `host_share`."""
    case = honest()
    grade = case.evidence.grade
    assert grade
    chains = tuple(
        ChainFacts(
            arm=arm,
            dims=workload.dims,
            cache="warm",
            links=(20, 80),
            call_s=1e-5,
            call_by_host_s=1e-5 * host_share,
            null_link_s=1e-5,
            write_s=1e-6,
        )
        for workload in grade.timed
        for arm in ("candidate", *workload.pairs[0].baselines_s)
    )
    gpu = GpuFacts(
        name="NVIDIA H200",
        uuid="0",
        driver="580",
        memory_bytes=1,
        attributes={},
        clocks=IDLE,
        kernels=(),
        chains=chains,
    )
    grade = grade.model_copy(update={"gpu": gpu})
    evidence = case.evidence.model_copy(update={"grade": grade, "purpose": purpose})
    return case.model_copy(update={"evidence": evidence, "accelerator": accelerator})


def test_clocks_that_agree_leave_a_gain_as_it_is() -> None:
    assert Speedup().judge(on_gpu()).outcome is Outcome.PASS


def test_a_gain_smaller_than_what_two_clocks_disagree_by_is_inconclusive() -> None:
    case = on_gpu()
    grade = case.evidence.grade
    assert grade
    gain = min(speed.low for speed in speeds(grade)) / case.speedup_at_least
    verdict = Speedup().judge(on_gpu(host_share=1 / gain))
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, Reason.BELOW_RESOLUTION)
    assert "clocks" in verdict.reason


@pytest.mark.parametrize("named", [None, "NVIDIA H200"])
def test_evidence_from_the_campaigns_accelerator_counts(named: str | None) -> None:
    assert Provenance().judge(on_gpu(accelerator=named)).outcome is Outcome.PASS


def test_graded_evidence_from_another_accelerator_never_passes() -> None:
    verdict = Provenance().judge(on_gpu(accelerator="NVIDIA B200"))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "NVIDIA H200" in verdict.reason


def test_graded_evidence_from_no_accelerator_never_passes_where_one_is_named() -> None:
    case = honest()
    evidence = case.evidence.model_copy(update={"purpose": Purpose.GRADED})
    case = case.model_copy(update={"accelerator": "NVIDIA B200", "evidence": evidence})
    assert Provenance().judge(case).outcome is Outcome.INCONCLUSIVE


def test_practice_may_run_on_any_accelerator() -> None:
    case = on_gpu(accelerator="NVIDIA B200", purpose=Purpose.PRACTICE)
    assert Provenance().judge(case).outcome is Outcome.PASS
