"""Usage: what a process takes of the machine is read from outside of it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import cast

import pytest

from inferproof_remote.sandbox import Sandbox
from inferproof_remote.serving import usage
from inferproof_remote.serving.usage import Usage

MIB = 1 << 20
BUSY = """
kept = bytearray(b"x" * (64 << 20))
print("ready", flush=True)
while True:
    pass
"""


class Box:
    """Stands in for a sandbox that holds one process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def pids(self) -> frozenset[int]:
        return frozenset({self._pid})


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def test_processor_time_and_memory_of_a_busy_process_are_counted(
    busy: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "_FIRST_WINDOW_S", 0.05)
    found = Usage(cast("Sandbox", Box(busy.pid)), (0,))
    deadline = time.monotonic() + 30
    while not found.busiest_cores and time.monotonic() < deadline:
        found.look()
    assert found.busiest_cores
    assert found.busiest_cores > 0
    assert found.cpu_s > 0
    assert 64 * MIB < found.peak_bytes < 256 * MIB


def test_of_what_served_for_a_moment_nothing_is_claimed(busy: subprocess.Popen[bytes]) -> None:
    found = Usage(cast("Sandbox", Box(busy.pid)), (0,))
    found.look()
    assert (found.busiest_cores, found.peak_bytes) == (None, 0)


def test_of_what_is_gone_the_last_figures_stay(busy: subprocess.Popen[bytes]) -> None:
    found = Usage(cast("Sandbox", Box(busy.pid)), (0,))
    found.look()
    before = found.cpu_s
    busy.kill()
    busy.wait()
    found.look()
    assert found.cpu_s == before > 0
