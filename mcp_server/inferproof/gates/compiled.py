"""Compiled: the job ended, and the candidate was built and loaded."""

import re

from inferproof.core.evidence import BuildFacts, Evidence
from inferproof.core.values import JobStatus, Reason, Verdict
from inferproof.gates.base import Case, Clerk

CLERK = Clerk("compiled", __name__)
PLACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")
CLEARLY_NOT_THE_CANDIDATE = frozenset({Reason.COMPILER_MISSING, Reason.INFRASTRUCTURE})
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
            return CLERK.passes(f"built by {build.compiler}")
        return _refusal(build)


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
