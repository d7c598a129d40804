"""Faults in the middle of a load run: the right one is blamed, evidence stays, nothing is left."""

import contextlib
import gzip
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adversarial.engine_zoo import CHEATS, HONEST, LIMITS, TRAFFIC, EngineBench, judged
from inferproof.core.serving_facts import Arm
from inferproof.core.values import Outcome, Verdict
from inferproof.gates import overall
from inferproof.gates.base import ServiceCase

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),
]
LONG = TRAFFIC.model_copy(update={"requests": 120})
QUICK_LIMITS = LIMITS.model_copy(update={"call_s": 3.0, "tmp_mib": 4})
BASELINE = "--max-batch"  # of the embedded engine's command
SMALL_LIMITS = LIMITS.model_copy(update={"memory_mib": 1000})
LEAKS = """
import server
from model import Model

kept = []


class Handler(server.Handler):
    def stream(self, request, body):
        kept.append(bytearray(b"x" * (48 << 20)))
        super().stream(request, body)


server.Handler = Handler
server.main(Model)
"""
FILLS_ITS_DISK = """
import server
from model import Model


class Handler(server.Handler):
    def stream(self, request, body):
        with open("/tmp/cache", "ab") as file:
            file.write(bytes(1 << 20))
        super().stream(request, body)


server.Handler = Handler
server.main(Model)
"""


@pytest.fixture
def bench(tmp_path: Path) -> EngineBench:
    tmp_path.chmod(0o755)
    return EngineBench(tmp_path)


def processes(of: Path) -> dict[int, str]:
    """Return the command lines of what works in a folder or has it on its command line.

    AIPerf and its services write over their command lines and environments, not their folders.
    """
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace")
            folder = str((entry / "cwd").readlink())
        except OSError:
            continue
        if (str(of) in line or folder.startswith(str(of))) and int(entry.name) != os.getpid():
            found[int(entry.name)] = line
    return found


def in_mid_load(work: Path, fault: Callable[[], None], arm: Arm = "candidate") -> threading.Thread:
    """Commit `fault` once the client has told of a first answered request of an arm."""

    def watch() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            told = "".join(path.read_text() for path in work.glob("zoo-*/progress.json"))
            if re.search(rf"on the {arm}, .*: [1-9][0-9]* of [0-9]+ requests", told):
                fault()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def kill_client(work: Path) -> None:
    """Kill AIPerf itself, which leads its services."""
    for pid, line in processes(work).items():
        with contextlib.suppress(ProcessLookupError):
            if "aiperf" in line and os.getpgid(pid) == pid:
                os.kill(pid, signal.SIGKILL)


def engines(work: Path, number: signal.Signals, mark: str = "engine.py") -> None:
    """Signal the engine itself, not the sandbox around it."""
    for pid, line in processes(work).items():
        if mark in line and "replica.sock" not in line:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def decided(case: ServiceCase) -> Verdict:
    return overall(judged(case))[1]


def kept_responses(work: Path) -> int:
    """Return of how many requests of the only load run the responses are kept as evidence."""
    (packed,) = work.glob("zoo-*/out/files/load-*.jsonl.gz")
    with gzip.open(packed, "rt", encoding="utf-8") as lines:
        return sum(bool(json.loads(line)["responses"]) for line in lines)


def leaves_nothing(work: Path) -> bool:
    """Return whether no process and no file of the run is left, AIPerf's own included."""
    if [*work.glob("zoo-*/work")]:
        return False
    deadline = time.monotonic() + 10
    while processes(work):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_killed_client_is_the_benchs_trouble(bench: EngineBench) -> None:
    watcher = in_mid_load(bench.work, lambda: kill_client(bench.work))
    case = bench.measure(HONEST, ("fidelity", "load"), traffic=LONG)
    watcher.join(5)
    verdict = decided(case)
    assert (verdict.gate, verdict.code.value) == ("believability", "infrastructure"), verdict
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert case.evidence.serve
    assert case.evidence.serve.loads[0].exit_code == -signal.SIGKILL
    assert case.evidence.serve.fidelity
    assert 1 <= kept_responses(bench.work) < LONG.requests
    assert leaves_nothing(bench.work)


def test_an_engine_that_is_killed_under_load_has_crashed(bench: EngineBench) -> None:
    watcher = in_mid_load(bench.work, lambda: engines(bench.work, signal.SIGKILL))
    case = bench.measure(HONEST, ("fidelity", "load"), traffic=LONG)
    watcher.join(5)
    verdict = decided(case)
    assert (verdict.outcome, verdict.code.value) == (Outcome.FAIL, "crashed"), verdict
    assert case.evidence.serve
    assert case.evidence.serve.loads[0].failure or case.evidence.serve.loads[0].was_cancelled
    assert leaves_nothing(bench.work)


@pytest.mark.zoo
def test_an_engine_that_hangs_under_load_has_timed_out_and_the_run_is_given_up(
    bench: EngineBench,
) -> None:
    watcher = in_mid_load(bench.work, lambda: engines(bench.work, signal.SIGSTOP))
    began = time.monotonic()
    case = bench.measure(
        HONEST, ("fidelity", "load"), traffic=LONG, limits=QUICK_LIMITS, baseline=True
    )
    watcher.join(5)
    verdict = decided(case)
    assert (verdict.outcome, verdict.code.value) == (Outcome.FAIL, "timed_out"), verdict
    assert time.monotonic() - began < 150, "it waited for requests that nobody answers"
    assert kept(case, "baseline") == LONG.requests
    assert leaves_nothing(bench.work)


@pytest.mark.zoo
def test_an_engine_whose_disk_is_full_is_refused_for_that(bench: EngineBench) -> None:
    overlay = bench.work / "fills"
    overlay.mkdir()
    (overlay / "engine.py").write_text(FILLS_ITS_DISK, encoding="utf-8")
    folder = bench.overlaid(overlay)
    verdict = decided(bench.measure(folder, ("fidelity", "load"), limits=QUICK_LIMITS))
    assert (verdict.outcome, verdict.code.value) == (Outcome.FAIL, "disk_exceeded"), verdict
    assert leaves_nothing(bench.work)


def kept(case: ServiceCase, arm: Arm) -> int:
    """Return how many requests of an arm were answered, by the facts."""
    assert case.evidence.serve
    return sum(run.completed for run in case.evidence.serve.loads if run.arm == arm)


@pytest.mark.zoo
def test_a_candidate_that_dies_in_an_ab_is_refused_and_the_baselines_data_are_kept(
    bench: EngineBench,
) -> None:
    watcher = in_mid_load(bench.work, lambda: engines(bench.work, signal.SIGKILL))
    case = bench.measure(HONEST, ("fidelity", "load"), traffic=LONG, baseline=True)
    watcher.join(5)
    verdict = decided(case)
    assert (verdict.outcome, verdict.code.value) == (Outcome.FAIL, "crashed"), verdict
    assert kept(case, "baseline") == LONG.requests
    assert leaves_nothing(bench.work)


@pytest.mark.zoo
def test_a_baseline_that_dies_in_an_ab_is_the_benchs_trouble_and_the_candidates_data_are_kept(
    bench: EngineBench,
) -> None:
    def fault() -> None:
        engines(bench.work, signal.SIGKILL, BASELINE)

    watcher = in_mid_load(bench.work, fault, "baseline")
    case = bench.measure(HONEST, ("fidelity", "load"), traffic=LONG, baseline=True)
    watcher.join(5)
    verdict = decided(case)
    assert (verdict.outcome, verdict.code.value) == (Outcome.INCONCLUSIVE, "infrastructure")
    assert "baseline" in verdict.reason
    assert kept(case, "candidate") == LONG.requests
    assert leaves_nothing(bench.work)


@pytest.mark.zoo
def test_a_candidate_that_leaks_to_its_limit_in_an_ab_is_refused_for_that(
    bench: EngineBench,
) -> None:
    overlay = bench.work / "leaks"
    overlay.mkdir()
    (overlay / "engine.py").write_text(LEAKS, encoding="utf-8")
    folder = bench.overlaid(overlay)
    case = bench.measure(
        folder, ("fidelity", "load"), traffic=LONG, baseline=True, limits=SMALL_LIMITS
    )
    verdict = decided(case)
    assert (verdict.outcome, verdict.code.value) == (Outcome.FAIL, "memory_exceeded"), verdict
    assert kept(case, "baseline") == LONG.requests
    assert leaves_nothing(bench.work)


@pytest.mark.zoo
def test_a_candidate_that_fails_a_quarter_of_an_abs_requests_is_refused_for_that(
    bench: EngineBench,
) -> None:
    folder = bench.overlaid(CHEATS / "s17-quarter-of-500")
    case = bench.measure(folder, ("fidelity", "load"), traffic=LONG, baseline=True)
    verdict = decided(case)
    assert (verdict.gate, verdict.outcome) == ("believability", Outcome.FAIL), verdict
    assert verdict.code.value == "requests_failed"
    assert kept(case, "baseline") == LONG.requests
    assert 0 < kept(case, "candidate") < LONG.requests
    assert leaves_nothing(bench.work)


def test_a_port_that_others_use_does_not_matter(bench: EngineBench) -> None:
    with socket.create_server(("127.0.0.1", 8000)):
        verdict = decided(bench.measure(HONEST, ("fidelity",)))
    assert verdict.outcome is Outcome.PASS, verdict
