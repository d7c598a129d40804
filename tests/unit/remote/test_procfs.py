"""Facts about real processes."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator

import pytest

from inferproof_remote import procfs


@pytest.fixture
def family() -> Generator[subprocess.Popen[bytes]]:
    """A shell with a child that spins."""
    script = "(while :; do :; done) & wait"
    with subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True) as shell:
        wait_for(lambda: len(procfs.descendants(shell.pid)) == 2)
        yield shell
        os.killpg(shell.pid, signal.SIGKILL)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.002)


def test_descendants_are_the_process_and_all_below(family: subprocess.Popen[bytes]) -> None:
    (child,) = procfs.children(family.pid)
    assert procfs.descendants(family.pid) == {family.pid, child}


def test_run_time_grows_only_while_it_runs(family: subprocess.Popen[bytes]) -> None:
    pids = procfs.descendants(family.pid)
    before = procfs.run_ns(pids)
    wait_for(lambda: sum(procfs.run_ns(pids).values()) > sum(before.values()) + 1_000_000)
    os.killpg(family.pid, signal.SIGSTOP)
    wait_for(lambda: all(map(procfs.is_stopped, pids)))
    stopped = procfs.run_ns(pids)
    time.sleep(0.02)
    assert procfs.run_ns(pids) == stopped


def test_running_process_is_not_stopped(family: subprocess.Popen[bytes]) -> None:
    assert not procfs.is_stopped(family.pid)


def test_gone_process_has_no_facts() -> None:
    with subprocess.Popen(["/bin/true"]) as gone:
        gone.wait()
    assert procfs.threads(gone.pid) == procfs.children(gone.pid) == ()
    assert procfs.run_ns([gone.pid]) == {}
    assert procfs.memory_bytes([gone.pid]) == 0
    assert procfs.is_stopped(gone.pid)


def test_memory_of_this_process_is_counted() -> None:
    before = procfs.memory_bytes([os.getpid()])
    block = bytearray(os.urandom(32 << 20))
    assert procfs.memory_bytes([os.getpid()]) - before > 30 << 20
    del block


def test_tasks_of_this_user_are_counted() -> None:
    assert procfs.tasks_of(os.getuid()) >= 1
    assert procfs.tasks_of(4_000_000_000) == 0
