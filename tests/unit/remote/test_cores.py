"""Cores: the client has its own, replicas have as many as they may have threads, and stay there."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from inferproof_remote.serving.cores import Shares, hold, shares


@pytest.mark.parametrize(
    ("cores", "engines", "client"),
    [
        (range(1), (0,), (0,)),
        (range(2), (0,), (1,)),
        (range(8), (0, 1, 2, 3, 4, 5), (6, 7)),
        (range(64), tuple(range(56)), tuple(range(56, 64))),
    ],
)
def test_the_client_has_cores_of_its_own_where_there_are_two(
    cores: range, engines: tuple[int, ...], client: tuple[int, ...]
) -> None:
    assert shares(cores) == Shares(engines, client)


def test_replicas_have_cores_of_their_own_as_far_as_there_are_enough() -> None:
    found = shares(range(8))
    assert [found.of_replica(n, 2) for n in range(4)] == [(0, 1), (2, 3), (4, 5), (0, 1)]
    assert found.of_replica(0, 64) == found.of_replica(1, 64) == found.engines


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate(b"end\n")


def test_a_process_that_put_itself_elsewhere_is_put_back(child: subprocess.Popen[bytes]) -> None:
    own = min(os.sched_getaffinity(0))
    os.sched_setaffinity(child.pid, os.sched_getaffinity(0))
    hold([child.pid], (own,))
    assert os.sched_getaffinity(child.pid) == {own}
    hold([child.pid, 2**22 + 1], (own,))
