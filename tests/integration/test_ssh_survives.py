"""Jobs on another machine outlive whatever happens to the line, to its server and to ours."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from inferproof.core.errors import Unreachable
from inferproof.core.reports import JobReport
from inferproof.core.values import JobStatus, Outcome, Purpose
from inferproof.pipeline import Keeper
from inferproof_remote import cgroups, processes
from small_campaign import WRONG, cpp_candidate, python_candidate, sealed_on
from sshd import Sshd

ROUNDS = 50
LINES = 30
ROUND_S = 90.0
SERVER = """
import asyncio, json, sys
from pathlib import Path
from inferproof.core.values import Purpose
from inferproof.pipeline import Keeper

async def main():
    keeper = Keeper.open(Path(sys.argv[1]))
    started = await keeper.start(
        "run", candidate=None, target="box", purpose=Purpose.PRACTICE,
        request_key=sys.argv[2], argv=tuple(json.loads(sys.argv[3])))
    print(started.job_id, flush=True)
    report = await keeper.follow(started.job_id, wait_s=80)
    print(report.status.value, flush=True)

asyncio.run(main())
"""


@dataclass(frozen=True)
class Round:
    """One job, and what happens to it."""

    key: str
    harm: str
    after_s: float
    down_s: float


class Scene:
    """A campaign whose target is a machine that is about to be mistreated."""

    def __init__(self, tmp_path: Path) -> None:
        self.box = Sshd(tmp_path / "sshd")
        self.work = tmp_path / "work"
        self.campaign = tmp_path / "campaign"
        entry = self.box.target(self.work, python=sys.executable, threads=1)
        sealed_on(self.campaign, {"box": entry})

    def server(self, key: str) -> "subprocess.Popen[str]":
        shell = f"for i in $(seq {LINES}); do echo {key} $i; sleep 0.05; done; exit 7"
        argv = json.dumps(["sh", "-c", shell])
        return subprocess.Popen(
            [sys.executable, "-c", SERVER, str(self.campaign), key, argv],
            stdout=subprocess.PIPE,
            text=True,
        )

    def keeper(self) -> Keeper:
        return Keeper.open(self.campaign)


def sshd_dies(scene: Scene, server: "subprocess.Popen[str]", down_s: float) -> bool:
    del server
    scene.box.kill()
    time.sleep(down_s)  # how long the machine is away is what is drawn
    scene.box.start()
    return False


def server_dies(scene: Scene, server: "subprocess.Popen[str]", down_s: float) -> bool:
    del scene, down_s
    server.kill()
    return True


def both_die(scene: Scene, server: "subprocess.Popen[str]", down_s: float) -> bool:
    server.kill()
    return sshd_dies(scene, server, down_s) or True


def machine_freezes(scene: Scene, server: "subprocess.Popen[str]", down_s: float) -> bool:
    del server
    scene.box.send(signal.SIGSTOP)
    time.sleep(down_s)
    scene.box.send(signal.SIGCONT)
    return False


HARMS: Mapping[str, Callable[[Scene, "subprocess.Popen[str]", float], bool]] = {
    "sshd killed": sshd_dies,
    "server killed": server_dies,
    "both killed": both_die,
    "machine frozen": machine_freezes,
}


def played(scene: Scene, each: Round) -> str:
    """Play one round and return its job's id, once a server has followed it to its end."""
    server = scene.server(each.key)
    assert server.stdout is not None
    job_id = server.stdout.readline().strip()
    assert job_id, each
    time.sleep(each.after_s)  # the moment is what is drawn
    is_gone = HARMS[each.harm](scene, server, each.down_s)
    if is_gone:
        server.communicate(timeout=ROUND_S)
        server = scene.server(each.key)
    told, _ = server.communicate(timeout=ROUND_S)
    assert told.splitlines()[-1] == "done", (each, told)
    if is_gone:
        assert told.splitlines()[0] == job_id, "the job was started once more"
    return job_id


def is_whole(scene: Scene, each: Round, job_id: str) -> None:
    keeper = scene.keeper()
    facts = keeper.evidence(job_id).run
    assert facts is not None
    assert facts.rc == 7
    assert facts.output_tail.splitlines() == [f"{each.key} {n}" for n in range(1, LINES + 1)]
    for kind in ("attempt", "outcome"):
        found = [entry for entry in keeper.ledger.entries(kind) if entry.body["job_id"] == job_id]
        assert len(found) == 1, (each, kind, len(found))
    assert processes.with_environment("INFERPROOF_JOB", job_id) == []
    assert cgroups.cleanup(f"{job_id}.") == ()


def nothing_is_left(scene: Scene) -> None:
    """Return once no helper and no supervisor of the work folder runs any more."""
    deadline = time.monotonic() + 20
    while left := _about(scene.work):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def _about(work: Path) -> list[str]:
    lines: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if str(work) in line]


@pytest.mark.zoo
@pytest.mark.timeout(2400)
def test_no_harm_at_any_moment_loses_or_doubles_a_job(tmp_path: Path):
    scene, draw = Scene(tmp_path), random.Random()
    seed = draw.randrange(1 << 32)
    draw.seed(seed)
    print("seed", seed)
    with scene.box:
        for number in range(ROUNDS):
            harm = draw.choice(list(HARMS))
            down_s = draw.choice([draw.uniform(0, 0.5), draw.uniform(0.5, 11)])
            each = Round(f"round-{number}", harm, draw.uniform(0, 1.6), down_s)
            is_whole(scene, each, played(scene, each))
        keeper = scene.keeper()
        counts = [len(list(keeper.ledger.entries(kind))) for kind in ("attempt", "outcome")]
        assert counts == [ROUNDS, ROUNDS]
        assert keeper.verify(keeper.head()).ok
        nothing_is_left(scene)


def test_a_job_whose_machine_and_server_both_die_ends_once_and_whole(tmp_path: Path):
    scene = Scene(tmp_path)
    with scene.box:
        each = Round("both", "both killed", 0.3, 0.2)
        is_whole(scene, each, played(scene, each))
        nothing_is_left(scene)


@pytest.mark.zoo
def test_a_kernel_is_judged_there_as_it_is_here(tmp_path: Path):
    scene = Scene(tmp_path)
    keeper = scene.keeper()
    good = keeper.submit_candidate(cpp_candidate(tmp_path / "good")).digest
    wrong = keeper.submit_candidate(python_candidate(tmp_path / "wrong", WRONG)).digest
    with scene.box:
        for candidate, overall in ((good, Outcome.PASS), (wrong, Outcome.FAIL)):
            reports = [checked(keeper, candidate, target) for target in ("box", "local")]
            assert [report.overall for report in reports] == [overall, overall]
            there, here = ([(v.gate, v.outcome, v.code) for v in r.verdicts] for r in reports)
            assert there == here
        evidence = keeper.evidence(reports[0].job_id)
    assert evidence.machine is not None
    assert evidence.machine.executable == sys.executable
    assert keeper.verify(keeper.head()).ok


def checked(keeper: Keeper, candidate: str, target: str) -> JobReport:
    async def scenario() -> JobReport:
        started = await keeper.start(
            "check_numerics", candidate=candidate, target=target, purpose=Purpose.GRADED
        )
        return await keeper.follow(started.job_id, wait_s=90)

    report = asyncio.run(scenario())
    assert report.status is JobStatus.DONE, report
    return report


def test_a_wrong_kernel_is_refused_there_with_the_machine_on_record(tmp_path: Path):
    scene = Scene(tmp_path)
    keeper = scene.keeper()
    wrong = keeper.submit_candidate(python_candidate(tmp_path / "wrong", WRONG)).digest
    with scene.box:
        report = checked(keeper, wrong, "box")
    assert report.overall is Outcome.FAIL
    machine = keeper.evidence(report.job_id).machine
    assert machine is not None
    assert machine.executable == sys.executable


def test_a_machine_that_is_away_is_out_of_sight_and_its_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("inferproof.hosts.ssh_lines._PATIENCE_S", 0.2)
    monkeypatch.setattr("inferproof.hosts.ssh_lines._LONGEST_PAUSE_S", 0.2)
    scene = Scene(tmp_path)
    keeper = scene.keeper()

    async def begun() -> str:
        started = await keeper.start(
            "run", candidate=None, target="box", purpose=Purpose.PRACTICE, argv=("echo", "x")
        )
        return started.job_id

    with scene.box:
        job_id = asyncio.run(begun())
        scene.box.kill()
        away = asyncio.run(keeper.report(job_id))
        assert (away.status, away.overall) == (JobStatus.RUNNING, None)
        assert "out of sight" in away.progress_message
        with pytest.raises(Unreachable):
            asyncio.run(begun())
        assert len(list(keeper.ledger.entries("attempt"))) == 1, "recorded what could not begin"
        assert list(keeper.ledger.entries("outcome")) == []
        scene.box.start()
        assert asyncio.run(keeper.follow(job_id, wait_s=30)).status is JobStatus.DONE
