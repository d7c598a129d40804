"""Compiled: the job ended, and the candidate was built, loaded, and engages what it must.

A contract that `engages` a dtype wants matrix instructions of it in device code, read from the
machine code of the architectures that the candidate was built for. An instruction of another name
is a raised (or lowered) precision, whatever the numbers say: `mma.sync` of e4m3 operands becomes a
16-bit instruction on compute capability 9 and 10. A kernel that holds the instruction and makes no
difference to the outputs is decoration. A chip that has no such instruction proves nothing.
"""

import re
from collections.abc import Mapping, Sequence

from inferproof.core.contract import DType
from inferproof.core.evidence import BuildFacts, Evidence, KernelResources
from inferproof.core.values import JobStatus, Reason, Verdict
from inferproof.gates.base import Case, Clerk

CLERK = Clerk("compiled", __name__)
PLACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")
CLEARLY_NOT_THE_CANDIDATE = frozenset({Reason.COMPILER_MISSING, Reason.INFRASTRUCTURE})
DEVICE_LANGUAGES = frozenset({"cuda", "triton"})
# By compute capability: 9 is Hopper, 10 Blackwell for data centres, 12 Blackwell for desktops.
INSTRUCTIONS: Mapping[DType, Mapping[str, str]] = {
    DType.F8E4M3: {"8": r"QMMA", "9": r"QGMMA", "10": r"UTCQMMA", "12": r"QMMA"},
    DType.F8E5M2: {"8": r"QMMA", "9": r"QGMMA", "10": r"UTCQMMA", "12": r"QMMA"},
    DType.F4E2M1X2: {"10": r"UTCOMMA", "12": r"OMMA"},
    DType.BF16: {
        "8": r"HMMA.*BF16",
        "9": r"(?:HMMA|HGMMA).*BF16",
        "10": r"(?:HMMA.*BF16|UTCHMMA)",
        "12": r"HMMA.*BF16",
    },
}
UNREAD = "not measured: machine code was not read; install nvdisasm (pip install nvidia-nvdisasm)"
ELSEWHERE = "Judge it on a target whose chip has the instruction."
ENGAGE = "Give operands of the asked dtype to the matrix unit of the chip; see the failure modes."
NEXT_STEPS = {
    Reason.COMPILE_FAILED: "Fix the first compiler error and submit again.",
    Reason.IMPORT_FAILED: "Make the source import on its own, with the entry named in the "
    "manifest, and submit again.",
}


class Compiled:
    """Passes when a build that says it worked is there."""

    name = CLERK.gate

    def judge(self, case: Case) -> Verdict:
        """Return whether the candidate was built."""
        evidence = case.evidence
        if evidence.status is not JobStatus.DONE:
            return CLERK.doubts(Reason.INFRASTRUCTURE, _why_not_done(evidence))
        build = evidence.grade.build if evidence.grade else evidence.build
        if build is None:
            return CLERK.unmeasured("the build")
        if build.ok and build.code is Reason.ACCEPTED:
            return _engaged(case, build) or CLERK.passes(f"built by {build.compiler}")
        return _refusal(build)


def _engaged(case: Case, build: BuildFacts) -> Verdict | None:
    """Return what is wrong with the units that device code uses; None if nothing is."""
    wanted = case.contract.engages
    if wanted is None or build.language not in DEVICE_LANGUAGES:
        return None
    if not build.resources or any(each.code is None for each in build.resources):
        return CLERK.doubts(Reason.NOT_MEASURED, UNREAD, UNREAD)
    able = [each for each in build.resources if _instruction(wanted, each.arch)]
    if not able:
        archs = ", ".join(sorted({each.arch for each in build.resources}))
        what = f"{archs} has no matrix instruction for {wanted.value}: nothing is proved there"
        return CLERK.doubts(Reason.NOT_APPLICABLE, f"not applicable: {what}", ELSEWHERE)
    holding = {each.kernel for each in able if _holds(wanted, each)}
    if not holding:
        return CLERK.fails(Reason.PRECISION_RAISED, _instead(wanted, able), ENGAGE)
    gpu = case.evidence.grade.gpu if case.evidence.grade else None
    if gpu is not None and gpu.idle is not None and holding <= set(gpu.idle):
        what = f"{', '.join(sorted(holding))} makes no difference to the outputs"
        return CLERK.fails(Reason.PRECISION_RAISED, f"precision_raised: {what}", ENGAGE)
    return None


def _instruction(wanted: DType, arch: str) -> re.Pattern[str] | None:
    family = re.sub(r"\D", "", arch)[:-1]
    pattern = INSTRUCTIONS.get(wanted, {}).get(family)
    return None if pattern is None else re.compile(pattern)


def _holds(wanted: DType, kernel: KernelResources) -> bool:
    pattern = _instruction(wanted, kernel.arch)
    names = kernel.code.tensor if kernel.code else {}
    return pattern is not None and any(pattern.match(name) for name in names)


def _instead(wanted: DType, kernels: Sequence[KernelResources]) -> str:
    found = sorted({name for each in kernels if each.code for name in each.code.tensor})
    shown = ", ".join(found[:3]) or "none"
    archs = ", ".join(sorted({each.arch for each in kernels}))
    return f"precision_raised: matrix instructions on {archs} are {shown}, not of {wanted.value}"


def _why_not_done(evidence: Evidence) -> str:
    why = f": {evidence.failure}" if evidence.failure else ""
    return f"the job did not end well ({evidence.status.value}){why}"


def _refusal(build: BuildFacts) -> Verdict:
    if build.ok or build.code in (Reason.ACCEPTED, Reason.NOT_MEASURED):
        return CLERK.unmeasured("whether the build worked")
    if build.code in CLEARLY_NOT_THE_CANDIDATE:
        what = build.help or f"{build.compiler} is not usable on the target"
        return CLERK.doubts(build.code, what, build.help or "Run: inferproof doctor")
    step = NEXT_STEPS.get(build.code, "Make the build smaller or simpler and submit again.")
    return CLERK.fails(
        build.code, f"the build was refused ({build.code.value}){_where(build)}", step
    )


def _where(build: BuildFacts) -> str:
    """Return the place of the first error. Its words may be the candidate's own: never here."""
    errors = [found for found in build.diagnostics if found.severity == "error"]
    if not errors:
        return ""
    place = f" at {errors[0].file}:{errors[0].line}" if PLACE.fullmatch(errors[0].file) else ""
    return f"; first error{place}, see its diagnostics"
