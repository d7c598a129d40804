"""Who may use which GPU of this machine: a kernel lock for each, and a fair queue before them.

A lock is held by the supervisor of a job, so the kernel frees it whatever happens; an older ticket
goes first; each grant has a token greater than all before it, so that whoever lost a lock without
noticing (its folder was deleted, say) is found out before its result counts.
"""

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from inferproof_remote import job, processes
from inferproof_remote.incidents import BenchError
from inferproof_remote.lease_records import (
    Holder,
    Record,
    Ticket,
    ahead,
    is_newest,
    read_record,
    read_ticket,
)

FOLDER = "/var/tmp/inferproof-leases"  # noqa: S108 (whose it is and who may write there is checked)
FAKE = "fake-"
_KEY = "lease"
_REMOTE = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "ceph", "lustre", "glusterfs")
_FRESH_SHARE = 0.3
_MODE = 0o660


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a job asks for: `count` of these GPUs, all or none, for at most `held_s` seconds."""

    gpus: tuple[str, ...]
    count: int
    exclusive: bool
    folder: Path
    owner: str
    held_s: float


def wish_of(spec: Mapping[str, object], wall_s: float) -> Wish | None:
    """Return what a job's `spec` asks for; None if it needs no GPU.

    Raises:
        JobFormatError: it asks in another form.
    """
    if spec.get(_KEY) is None:
        return None
    asked = job.as_table(spec[_KEY], _KEY)
    gpus = tuple(sorted(set(job.as_texts(asked.get("gpus"), "gpus"))))
    count = int(job.as_number(asked.get("count"), "count"))
    mode, folder = asked.get("mode"), asked.get("folder") or FOLDER
    named = all(gpu and gpu.replace("-", "").isalnum() for gpu in gpus)
    if not named or not 1 <= count <= len(gpus) or mode not in ("exclusive", "shared"):
        raise job.JobFormatError(f"this is no wish for GPUs: {dict(asked)!r}")
    return Wish(
        gpus=gpus,
        count=count,
        exclusive=mode == "exclusive",
        folder=Path(str(folder)),
        owner=str(asked.get("owner", "")),
        held_s=min(wall_s, job.as_number(asked.get("held_s", wall_s), "held_s")),
    )


class Lease:
    """GPUs that are held, by open files that no other program inherits."""

    def __init__(
        self,
        yard: "Yard",
        holders: Mapping[str, Holder],
        files: Mapping[str, int],
        since_s: float,
    ) -> None:
        self._yard = yard
        self.since_s = since_s
        self.holders = dict(holders)
        self._files = dict(files)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs' names, in order."""
        return tuple(self.holders)

    @property
    def tokens(self) -> Mapping[str, int]:
        """The number of this grant on each GPU."""
        return {gpu: holder.token for gpu, holder in self.holders.items()}

    def is_good(self) -> bool:
        """Whether it is still the newest, on the very lock files that everyone else sees."""
        return all(
            self._yard.confirms(gpu, self.holders[gpu], self._files[gpu]) for gpu in self.gpus
        )

    def release(self) -> float:
        """Let go of every GPU; return when, on the clock of `since_s`."""
        with contextlib.suppress(OSError, BenchError):  # of a folder that is gone or damaged
            self._yard.note_end(self.holders, time.monotonic() - self.since_s)
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        return time.monotonic()


class Yard:
    """The lease folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = _checked(folder)
        self._tickets = folder / "tickets"
        self._tickets.mkdir(mode=0o770, exist_ok=True)

    def enter(self, job_id: str, wish: Wish) -> "Place | None":
        """Return a new place at the end of the queue; None if others are busy with it right now."""
        with self._guarded() as guard:
            if guard is None:
                return None
            for leftover in self._tickets.glob(".*"):
                leftover.unlink(missing_ok=True)
            number = 1 + int(os.pread(guard, 32, 0) or b"0")
            os.pwrite(guard, b"%d" % number, 0)
            ticket = Ticket(number=number, job=job_id, gpus=wish.gpus, exclusive=wish.exclusive)
            return Place(ticket, self._tickets)

    def queue(self) -> tuple[Ticket, ...]:
        """Return who waits, first come first; what dead ones left is removed."""
        found: list[Ticket] = []
        for path in sorted(self._tickets.glob("[0-9]*")):
            if _is_free(path):
                path.unlink(missing_ok=True)
            elif (ticket := read_ticket(path)) is not None:
                found.append(ticket)
        return tuple(found)

    def grant(self, place: "Place", wish: Wish) -> Lease | None:
        """Return the lease if it is this place's turn and the GPUs are free, else None at once."""
        with self._guarded() as guard:
            if guard is None or ahead(place.ticket, self.queue()):
                return None
            files, since_s = self._locked(wish), time.monotonic()
            if files is None:
                return None
            given = {gpu: self._enrol(gpu, place.ticket.job, wish) for gpu in files}
            place.leave()
            return Lease(self, given, files, since_s)

    def record(self, gpu: str) -> Record:
        """Return what is known of a GPU."""
        return read_record(self._path(gpu))

    def confirms(self, gpu: str, holder: Holder, file: int) -> bool:
        """Whether `file` is the lock that everyone sees and `holder` its newest.

        Both files are touched: what nobody touches for weeks is swept away on many machines.
        """
        try:
            seen = (self._folder / f"{gpu}.lock").stat()
        except FileNotFoundError:
            return False
        os.utime(file)
        with contextlib.suppress(OSError):  # another user who shares the GPU wrote it last
            os.utime(self._path(gpu))
        mine = os.fstat(file)
        same = (seen.st_dev, seen.st_ino) == (mine.st_dev, mine.st_ino)
        exclusive = holder.mode == "exclusive"
        return same and is_newest(self.record(gpu), holder.token, exclusive=exclusive)

    def note_end(self, holders: Mapping[str, Holder], held_s: float) -> None:
        """Strike these holders off and learn from them, unless others are busy with the queue."""
        with self._guarded() as guard:
            for gpu, holder in holders.items() if guard is not None else ():
                known = self.record(gpu)
                old = held_s if known.mean_held_s is None else known.mean_held_s
                mean_s = old + _FRESH_SHARE * (held_s - old)
                left = tuple(each for each in known.holders if each.token != holder.token)
                self._write(gpu, replace(known, mean_held_s=mean_s, holders=left))

    def orphans(self, lease: Lease) -> tuple[Holder, ...]:
        """Return who held these GPUs, does so no more, and did not say that it had ended.

        Who could not share them with `lease` holds nothing now, whether or not its supervisor,
        which may be dying, can still be seen.
        """
        found: dict[str, Holder] = {}
        for gpu, mine in lease.holders.items():
            for other in self.record(gpu).holders:
                may_share = mine.mode == other.mode == "shared"
                if other.job != mine.job and not (may_share and other.is_alive):
                    found[other.job] = other
        return tuple(found.values())

    def forget(self, gpus: Iterable[str], holders: Iterable[Holder]) -> None:
        """Strike off holders of whom nothing is left, unless others are busy with the queue."""
        jobs = {holder.job for holder in holders}
        with self._guarded() as guard:
            for gpu in gpus if guard is not None else ():
                known = self.record(gpu)
                left = tuple(each for each in known.holders if each.job not in jobs)
                self._write(gpu, replace(known, holders=left))

    @contextlib.contextmanager
    def _guarded(self) -> Generator[int | None]:
        """Yield the queue's own lock; None at once if another has it, who may be stopped."""
        guard = _open_lock(self._folder / "queue.lock")
        try:
            yield guard if _lock(guard, fcntl.LOCK_EX) else None
        finally:
            os.close(guard)

    def _locked(self, wish: Wish) -> dict[str, int] | None:
        """Return `wish.count` locked files, by GPU in order; none is kept if they are too few."""
        with contextlib.ExitStack() as stack:
            files: dict[str, int] = {}
            for gpu in wish.gpus:
                file = _open_lock(self._folder / f"{gpu}.lock")
                if len(files) < wish.count and _lock(
                    file, fcntl.LOCK_EX if wish.exclusive else fcntl.LOCK_SH
                ):
                    files[gpu] = file
                    stack.callback(os.close, file)
                else:
                    os.close(file)
            if len(files) < wish.count:
                return None
            stack.pop_all()
            return files

    def _enrol(self, gpu: str, job_id: str, wish: Wish) -> Holder:
        """Record a new holder, on disk before anything uses the GPU."""
        known, me = self.record(gpu), processes.find(os.getpid())
        now_s = time.time()
        holder = Holder(
            owner=wish.owner,
            job=job_id,
            pid=os.getpid(),
            start_ticks=me.start_ticks if me else 0,
            token=known.token + 1,
            mode="exclusive" if wish.exclusive else "shared",
            since=now_s,
            until=now_s + wish.held_s,
        )
        latest = replace(known, token=holder.token, holders=(*known.holders, holder))
        if wish.exclusive:
            latest = replace(latest, exclusive_token=holder.token)
        self._write(gpu, latest)
        return holder

    def _write(self, gpu: str, record: Record) -> None:
        job.write_atomically(self._path(gpu), json.dumps(asdict(record)))

    def _path(self, gpu: str) -> Path:
        return self._folder / f"{gpu}.json"


class Place:
    """A place in the queue, kept by an open file: when its process ends, the place is gone."""

    def __init__(self, ticket: Ticket, folder: Path) -> None:
        self.ticket = ticket
        self._path = folder / f"{ticket.number:012d}.json"
        hidden = folder / f".{ticket.number}"
        self._file = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(self._file, json.dumps(asdict(ticket)).encode())
        hidden.rename(self._path)  # who sees it finds it locked and whole

    def leave(self) -> None:
        """Give the place up; safe to repeat."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def _checked(folder: Path) -> Path:
    """Return the folder, made if it is not there, once nobody else can be its master.

    Raises:
        BenchError: others may write there, or it is no folder of this machine's own disk.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_mode & stat.S_IWOTH:
        raise BenchError(f"{folder} is no folder, or everybody may write there: chmod o-w {folder}")
    if facts.st_uid not in (0, os.getuid()):
        raise BenchError(f"{folder} belongs to user {facts.st_uid}: name another lease_dir")
    kind = _disk_kind(folder.resolve())
    if kind.startswith(_REMOTE):
        raise BenchError(f"{folder} lies on {kind}: locks need a disk of this very machine")
    return folder


def _disk_kind(folder: Path) -> str:
    """Return the type of the file system that holds `folder`; empty if it is not told."""
    found: dict[Path, str] = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        found[Path(left.split()[4])] = right.split()[0]
    return next((found[place] for place in (folder, *folder.parents) if place in found), "")


def _open_lock(path: Path) -> int:
    """Return a lock file, opened and touched."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    os.utime(file)
    return file


def _lock(file: int, mode: int) -> bool:
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(path: Path) -> bool:
    """Whether nobody holds this file any more."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        return _lock(file, fcntl.LOCK_SH)
    finally:
        os.close(file)
