"""One job's use of GPUs: from its place in the queue to the last second that is charged."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from inferproof_remote import cuda_nvml, job
from inferproof_remote.incidents import BenchError
from inferproof_remote.lease_records import Ticket, ahead
from inferproof_remote.leases import FAKE, Lease, Place, Wish, Yard
from inferproof_remote.mounts import LEASED
from inferproof_remote.remains import end_remains

BEAT_S = 5.0
_LONGEST_WAIT_S = 86400.0
_FOREIGN_S = 30.0
_REMAINS_S = 10.0

Keep = Callable[[str], None]
"""Store a text so that nobody else can alter it."""


class Tenure:
    """Waits for the GPUs of a job, holds them, and keeps the account that is charged."""

    def __init__(self, wish: Wish, job_dir: Path, keep: Keep) -> None:
        self._wish = wish
        self._job_dir = job_dir
        self._keep = keep
        self._yard = Yard(wish.folder)
        self._place: Place | None = None
        self._lease: Lease | None = None
        self._told = ""
        self._asked_s = time.monotonic()
        self.since_s = self._beat_s = self._asked_s
        self._account(is_over=False)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the job's own processes are told of the GPUs that they may use."""
        gpus = ",".join(self._lease.gpus if self._lease else ())
        return {LEASED: gpus, "CUDA_VISIBLE_DEVICES": gpus}

    def is_ready(self) -> bool:
        """Take the next step towards the GPUs; whether they are held and nobody else uses them.

        Raises:
            BenchError: they cannot be had.
        """
        if self._lease is None:
            self._queue_up()
        return self._lease is not None and self._is_alone(self._lease)

    def watch(self) -> None:
        """Keep the account up to date.

        Raises:
            BenchError: the GPUs were given to somebody else.
        """
        if self._lease is None or time.monotonic() - self._beat_s < BEAT_S:
            return
        self.check()
        self._account(is_over=False)

    def check(self) -> None:
        """Make sure that the lease still holds.

        Raises:
            BenchError: the GPUs were given to somebody else.
        """
        if self._lease is not None and not self._lease.is_good():
            raise BenchError(
                f"the lease of {', '.join(self._lease.gpus)} was lost: token "
                f"{', '.join(map(str, self._lease.tokens.values()))} is not the newest any more"
            )

    def end(self) -> None:
        """Let go of everything and close the account."""
        if self._place is not None:
            self._place.leave()
        if self._lease is not None:
            self._beat_s = self._lease.release()
        self._account(is_over=True)

    def _queue_up(self) -> None:
        if time.monotonic() - self._asked_s > _LONGEST_WAIT_S:
            raise BenchError(f"no GPU of {', '.join(self._wish.gpus)} was free within a day")
        if self._place is None:
            self._place = self._yard.enter(self._job_dir.name, self._wish)
        if self._place is None:
            return
        lease = self._yard.grant(self._place, self._wish)
        if lease is None:
            self._tell(self._place.ticket)
            return
        self._lease, self.since_s = lease, lease.since_s
        self._account(is_over=False)
        orphans = self._yard.orphans(lease)
        for orphan in orphans:  # its supervisor is dying, or has nothing left but to write
            end_remains(orphan.job, patience_s=_REMAINS_S, spared=orphan.pid)
        if orphans:
            self._yard.forget(lease.gpus, orphans)

    def _is_alone(self, lease: Lease) -> bool:
        """Whether nothing else computes on GPUs that are held for timing."""
        if not self._wish.exclusive:
            return True
        for gpu in lease.gpus:
            others = () if gpu.startswith(FAKE) else cuda_nvml.compute_processes(gpu)
            if others and time.monotonic() - self.since_s > _FOREIGN_S:
                pids = ", ".join(map(str, others))
                raise BenchError(f"{gpu} is used by processes that hold no lease: {pids}")
            if others:
                return False
        return True

    def _tell(self, ticket: Ticket) -> None:
        """Say the place in the queue and how long it may take, whenever that changes."""
        before = ahead(ticket, self._yard.queue())
        records = [self._yard.record(gpu) for gpu in ticket.gpus]
        holders = dict.fromkeys(each.job for record in records for each in record.holders)
        means = [record.mean_held_s for record in records if record.mean_held_s is not None]
        text = f"place {len(before) + 1} in the queue for {', '.join(ticket.gpus)}"
        if holders:
            text += f", held by {', '.join(holders)}"
        if means:
            text += f"; about {(len(before) + 1) * max(means) / len(ticket.gpus):.0f} s"
        if text != self._told:
            self._told = text
            job.report_progress(self._job_dir, 0, 1, text)

    def _account(self, *, is_over: bool) -> None:
        """Leave what is to be charged if nothing more is heard."""
        lease, now_s = self._lease, time.monotonic()
        if not is_over:
            self._beat_s = now_s
        held_s = 0.0 if lease is None else self._beat_s - self.since_s
        waited_s = (now_s if lease is None else self.since_s) - self._asked_s
        body: dict[str, object] = {
            "gpus": list(lease.gpus if lease else ()),
            "tokens": dict(lease.tokens if lease else {}),
            "mode": "exclusive" if self._wish.exclusive else "shared",
            "waited_s": waited_s,
            "held_s": held_s,
            "beat_s": BEAT_S,
            "is_over": is_over,
        }
        self._keep(json.dumps(body))
