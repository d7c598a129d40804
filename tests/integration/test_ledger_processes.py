"""The ledger under real processes: killed writers and racing servers."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inferproof.core.evidence import Evidence
from inferproof.core.values import Verdict
from inferproof.ledger.chain import check_chain
from inferproof.ledger.signing import ApproverKey
from inferproof.ledger.store import Ledger
from inferproof.ledger.verify import verify
from unit.ledger.worlds import SUBJECT, make_world, note

pytestmark = pytest.mark.integration

WRITER = """
import sys
from pathlib import Path
from inferproof.ledger.store import Ledger
ledger = Ledger.open(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    entry = ledger.append({"kind": "note", "text": "x" * 9000, "author": "person"})
    print(entry.digest, flush=True)
"""
TORN_WRITER = """
import resource, signal, sys
from pathlib import Path
from inferproof.ledger.store import Ledger
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
ledger = Ledger.open(Path(sys.argv[1]))
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
ledger.append({"kind": "note", "text": "x" * 9000, "author": "person"})
"""
APPENDER = """
import sys
from pathlib import Path
from inferproof.ledger.store import Ledger
ledger = Ledger.open(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(25):
    print(ledger.append({"kind": "note", "text": str(number), "author": "person"}).digest)
"""
FINISHER = """
import os, sys
from pathlib import Path
from inferproof.ledger.store import Ledger
ledger = Ledger.open(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    job = f"job-{number}"
    body = {"kind": "outcome", "job_id": job, "status": "lost", "evidence": None,
            "verdicts": [], "overall": None, "failure": str(os.getpid())}
    print(ledger.append_outcome_once(job, body).digest)
"""
SPENDER = """
import sys
from datetime import datetime
from pathlib import Path
from inferproof.core.errors import ApprovalRefused
from inferproof.ledger import approvals
from inferproof.ledger.store import Ledger
ledger = Ledger.open(Path(sys.argv[1]))
subject = approvals.Subject.model_validate_json(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
try:
    print(approvals.use(ledger, subject, now=datetime.fromisoformat(sys.argv[3])).digest)
except ApprovalRefused as refused:
    print("refused:", refused.what)
"""


def no_judge(contract: str, evidence: Evidence) -> tuple[Verdict, ...]:
    raise AssertionError((contract, evidence.job_id))


def race(script: str, *arguments: str, processes: int = 4) -> list[list[str]]:
    """Return what each of several processes printed after all began at once."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    printed: list[list[str]] = []
    for racer in racers:
        assert racer.stdout
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        printed.append(racer.communicate(timeout=60)[0].split("\n")[:-1])
        assert racer.returncode == 0
    return printed


def killed_writer(state_dir: Path, *, after_s: float) -> list[str]:
    """Return the digests that a writer had printed when it was killed."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(state_dir)], stdout=subprocess.PIPE
    )
    assert writer.stdout
    with writer.stdout:
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(after_s)
        writer.kill()
        printed = writer.stdout.read()
    writer.wait()
    return [line.decode() for line in printed.split(b"\n")[:-1]]


def test_no_committed_entry_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    moments = random.Random(20)
    committed: list[str] = []
    for _ in range(20):
        committed += killed_writer(tmp_path, after_s=moments.uniform(0.0, 0.06))
        ledger = Ledger.open(tmp_path)
        ledger.append(note("after the kill"))
        assert set(committed) <= {entry.digest for entry in ledger.entries()}
    assert len(committed) > 20
    report = verify(tmp_path, tmp_path, judge=no_judge, expected_head=committed[-1])
    assert report.ok, report.findings


def test_what_a_writer_killed_in_mid_write_leaves_is_reported_and_repaired(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    last = ledger.append(note("last"))
    limit = ledger.path.stat().st_size + 100
    command = [sys.executable, "-c", TORN_WRITER, str(tmp_path), str(limit)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGXFSZ
    assert ledger.path.stat().st_size == limit
    report = verify(tmp_path, tmp_path, judge=no_judge, expected_head=last.digest)
    assert report.ok
    assert "ends in 100 bytes of a torn line" in str(report.findings[0])
    assert ledger.head == last.digest
    ledger.append(note("next"))
    assert [entry.body["torn_bytes"] for entry in ledger.entries("repair")] == [100]
    assert verify(tmp_path, tmp_path, judge=no_judge, expected_head=last.digest).ok


def test_four_processes_append_one_chain_without_gaps(tmp_path: Path) -> None:
    printed = race(APPENDER, str(tmp_path))
    ledger = Ledger.open(tmp_path)
    entries = list(ledger.entries())
    assert [entry.seq for entry in entries] == list(range(100))
    assert {entry.digest for entry in entries} == {digest for each in printed for digest in each}
    assert check_chain(entries, ledger.keeper_public_key, ledger.head) == []


def test_a_job_gets_one_outcome_whoever_races_for_it(tmp_path: Path) -> None:
    printed = race(FINISHER, str(tmp_path))
    assert all(each == printed[0] for each in printed)
    assert len(Ledger.open(tmp_path)) == 20


def test_an_approval_is_used_once_whoever_races_for_it(tmp_path: Path) -> None:
    world = make_world(tmp_path / "campaign", ApproverKey.create_demo(tmp_path / "approver.pem"))
    world.seal()
    world.approve(world.ask())
    now = world.clock.now.isoformat()
    printed = race(SPENDER, str(world.state_dir), SUBJECT.model_dump_json(), now)
    refused = [each for each in printed if each[0].startswith("refused: approval")]
    assert (len(printed), len(refused)) == (4, 3)
    assert len(list(world.ledger.entries("approval_used"))) == 1
