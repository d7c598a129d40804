"""Servers and agents that contend for GPUs through real supervisors, some of which are killed.

Three that know nothing of each other say what happened: each job leaves a witness file that must
not be there yet (O_EXCL), the kernel's own list of locks is watched from outside, and supervisors
sign their accounts. A job that outlives its supervisor is not ended by anybody here.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from inferproof.core.lease_facts import LeaseFacts
from inferproof_remote import processes
from inferproof_remote.leases import Yard

GPUS = ("fake-0", "fake-1")
_SAMPLE_S = 0.004
_PATIENCE_S = 120.0
_LAUNCH = (
    "import sys; from pathlib import Path; from inferproof_remote import supervise;"
    " sys.exit(supervise.launch(Path(sys.argv[1]), Path(sys.argv[2]), secret=b'contest'))"
)
_WITNESS = """
import json, os, sys, time
from pathlib import Path

def start_ticks(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]  # what is dead uses nothing
    except OSError:
        return None

def mark(path, me):
    while True:
        try:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            pid, ticks = path.read_text().split()
            if start_ticks(pid) == ticks:
                (path.parent / f"overlap-{me.split()[0]}").write_text(f"{path.name}: {pid} lives")
            path.unlink(missing_ok=True)
        else:
            os.write(file, me.encode())
            os.close(file)
            return

folder = Path(sys.argv[2])
spec = json.loads((folder / "job.json").read_text())["spec"]
me = f"{os.getpid()} {start_ticks(os.getpid())}"
marks = [Path(spec["witness"]) / gpu for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
for path in marks:
    mark(path, me)
USE
for path in marks:
    path.unlink()
(folder / "out" / "result.json").write_text("{}")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One job as it ended: what its supervisor accounts for, and whether that was killed."""

    lease: LeaseFacts
    was_killed: bool
    pid: int


@dataclass
class LockWatch:
    """How long each process held locks on some files, as the kernel tells it."""

    inodes: frozenset[int]
    held_s: dict[int, float] = field(default_factory=dict[int, float])
    _over: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Look again and again until told to end; a change lies half way between two looks."""
        before, looked = frozenset[tuple[int, int]](), time.monotonic()
        since: dict[tuple[int, int], float] = {}
        while not self._over.wait(_SAMPLE_S):
            now, seen = time.monotonic(), self._locks()
            middle = (looked + now) / 2
            for lock in seen - before:
                since[lock] = middle
            for lock in before - seen:
                pid = lock[0]
                self.held_s[pid] = self.held_s.get(pid, 0.0) + middle - since.pop(lock)
            before, looked = seen, now

    def end(self) -> None:
        """Stop looking."""
        self._over.set()

    def _locks(self) -> frozenset[tuple[int, int]]:
        rows = (line.split() for line in Path("/proc/locks").read_text("utf-8").splitlines())
        found = ((int(row[4]), int(row[5].rpartition(":")[2])) for row in rows if row[1] == "FLOCK")
        return frozenset(lock for lock in found if lock[1] in self.inodes)


class Contest:
    """Two servers, six agents, two GPUs; `use` is what a job does with what it holds."""

    def __init__(
        self,
        folder: Path,
        *,
        leases: int,
        kill_share: float,
        use_s: float,
        gpus: tuple[str, ...] = GPUS,
        use: str = 'time.sleep(spec["use_s"])',
    ) -> None:
        self.folder, self.leases, self.kill_share, self.use_s = folder, leases, kill_share, use_s
        self.gpus = gpus
        self.yard = Yard(folder / "leases")
        self.turns: list[Turn] = []
        self._witness = folder / "witness"
        self._program = folder / "witness.py"
        self._witness.mkdir()
        self._program.write_text(_WITNESS.replace("USE", use), encoding="utf-8")

    def play(self) -> LockWatch:
        """Let all agents work until enough leases were given; return what the kernel saw."""
        locks = [self.folder / "leases" / f"{gpu}.lock" for gpu in self.gpus]
        for path in locks:
            path.touch(mode=0o660)
        watch = LockWatch(frozenset(path.stat().st_ino for path in locks))
        with _running(watch), ThreadPoolExecutor(6) as pool:
            agents = [pool.submit(self._work, agent) for agent in range(6)]
            for agent in agents:
                agent.result()
        return watch

    @property
    def given(self) -> int:
        """How many leases were given so far, of one GPU each."""
        return sum(self.yard.record(gpu).token for gpu in self.gpus)

    def overlaps(self) -> list[str]:
        """Return what the witnesses found: two jobs on one GPU at a time."""
        return [path.read_text("utf-8") for path in self._witness.glob("overlap-*")]

    def _work(self, agent: int) -> None:
        chance = random.Random(agent)
        number = 0
        while self.given < self.leases:
            number += 1
            folder = self.start(
                f"server-{agent % 2}/agent-{agent}-{number}",
                min(chance.choice((1, 1, 2)), len(self.gpus)),
            )
            pid = supervisor(folder)
            if chance.random() < self.kill_share:
                time.sleep(chance.uniform(0, 4 * self.use_s))  # a kill at any time is tried
                kill(pid)
            else:
                wait_for(folder / "rc")
            text = (folder / "out" / "lease.signed").read_text(encoding="utf-8")
            lease = LeaseFacts.model_validate_json(text.partition("\n")[2])
            was_killed = not (folder / "rc").exists()
            self.turns.append(Turn(lease=lease, was_killed=was_killed, pid=pid))

    def start(self, name: str, count: int, *, use_s: float | None = None) -> Path:
        """Launch a job that uses so many GPUs; return its folder."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        lease = {
            "gpus": self.gpus,
            "count": count,
            "mode": "exclusive",
            "folder": str(self.folder / "leases"),
            "owner": folder.parent.name,
        }
        spec = {"lease": lease, "witness": str(self._witness), "use_s": use_s or self.use_s}
        body = {"schema": 1, "job_id": folder.name, "verb": "run", "wall_s": 60, "spec": spec}
        (folder / "job.json").write_text(json.dumps(body), encoding="utf-8")
        argv = [sys.executable, "-c", _LAUNCH, str(folder), str(self._program)]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, timeout=_PATIENCE_S)
        return folder

    def users(self) -> list[int]:
        """Return the processes that say they use a GPU."""
        marks = [path for path in map(self._witness.joinpath, self.gpus) if path.exists()]
        marks = [path for path in marks if path.stat().st_size]
        return [int(path.read_text("utf-8").split()[0]) for path in marks]


@contextmanager
def _running(watch: LockWatch) -> Generator[None]:
    thread = threading.Thread(target=watch.watch)
    thread.start()
    try:
        yield
    finally:
        watch.end()
        thread.join()


def supervisor(folder: Path) -> int:
    """Return the process that keeps a job."""
    return int((folder / "pid").read_text(encoding="utf-8").split()[0])


def kill(pid: int) -> None:
    """Kill a supervisor, unless it has ended; return when it is gone."""
    if (process := processes.find(pid)) is not None:
        processes.send(process, signal.SIGKILL)
        wait_until(lambda: not lives(pid))


def lives(pid: int) -> bool:
    """Whether a process is there and not dead."""
    found = processes.find(pid)
    return found is not None and found.state not in "ZX"


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    wait_until(path.exists)


def wait_until(seen: Callable[[], object]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + _PATIENCE_S
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(_SAMPLE_S)


def clean_up(folder: Path) -> None:
    """End what killed supervisors left behind, once the contest is over."""
    for place in folder.glob("server-*/*"):
        for process in processes.with_environment("INFERPROOF_JOB", place.name):
            if process.pid != os.getpid():
                processes.send(process, signal.SIGKILL)
