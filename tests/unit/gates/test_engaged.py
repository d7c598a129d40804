"""What device code engages, and what compute-sanitizer found, decide as their facts say."""

import pytest

from inferproof.core.contract import DType
from inferproof.core.evidence import KernelResources
from inferproof.core.gpu_facts import MachineCode, SanitizerFacts
from inferproof.core.values import Incident, Outcome, Purpose, Reason, Verdict
from inferproof.gates.base import Case
from inferproof.gates.compiled import Compiled
from inferproof.gates.conduct import Conduct
from unit.gates.test_gpu import on_gpu

MISSING = "compute-sanitizer is not on this target; a person installs it"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
QGMMA, HMMA = "QGMMA.64x64x32.F32.E4M3.E4M3", "HMMA.16816.F32"


def kernel(arch: str, *instructions: str, name: str = "run") -> KernelResources:
    code = MachineCode(
        instructions=9,
        opcodes={},
        tensor=dict.fromkeys(instructions, 4),
        loads={},
        stores={},
        bulk=0,
        local=0,
    )
    return KernelResources(
        arch=arch,
        kernel=name,
        registers=9,
        spill_store_bytes=0,
        spill_load_bytes=0,
        shared_bytes=0,
        code=code,
    )


def engaging(
    dtype: DType, *resources: KernelResources, idle: tuple[str, ...] | None = None
) -> Case:
    """Return a check on a GPU under a contract that engages `dtype`."""
    case = on_gpu()
    grade = case.evidence.grade
    assert grade
    assert grade.gpu
    build = grade.build.model_copy(update={"language": "cuda", "resources": resources})
    gpu = grade.gpu.model_copy(update={"idle": idle})
    grade = grade.model_copy(update={"build": build, "gpu": gpu})
    return case.model_copy(
        update={
            "contract": case.contract.model_copy(update={"engages": dtype}),
            "evidence": case.evidence.model_copy(update={"grade": grade}),
        }
    )


def judged(case: Case) -> tuple[Outcome, Reason]:
    verdict = Compiled().judge(case)
    return verdict.outcome, verdict.code


@pytest.mark.parametrize(
    ("dtype", "arch", "instruction"),
    [
        (DType.F8E4M3, "sm_90a", QGMMA),
        (DType.F8E4M3, "sm_100a", "UTCQMMA"),
        (DType.F8E4M3, "sm_120a", "QMMA.16832.F32.E4M3.E4M3"),
        (DType.F4E2M1X2, "sm_100a", "UTCOMMA.4X"),
        (DType.F4E2M1X2, "sm_103a", "UTCOMMA.BLOCK16"),
        (DType.F4E2M1X2, "sm_120a", "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"),
        (DType.BF16, "sm_90a", "HMMA.16816.F32.BF16"),
    ],
)
def test_the_chips_own_instruction_for_the_dtype_passes(dtype: DType, arch: str, instruction: str):
    assert judged(engaging(dtype, kernel(arch, instruction)))[0] is Outcome.PASS


@pytest.mark.parametrize(
    ("dtype", "resources"),
    [
        (DType.F8E4M3, [kernel("sm_90a", HMMA)]),
        (DType.F8E4M3, [kernel("sm_90a")]),
        (DType.F8E4M3, [kernel("sm_100a", HMMA)]),
        (DType.F4E2M1X2, [kernel("sm_90a", QGMMA), kernel("sm_100a", "UTCQMMA")]),
        (DType.BF16, [kernel("sm_90a", "HMMA.16816.F32")]),
    ],
)
def test_another_precision_is_a_raised_one(dtype: DType, resources: list[KernelResources]):
    assert judged(engaging(dtype, *resources)) == (Outcome.FAIL, Reason.PRECISION_RAISED)


def test_a_chip_without_the_instruction_proves_nothing() -> None:
    case = engaging(DType.F4E2M1X2, kernel("sm_90a", "HMMA.16816.F32.BF16"))
    assert judged(case) == (Outcome.INCONCLUSIVE, Reason.NOT_APPLICABLE)


def test_a_kernel_whose_result_is_thrown_away_is_decoration() -> None:
    both = (kernel("sm_90a", QGMMA, name="shown"), kernel("sm_90a", HMMA, name="used"))
    refused = (Outcome.FAIL, Reason.PRECISION_RAISED)
    assert judged(engaging(DType.F8E4M3, *both, idle=("shown",))) == refused
    assert judged(engaging(DType.F8E4M3, *both, idle=("used",)))[0] is Outcome.PASS
    assert judged(engaging(DType.F8E4M3, *both, idle=()))[0] is Outcome.PASS


def test_machine_code_that_was_not_read_is_not_measured() -> None:
    unread = kernel("sm_90a", QGMMA).model_copy(update={"code": None})
    for resources in ((unread,), ()):
        verdict = judged(engaging(DType.F8E4M3, *resources))
        assert verdict == (Outcome.INCONCLUSIVE, Reason.NOT_MEASURED)


def conducted(
    found: tuple[SanitizerFacts, ...] | None,
    *,
    rule: str,
    purpose: Purpose = Purpose.GRADED,
    incidents: tuple[Incident, ...] = (),
) -> Verdict:
    case = on_gpu(purpose=purpose)
    grade = case.evidence.grade
    assert grade
    assert grade.gpu
    gpu = grade.gpu.model_copy(update={"sanitizer": found})
    grade = grade.model_copy(update={"gpu": gpu, "incidents": incidents})
    update = {
        "contract": case.contract.model_copy(update={"sanitizer": rule}),
        "evidence": case.evidence.model_copy(update={"grade": grade}),
    }
    return Conduct().judge(case.model_copy(update=update))


def ran(errors: int | None = 0, why: str = "") -> tuple[SanitizerFacts, ...]:
    return tuple(SanitizerFacts(tool=t, errors=errors, first="", why=why) for t in TOOLS)


def test_a_required_sanitizer_that_did_not_run_leaves_it_open() -> None:
    assert conducted(ran(), rule="required").outcome is Outcome.PASS
    for found in (None, ran(None, "it is not there"), ran()[:3]):
        verdict = conducted(found, rule="required")
        assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, Reason.NOT_MEASURED)
    assert "it is not there" in conducted(ran(None, "it is not there"), rule="required").reason


def test_where_it_is_not_required_its_absence_is_told() -> None:
    verdict = conducted(ran(None, MISSING), rule="where_present")
    assert verdict.outcome is Outcome.PASS
    assert f"not measured (memcheck: {MISSING})" in verdict.reason
    assert "found nothing" in conducted(ran(), rule="where_present").reason


def test_a_sanitizer_that_is_kept_from_its_end_leaves_it_open_under_every_rule() -> None:
    for rule in ("required", "where_present"):
        for found in (ran(None, "not every call was made"), ran()[:3]):
            verdict = conducted(found, rule=rule)
            assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, Reason.NOT_MEASURED)


def test_practice_needs_no_sanitizer() -> None:
    verdict = conducted(None, rule="required", purpose=Purpose.PRACTICE)
    assert verdict.outcome is Outcome.PASS


def test_what_it_found_refuses_the_candidate() -> None:
    found = Incident(code=Reason.SANITIZER, call=None, detail="memcheck: 3 errors")
    verdict = conducted(ran(3), rule="where_present", incidents=(found,))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, Reason.SANITIZER)
    assert "memcheck: 3 errors" in verdict.reason
