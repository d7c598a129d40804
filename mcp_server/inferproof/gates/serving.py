"""Serving: every start of the candidate became healthy, was ours, and nothing in it went wrong."""

from collections.abc import Sequence

from inferproof.core.serving_facts import DeploymentFacts, ServeFacts
from inferproof.core.values import Incident, Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase, bench_words

CLERK = Clerk("serving", __name__)
NEXT_STEPS = {
    Reason.NOT_SERVING: "Start the engine's command by hand and read its log; it must answer its "
    "health path with 200 within start_s.",
    Reason.CRASHED: "Read the engine's log tail in the evidence; keep every replica alive.",
    Reason.TIMED_OUT: "Answer every request; a hung engine fails.",
    Reason.MEMORY_EXCEEDED: "Use less memory than the campaign's limit for one replica.",
    Reason.DISK_EXCEEDED: "Write less to the private temporary folder.",
    Reason.PROCESS_LIMIT: "Start fewer threads and processes.",
    Reason.CORES_EXCEEDED: "Use as many cores as the target gives threads; do not widen them.",
    Reason.WRONG_TOKENS: "Answer with the tokens that the model gives.",
}
SLACK = 0.1
TOO_SHORT = (
    "Measure again; if this repeats, each start serves too shortly to tell: ask the person in "
    "charge for longer traffic."
)
UNSUPERVISED = "Submit the engine as a folder that inferproof starts itself."


class Serving:
    """Passes when all replicas of all starts of both arms served, and all were started by us."""

    name = CLERK.gate

    def judge(self, case: ServiceCase) -> Verdict:
        """Return whether what was measured is what was submitted, running."""
        serve = case.evidence.serve
        if serve is None:
            return CLERK.unmeasured("any start")
        own = [start for start in serve.deployments if start.arm == "candidate"]
        fault = _fault(serve, own)
        if fault is not None:
            return fault
        if not own:
            return CLERK.unmeasured("any start of the candidate")
        if not all(start.supervised for start in own):
            reason = "it was not started by inferproof: what runs there is not known"
            return CLERK.doubts(Reason.UNSUPERVISED, reason, UNSUPERVISED)
        if any(start.cores_each is None or start.busiest_cores is None for start in own):
            reason = "not measured: how many cores each replica kept busy"
            return CLERK.doubts(Reason.NOT_MEASURED, reason, TOO_SHORT)
        return CLERK.passes(_text(own))


def _fault(serve: ServeFacts, own: Sequence[DeploymentFacts]) -> Verdict | None:
    """Return the first thing that went wrong, the candidate's own doing before the bench's."""
    happened = [*(i for start in own for i in start.incidents), *serve.incidents]
    if happened:
        return _incident(happened[0])
    for start in own:
        if _exceeds_cores(start):
            what = f"a replica kept {start.busiest_cores:.2f} cores busy, it has {start.cores_each}"
            return CLERK.fails(Reason.CORES_EXCEEDED, what, NEXT_STEPS[Reason.CORES_EXCEEDED])
        if start.healthy < start.replicas or start.ready_s is None:
            return _unhealthy(start)
    ill = _ill_baseline(serve)
    return CLERK.doubts(Reason.INFRASTRUCTURE, ill) if ill else None


def _exceeds_cores(start: DeploymentFacts) -> bool:
    """Whether a replica was seen to use more than it was given."""
    given, used = start.cores_each, start.busiest_cores
    return given is not None and used is not None and used > given * (1 + SLACK) + SLACK


def _incident(incident: Incident) -> Verdict:
    reason = f"{incident.code.value}: {bench_words(incident)}"
    if incident.code not in NEXT_STEPS:
        return CLERK.doubts(Reason.INFRASTRUCTURE, reason)
    return CLERK.fails(incident.code, reason, NEXT_STEPS[incident.code])


def _unhealthy(start: DeploymentFacts) -> Verdict:
    return CLERK.fails(Reason.NOT_SERVING, _count(start), NEXT_STEPS[Reason.NOT_SERVING])


def _count(start: DeploymentFacts) -> str:
    return f"{start.healthy} of {start.replicas} replicas became healthy"


def _ill_baseline(serve: ServeFacts) -> str:
    for start in serve.deployments:
        if start.arm == "baseline" and (start.incidents or start.healthy < start.replicas):
            what = bench_words(start.incidents[0]) if start.incidents else _count(start)
            return f"the baseline did not serve: {what}"
    return ""


def _text(own: Sequence[DeploymentFacts]) -> str:
    slowest = max(start.ready_s or 0.0 for start in own)
    return f"{len(own)} starts of {own[0].replicas} replicas served, the slowest in {slowest:.1f} s"
