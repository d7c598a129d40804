"""A machine reached by SSH as a host: its jobs are folders there, found again by anyone who may."""

from pathlib import Path

from inferproof.core.campaign import Target
from inferproof.core.canonical import digest_json
from inferproof.core.errors import UsageError
from inferproof.hosts.bundle import build_zipapp
from inferproof.hosts.folders import Folders, Queue
from inferproof.hosts.mirror import Mirror
from inferproof.hosts.same_work import SameWork
from inferproof.hosts.ssh_keys import PINS_FILE
from inferproof.hosts.ssh_lines import Lines, Place
from inferproof.hosts.ssh_link import Link, Trust
from inferproof.hosts.ssh_route import route

DEFAULT_PYTHON = "python3"


class Ssh(Folders):
    """Runs jobs on another machine; nothing of them depends on the connection's life."""

    def __init__(
        self, name: str, target: Target, state_dir: Path, *, queue: Queue | None = None
    ) -> None:
        if target.work is None:
            raise UsageError(f"target {name} has no work folder", hint="give it `work`")
        bundle = build_zipapp(state_dir / "cache")
        place = Place(python=target.python or DEFAULT_PYTHON, work=target.work, bundle=bundle)
        reached = digest_json({"address": target.address, "work": target.work})[:16]
        lines = SameWork(
            Lines(lambda: connect(name, target, state_dir), place),
            state_dir / "works" / f"{name}-{reached}",
            work=f"{target.work} of target {name}",
        )
        super().__init__(lines, remote_digest=bundle.digest, queue=queue)
        self._mirror = Mirror(lines, state_dir / "mirror" / name)

    async def result_dir(self, job_id: str) -> Path:
        """Return a local copy of what the job left so far; only what changed is fetched."""
        return await self._mirror.fetched(job_id)


def connect(name: str, target: Target, state_dir: Path, *, pin: str | None = None) -> Link:
    """Return a new connection to a target; with `pin`, a host key that fits is accepted for good.

    Raises:
        InfrastructureError: it cannot be reached, or is not who it should be.
    """
    trust = Trust(
        target=name,
        pins=state_dir / PINS_FILE,
        fingerprint=pin or target.host_key,
        keeps=pin is not None,
    )
    return Link(route(target), trust)
