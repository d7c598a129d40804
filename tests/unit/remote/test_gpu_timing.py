"""From replays to seconds a call: against a launcher that takes a known time for each link."""

from collections.abc import Mapping
from typing import cast

import pytest

from inferproof_remote.gpu_timing import LONGEST, ArmTimer, Cache
from inferproof_remote.stream import Stream

LINK_S = {"real": 50e-6, "null": 30e-6, "write": 5e-6, "flush": 0.0}
FLUSH_S, START_S = 40e-6, 1e-6


class Launcher:
    """Answers with exact times; the host's clock runs slow by a share."""

    def __init__(self, slow: float = 0.0, real_s: float = LINK_S["real"]) -> None:
        self.link_s = {**LINK_S, "real": real_s}
        self.slow = slow
        self.rows: list[Mapping[str, object]] = []

    def ask(self, request: Mapping[str, object], timeout_s: float) -> Mapping[str, object]:
        del timeout_s
        rows = cast("list[dict[str, object]]", request["replays"])
        self.rows += rows
        return {"replays": [self._time(row) for row in rows], "guards": {}, "sums": ""}

    def _time(self, row: Mapping[str, object]) -> dict[str, float]:
        kind, links, cold = cast("tuple[str, int, bool]", row["of"])
        seconds = START_S + links * (self.link_s[kind] + (FLUSH_S if cold else 0.0))
        return {"event_s": seconds, "host_s": seconds * (1 - self.slow)}


def timer(launcher: Launcher, cache: Cache = "warm") -> ArmTimer:
    return ArmTimer(launcher, "a", cache, stream=Stream(b"bits" * 8, cache), limit_s=1.0)


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_a_call_is_the_real_link_less_the_null_link_and_what_that_writes(cache: Cache) -> None:
    measured = timer(Launcher(), cache).time(again=True)
    assert measured.call_s == pytest.approx(25e-6)
    assert measured.nothing_s == pytest.approx(0.0, abs=1e-12)
    assert measured.null_link_s == pytest.approx(30e-6 + (FLUSH_S if cache == "cold" else 0.0))


def test_the_second_clock_is_told_apart() -> None:
    measured = timer(Launcher(slow=0.1)).time(again=False)
    assert measured.call_by_host_s == pytest.approx(0.9 * 25e-6)


def test_long_calls_have_few_links_and_short_ones_many() -> None:
    slow, fast = timer(Launcher(real_s=1.0)).links, timer(Launcher(real_s=1e-9)).links
    assert slow[1] < 20
    assert LONGEST * 0.9 < fast[1] <= LONGEST
    assert all(2 <= short < long for short, long in (slow, fast))


def test_only_the_long_real_replay_keeps_its_watched_link() -> None:
    launcher = Launcher()
    arm = timer(launcher)
    launcher.rows.clear()
    _, watched = arm.time_watched({"y": 0})
    kept = [row for row in launcher.rows if row["keep"]]
    assert [row["of"] for row in kept] == [["real", arm.links[1], False]]
    assert kept[0]["watched"] == watched.link
    assert 1 <= watched.link <= arm.links[1]


def test_no_key_comes_twice() -> None:
    launcher = Launcher()
    arm = timer(launcher)
    for _ in range(20):
        arm.time(again=True)
    keys = [row["key"] for row in launcher.rows]
    assert len(set(keys)) == len(keys)
