"""Running deployments of a campaign: how one stands, and how it is scaled."""

from collections.abc import Callable

from inferproof.backends import deploy
from inferproof.core.deploy_facts import DeployFacts
from inferproof.core.errors import InfrastructureError, NotFound
from inferproof.core.values import Digest, Entry
from inferproof.docket import Docket
from inferproof.hosts.base import Host, JobState
from inferproof.ledger.bodies import Attempt

TOOL = "deploy"


class Rollout:
    """The deployments that the record says were started and have not ended."""

    def __init__(self, docket: Docket, host_of: Callable[[Attempt, Entry], Host]) -> None:
        self._docket = docket
        self._host_of = host_of

    async def scale(self, candidate: Digest, *, target: str, replicas: int) -> str | None:
        """Tell a candidate's running deployment how many replicas to have; return its job's id.

        None if the candidate has no running deployment on that target.
        """
        for attempt, entry in self._docket.attempts():
            named = (attempt.tool, attempt.candidate, attempt.target)
            if named != (TOOL, candidate, target) or self._docket.outcome(attempt.job_id):
                continue
            host = self._host_of(attempt, entry)
            if await _runs(host, attempt.job_id):
                told = deploy.control(replicas)
                await host.tell(attempt.job_id, deploy.CONTROL_FILE, told)
                return attempt.job_id
        return None

    async def facts(self, job_id: str) -> DeployFacts | None:
        """Return how a deployment stands by its own word; None while it has said nothing."""
        attempt, entry = self._docket.attempt(job_id)
        if attempt.tool != TOOL:
            return None
        try:
            folder = await self._host_of(attempt, entry).result_dir(job_id)
            return deploy.parse((folder / deploy.STATE_FILE).read_bytes())
        except (OSError, NotFound, InfrastructureError):
            return None


async def _runs(host: Host, job_id: str) -> bool:
    try:
        return not (await host.state(job_id)).status.is_final
    except NotFound:
        return False


def has_replicas(replicas: int) -> Callable[[JobState], bool]:
    """Return whether a deployment's state says that it has so many replicas, all healthy."""

    def check(state: JobState) -> bool:
        step = state.progress
        return step is not None and step.total == replicas and step.done >= step.total

    return check
