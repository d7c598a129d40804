import fcntl
import json
import os
import signal
from pathlib import Path

import pytest

from inferproof_remote import lease_records, leases
from inferproof_remote.incidents import BenchError
from inferproof_remote.job import JobFormatError
from inferproof_remote.lease_records import Record, Ticket
from inferproof_remote.leases import Lease, Place, Wish, Yard

HELD_S = 60.0


def ticket(number: int, *gpus: str, exclusive: bool = True) -> Ticket:
    return Ticket(number=number, job=f"j{number}", gpus=gpus, exclusive=exclusive)


def wish(folder: Path, *gpus: str, count: int = 1, exclusive: bool = True) -> Wish:
    return Wish(
        gpus=gpus, count=count, exclusive=exclusive, folder=folder, owner="test", held_s=HELD_S
    )


def placed(yard: Yard, job_id: str, asked: Wish) -> Place:
    place = yard.enter(job_id, asked)
    assert place is not None
    return place


def granted(yard: Yard, job_id: str, asked: Wish) -> Lease:
    lease = yard.grant(placed(yard, job_id, asked), asked)
    assert lease is not None
    return lease


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "leases"


@pytest.fixture
def dead_holder(folder: Path) -> str:
    """Have a process take a lease of fake-0 and a place behind it, and be killed with both."""
    child = os.fork()
    if child == 0:
        yard, asked = Yard(folder), wish(folder, "fake-0")
        granted(yard, "j-dead", asked)
        placed(yard, "j-waiting", asked)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    return "j-dead"


def test_who_came_earlier_and_wants_the_same_gpu_is_ahead():
    queue = (ticket(1, "a"), ticket(2, "b"), ticket(3, "a", "b"), ticket(4, "a"))
    assert [each.number for each in lease_records.ahead(queue[3], queue)] == [1, 3]
    assert lease_records.ahead(queue[1], queue) == ()


def test_who_can_share_a_gpu_waits_only_for_who_cannot():
    first, alone, last = ticket(1, "a", exclusive=False), ticket(2, "a"), ticket(3, "a")
    last = ticket(3, "a", exclusive=False)
    assert lease_records.ahead(last, (first, alone, last)) == (alone,)
    assert lease_records.ahead(last, (first, last)) == ()


def test_an_exclusive_token_is_old_once_any_other_was_given():
    assert lease_records.is_newest(Record(token=3, exclusive_token=3), 3, exclusive=True)
    assert not lease_records.is_newest(Record(token=4, exclusive_token=3), 3, exclusive=True)


def test_a_shared_token_is_old_once_an_exclusive_one_was_given():
    assert lease_records.is_newest(Record(token=5, exclusive_token=2), 3, exclusive=False)
    assert not lease_records.is_newest(Record(token=5, exclusive_token=4), 3, exclusive=False)
    assert not lease_records.is_newest(Record(), 3, exclusive=False)


def test_a_gpu_that_is_held_is_given_to_the_oldest_once_it_is_free(folder: Path):
    yard, asked = Yard(folder), wish(folder, "fake-0")
    lease = granted(yard, "j-1", asked)
    second, third = placed(yard, "j-2", asked), placed(yard, "j-3", asked)
    assert yard.grant(second, asked) is None
    lease.release()
    assert yard.grant(third, asked) is None
    next_one = yard.grant(second, asked)
    assert next_one is not None
    assert next_one.tokens == {"fake-0": 2}


def test_several_gpus_are_given_together_or_not_at_all(folder: Path):
    yard, both = Yard(folder), wish(folder, "fake-0", "fake-1", count=2)
    lease = granted(yard, "j-1", wish(folder, "fake-1"))
    pair = placed(yard, "j-2", both)
    assert yard.grant(pair, both) is None
    assert yard.record("fake-0").token == 0
    lease.release()
    given = yard.grant(pair, both)
    assert given is not None
    assert given.gpus == ("fake-0", "fake-1")


def test_one_of_several_gpus_is_the_first_that_is_free(folder: Path):
    yard, any_one = Yard(folder), wish(folder, "fake-0", "fake-1")
    assert granted(yard, "j-1", any_one).gpus == ("fake-0",)
    assert granted(yard, "j-2", any_one).gpus == ("fake-1",)
    assert yard.grant(placed(yard, "j-3", any_one), any_one) is None


def test_shared_holders_come_together_and_an_exclusive_one_after_them(folder: Path):
    yard, shared = Yard(folder), wish(folder, "fake-0", exclusive=False)
    both = [granted(yard, f"j-{number}", shared) for number in range(2)]
    alone = placed(yard, "j-alone", wish(folder, "fake-0"))
    assert yard.grant(alone, wish(folder, "fake-0")) is None
    for lease in both:
        assert lease.is_good()
        lease.release()
    assert yard.grant(alone, wish(folder, "fake-0")) is not None


def test_what_a_killed_holder_held_is_free_at_once_and_its_job_is_named(
    folder: Path, dead_holder: str
):
    yard, asked = Yard(folder), wish(folder, "fake-0")
    assert yard.queue() == ()
    lease = granted(yard, "j-next", asked)
    assert lease.tokens == {"fake-0": 2}
    orphans = yard.orphans(lease)
    assert [orphan.job for orphan in orphans] == [dead_holder]
    yard.forget(lease.gpus, orphans)
    assert yard.orphans(lease) == ()


def test_a_lease_whose_folder_was_deleted_does_not_hold(folder: Path):
    yard, asked = Yard(folder), wish(folder, "fake-0")
    lease = granted(yard, "j-1", asked)
    assert lease.is_good()
    (folder / "fake-0.lock").unlink()
    assert not lease.is_good()
    other = granted(yard, "j-2", asked)
    assert other.is_good()
    assert not lease.is_good()


def test_a_lock_is_not_inherited_by_another_program(folder: Path):
    granted(Yard(folder), "j-1", wish(folder, "fake-0"))
    opened = [Path(f"/proc/self/fd/{each.name}") for each in Path("/proc/self/fd").iterdir()]
    held = [
        path
        for path in opened
        if path.is_symlink() and str(path.readlink()).startswith(str(folder))
    ]
    assert held
    assert not any(os.get_inheritable(int(path.name)) for path in held)


def test_a_folder_that_others_may_write_to_is_refused(folder: Path):
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(BenchError, match="everybody may write there"):
        Yard(folder)


def test_a_link_in_place_of_the_folder_is_refused(folder: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BenchError, match="is no folder"):
        Yard(folder)


HOLDER = {
    "owner": "o",
    "job": "j",
    "pid": 1,
    "start_ticks": 1,
    "token": 1,
    "mode": "shared",
    "since": 1,
    "until": 2.0,
}
RECORD = {"token": 1, "exclusive_token": 0, "mean_held_s": None, "holders": [HOLDER]}
FOREIGN: list[object] = [
    [],
    {},
    "x",
    {**RECORD, "more": 1},
    {**RECORD, "token": "1"},
    {**RECORD, "mean_held_s": "1"},
    {**RECORD, "holders": {}},
    {**RECORD, "holders": [1]},
    {**RECORD, "holders": [{**HOLDER, "more": 1}]},
    {**RECORD, "holders": [{**HOLDER, "pid": None}]},
    {key: value for key, value in RECORD.items() if key != "holders"},
]


@pytest.mark.parametrize("text", ["{", "\x00", *map(json.dumps, FOREIGN)])
def test_a_damaged_or_foreign_record_is_told_and_not_guessed(folder: Path, text: str):
    yard = Yard(folder)
    (folder / "fake-0.json").write_text(text)
    with pytest.raises(BenchError, match=r"fake-0.json was damaged, or written by another version"):
        granted(yard, "j-1", wish(folder, "fake-0"))


def test_a_record_as_this_version_writes_it_is_read(folder: Path):
    yard = Yard(folder)
    (folder / "fake-0.json").write_text(json.dumps(RECORD))
    assert granted(yard, "j-1", wish(folder, "fake-0")).tokens == {"fake-0": 2}


def test_a_foreign_ticket_that_is_held_is_told_and_one_that_is_not_is_removed(folder: Path):
    yard, asked = Yard(folder), wish(folder, "fake-0")
    foreign = folder / "tickets" / "000000000000.json"
    foreign.write_text('{"number": 0}')
    granted(yard, "j-1", asked).release()
    assert not foreign.exists()
    foreign.write_text('{"number": 0}')
    with foreign.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BenchError, match="written by another version"):
            granted(yard, "j-2", asked)


def test_what_is_used_never_looks_old_enough_to_be_swept_away(folder: Path):
    """System cleaners remove what nobody touched for weeks; a service holds its GPU for longer."""
    yard, asked = Yard(folder), wish(folder, "fake-0")
    lease = granted(yard, "j-1", asked)
    names = ("fake-0.lock", "fake-0.json")
    for name in names:
        os.utime(folder / name, (0, 0))
    assert lease.is_good()
    assert all((folder / name).stat().st_mtime > 0 for name in names)
    os.utime(folder / "queue.lock", (0, 0))
    placed(yard, "j-2", asked)
    assert (folder / "queue.lock").stat().st_mtime > 0


@pytest.mark.parametrize(
    "change",
    [
        {"gpus": []},
        {"count": 3},
        {"count": 0},
        {"mode": "mine"},
        {"gpus": ["../x"]},
        {"gpus": [""]},
    ],
)
def test_a_wish_in_another_form_is_refused(change: dict[str, object]):
    asked = {"gpus": ["fake-0", "fake-1"], "count": 1, "mode": "shared", **change}
    with pytest.raises(JobFormatError):
        leases.wish_of({"lease": asked}, 60)


def test_a_job_without_a_wish_leases_nothing():
    assert leases.wish_of({}, 60) is None
    assert leases.wish_of({"lease": None}, 60) is None


def test_a_lease_lasts_no_longer_than_its_job(folder: Path):
    asked = {"gpus": ["fake-0"], "count": 1, "mode": "shared", "held_s": 100.0}
    found = leases.wish_of({"lease": json.loads(json.dumps(asked))}, 60)
    assert found is not None
    assert found.held_s == 60


def test_what_is_damaged_meanwhile_keeps_nobody_from_letting_go(folder: Path):
    yard, asked = Yard(folder), wish(folder, "fake-0")
    lease = granted(yard, "j-1", asked)
    (folder / "fake-0.json").write_text("{")
    assert lease.release() >= lease.since_s
    (folder / "fake-0.json").unlink()
    assert granted(yard, "j-2", asked).is_good()
