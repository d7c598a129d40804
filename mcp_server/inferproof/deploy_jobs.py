"""The deploy jobs of a target, for whoever is not asynchronous."""

import asyncio

from inferproof.core.deploy_facts import DeployFacts
from inferproof.core.values import Digest, Purpose
from inferproof.pipeline import Keeper

_TOOL = "deploy"


class DeployJobs:
    """What a keeper starts, scales and ends on one target."""

    def __init__(self, keeper: Keeper, target: str) -> None:
        self._keeper = keeper
        self._target = target

    def start(self, candidate: Digest, replicas: int) -> str:
        """Start replicas of a candidate; return the job's id."""
        started = self._keeper.start(
            _TOOL,
            candidate=candidate,
            target=self._target,
            purpose=Purpose.PRACTICE,
            replicas=replicas,
        )
        return asyncio.run(started).job_id

    def scale(self, candidate: Digest, replicas: int) -> None:
        """Tell the candidate's running job how many replicas to have."""
        asyncio.run(self._keeper.rollout.scale(candidate, target=self._target, replicas=replicas))

    def facts(self, job_id: str) -> DeployFacts | None:
        """Return how a job stands by its own word; None before its first, and once it is over."""
        return None if self.failure(job_id) else asyncio.run(self._keeper.rollout.facts(job_id))

    def failure(self, job_id: str) -> str | None:
        """Return why a job is over; None while it is not."""
        report = asyncio.run(self._keeper.report(job_id))
        return (report.failure or report.status.value) if report.status.is_final else None

    def log(self, job_id: str) -> str:
        """Return the end of what its replicas printed."""
        facts = self.facts(job_id)
        if facts is not None:
            return facts.deployments[0].log_tail
        return self._keeper.evidence(job_id).log_tail if self.failure(job_id) else ""

    def cancel(self, job_id: str) -> None:
        """End a job and all that it started."""
        asyncio.run(self._keeper.cancel(job_id))
