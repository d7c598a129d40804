"""Nobody shares a GPU held for timing, whoever is killed; nobody starves; all is charged."""

import json
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from lease_contest import (
    GPUS,
    Contest,
    LockWatch,
    clean_up,
    kill,
    lives,
    supervisor,
    wait_for,
    wait_until,
)

BEAT_S = 5.0
SLACK_S = 0.1
"""How far one look at the kernel's locks may be from the next on a busy machine."""


def assert_never_two(contest: Contest) -> None:
    assert contest.overlaps() == []


def assert_charged(contest: Contest, watch: LockWatch) -> None:
    """Normal ends are charged what the kernel saw held; killed ones at most a beat more."""
    whole = [turn for turn in contest.turns if turn.lease.is_over and turn.lease.gpus]
    metered_s = sum(turn.lease.accelerator_s for turn in whole)
    held_s = sum(watch.held_s[turn.pid] for turn in whole)
    assert metered_s == pytest.approx(held_s, rel=0.01)
    for turn in contest.turns:
        if turn.was_killed and turn.lease.gpus:
            seen_s, gpus = watch.held_s.get(turn.pid, 0.0), len(turn.lease.gpus)
            charged_s = turn.lease.accelerator_s
            assert seen_s - SLACK_S <= charged_s <= seen_s + gpus * (BEAT_S + SLACK_S)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    clean_up(tmp_path)


@pytest.mark.integration
def test_what_a_killed_supervisor_left_on_a_gpu_is_ended_before_the_next_job_begins(folder: Path):
    contest = Contest(folder, leases=2, kill_share=0, use_s=0.05)
    first = contest.start("one/first", 2, use_s=60)
    wait_until(lambda: len(contest.users()) == 2)
    left = contest.users()[0]
    kill(supervisor(first))
    assert lives(left)
    second = contest.start("two/second", 1)
    wait_for(second / "rc")
    assert (second / "rc").read_text(encoding="utf-8") == "0\n"
    assert not lives(left)
    assert_never_two(contest)


@pytest.mark.integration
def test_the_second_of_two_jobs_waits_and_says_its_place_and_who_holds_the_gpu(folder: Path):
    contest = Contest(folder, leases=2, kill_share=0, use_s=0.3)
    first, second = (contest.start(name, 2) for name in ("one/first", "two/second"))
    wait_for(second / "progress.json")
    told = json.loads((second / "progress.json").read_text(encoding="utf-8"))["message"]
    assert told.startswith("place 1 in the queue for fake-0, fake-1, held by first")
    for folder_of in (first, second):
        wait_for(folder_of / "rc")
    assert_never_two(contest)
    assert [contest.yard.record(gpu).token for gpu in GPUS] == [2, 2]


@pytest.mark.integration
def test_a_job_whose_lease_was_given_away_ends_without_a_result_that_counts(folder: Path):
    contest = Contest(folder, leases=1, kill_share=0, use_s=1.0)
    job = contest.start("one/first", 1)
    wait_until(contest.users)
    (folder / "leases" / "fake-0.lock").unlink()
    wait_for(job / "rc")
    assert (job / "rc").read_text(encoding="utf-8") == "70\n"
    assert "token 1 is not the newest any more" in (job / "failure").read_text(encoding="utf-8")
    assert not (job / "out" / "result.hmac").exists()


@pytest.mark.zoo
@pytest.mark.timeout(900)
def test_five_hundred_leases_with_random_kills_never_overlap_starve_nobody_and_are_charged(
    folder: Path,
):
    contest = Contest(folder, leases=500, kill_share=0.25, use_s=0.6)
    watch = contest.play()
    waits_s = [turn.lease.waited_s for turn in contest.turns if turn.lease.gpus]
    killed = sum(turn.was_killed for turn in contest.turns)
    print(
        f"{contest.given} leases in {len(contest.turns)} jobs, {killed} killed; waits: mean "
        f"{statistics.mean(waits_s):.2f} s, longest {max(waits_s):.2f} s"
    )
    assert killed >= 50
    assert_never_two(contest)
    assert max(waits_s) <= 3 * statistics.mean(waits_s)
    assert_charged(contest, watch)
