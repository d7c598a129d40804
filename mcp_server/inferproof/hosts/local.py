"""This machine as a host: job folders under the campaign's state, supervisors that outlive us."""

import sys
from collections.abc import Mapping
from pathlib import Path

from inferproof.core.canonical import Json
from inferproof.hosts.bundle import Bundle, build_zipapp, restore
from inferproof.hosts.folders import Answer, Folders, Queue, refusal
from inferproof_remote import door
from inferproof_remote.jobs import Jobs, Refused


class Local(Folders):
    """Runs jobs on this machine; any number of instances may share one state folder."""

    def __init__(
        self, state_dir: Path, *, python: Path | None = None, queue: Queue | None = None
    ) -> None:
        bundle = build_zipapp(state_dir / "cache")
        jobs = Jobs(
            root=state_dir,
            python=str(python or sys.executable),
            program=bundle.path,
            program_digest=bundle.digest,
        )
        super().__init__(_Here(jobs, bundle), remote_digest=bundle.digest, queue=queue)
        self._jobs = jobs

    async def result_dir(self, job_id: str) -> Path:
        """Return the folder that holds the job's `result.json` and `files/`."""
        try:
            return self._jobs.folder(job_id) / "out"
        except Refused as error:
            raise refusal(error.code, error.what, error.hint) from error


class _Here:
    """The door of this machine: asked without a channel."""

    def __init__(self, jobs: Jobs, bundle: Bundle) -> None:
        self._jobs = jobs
        self._bundle = bundle

    def ask(
        self, asked: str, fields: Mapping[str, Json], payload: bytes = b"", *, timeout_s: float
    ) -> Answer:
        """Return the answer of the door, which sets its own times."""
        del timeout_s
        if asked in ("begin", "again", "sweep"):
            restore(self._bundle)  # others of this account can write there
        try:
            found = door.answer(self._jobs, asked, fields, payload)
        except Refused as error:
            raise refusal(error.code, error.what, error.hint) from error
        return Answer(found.body, found.payload)

    def close(self) -> None:
        """There is nothing to let go of."""
