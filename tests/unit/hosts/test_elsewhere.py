"""What comes from another machine is material, never an instruction."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferproof.core.campaign import Target
from inferproof.core.canonical import Json, digest_bytes
from inferproof.core.errors import InfrastructureError, UsageError
from inferproof.core.harmless import harmless
from inferproof.core.values import JobStatus
from inferproof.hosts.base import JobState
from inferproof.hosts.folders import Answer, Look, state_of
from inferproof.hosts.local import Local
from inferproof.hosts.mirror import Mirror
from inferproof.hosts.ssh_route import Hop, route
from inferproof_remote import outbox
from inferproof_remote.blobs import BlobError, Blobs
from inferproof_remote.door import answer
from inferproof_remote.jobs import Jobs, Refused


class Told:
    """A line whose far end says that a job left these files."""

    def __init__(self, files: Sequence[tuple[str, int]], content: bytes = b"x") -> None:
        self._files = [[name, size, 1] for name, size in files]
        self._content = content
        self.asked: list[str] = []

    def ask(
        self, asked: str, fields: Mapping[str, Json], payload: bytes = b"", *, timeout_s: float
    ) -> Answer:
        del payload, timeout_s
        self.asked.append(asked)
        if asked == "left":
            return Answer({"files": self._files})
        pieces = fields["pieces"]
        assert isinstance(pieces, list)
        return Answer({"sizes": [len(self._content)] * len(pieces)}, self._content * len(pieces))

    def close(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    "name",
    [
        *("../x", "/etc/x", "a/../../x", "..", ".", "", "a//b", "a/", "./a", "a\nb", "a\x00b"),
        *("a\x1b[2J", "a\\b", "a/./b", "x" * 2000, "b\u202ea"),
    ],
)
def test_a_file_that_leads_elsewhere_is_never_fetched(tmp_path: Path, name: str):
    line = Told([("result.json", 1), (name, 1)])
    with pytest.raises(InfrastructureError, match="which is refused"):
        asyncio.run(Mirror(line, tmp_path / "mirror").fetched("j1"))
    assert line.asked == ["left"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("files", [[("a", 1 << 40)], [(f"f{n}", 1) for n in range(20_001)]])
def test_more_than_may_be_fetched_is_not(tmp_path: Path, files: list[tuple[str, int]]):
    with pytest.raises(InfrastructureError, match="more than may be fetched"):
        asyncio.run(Mirror(Told(files), tmp_path).fetched("j1"))


@pytest.mark.parametrize("files", [["a", "a"], ["a", "a/b"], ["a/b", "a"]])
def test_names_that_cannot_all_be_files_are_refused(tmp_path: Path, files: list[str]):
    with pytest.raises(InfrastructureError, match="refused"):
        asyncio.run(Mirror(Told([(name, 1) for name in files]), tmp_path).fetched("j1"))


def test_pieces_that_were_not_asked_for_are_not_written(tmp_path: Path):
    line = Told([("result.json", 1)], content=b"x" * 1000)
    with pytest.raises(InfrastructureError, match="other pieces"):
        asyncio.run(Mirror(line, tmp_path / "mirror").fetched("j1"))
    assert not list((tmp_path / "mirror").rglob("result.json"))


def test_an_honest_job_is_fetched_whole_and_what_did_not_change_only_once(tmp_path: Path):
    line = Told([("result.json", 1), ("files/a b.txt", 1)])
    mirror = Mirror(line, tmp_path)
    for _ in range(2):
        folder = asyncio.run(mirror.fetched("j1"))
        found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
        assert found == ["files", "files/a b.txt", "result.json"]
    assert line.asked == ["left", "fetch", "left"]
    assert [path.name for path in tmp_path.iterdir()] == ["j1"]


def test_links_and_devices_that_a_job_left_are_not_what_it_left(tmp_path: Path):
    out = tmp_path / "out"
    (out / "real").mkdir(parents=True)
    (out / "real" / "a").write_text("a")
    (tmp_path / "secret").write_text("s")
    (out / "link").symlink_to(tmp_path / "secret")
    (out / "folder").symlink_to(tmp_path)
    os.mkfifo(out / "pipe")
    assert [left.name for left in outbox.listing(out)] == ["real/a"]
    for name in ("link", "folder/secret", "../secret", "pipe", "real/../../secret", "/etc/passwd"):
        with pytest.raises(OSError, match=r"no file|no regular|symbolic"):
            outbox.read(out, name, offset_bytes=0, limit_bytes=1)
    assert outbox.read(out, "real/a", offset_bytes=0, limit_bytes=9) == b"a"


def jobs_in(root: Path) -> Jobs:
    (root / "jobs").mkdir()
    return Jobs(root=root, python="/nowhere", program=root / "p", program_digest="")


@pytest.mark.parametrize("job_id", ["..", "../x", "a/b", "-x", "", "link", "a\nb", "A", "x" * 65])
def test_a_job_that_is_a_link_or_a_way_out_is_no_job(tmp_path: Path, job_id: str):
    jobs = jobs_in(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "jobs" / "link").symlink_to(tmp_path / "elsewhere")
    for asked in ("look", "stop", "left", "sweep"):
        with pytest.raises(Refused, match="no job"):
            answer(jobs, asked, {"job_id": job_id})


@pytest.mark.parametrize("name", ["../x", "/x", "a/b", "", "-x", ".x", "x\ny"])
def test_a_job_is_told_only_by_a_plain_name(tmp_path: Path, name: str):
    jobs = jobs_in(tmp_path)
    (tmp_path / "jobs" / "j1").mkdir()
    with pytest.raises(Refused, match="not the name of a file"):
        answer(jobs, "tell", {"job_id": "j1", "name": name, "data": {}})
    assert list((tmp_path / "jobs" / "j1").iterdir()) == []


@given(st.text(max_size=20), st.dictionaries(st.text(max_size=8), st.integers() | st.text()))
def test_a_door_refuses_what_it_does_not_know(asked: str, fields: dict[str, object]):
    jobs = Jobs(root=Path("/nowhere"), python="x", program=Path("/nowhere/p"), program_digest="")
    if asked == "ping":
        return
    with pytest.raises(Refused):
        answer(jobs, asked, fields)


def test_a_blob_is_what_its_name_says_or_nothing(tmp_path: Path):
    blobs, data = Blobs(tmp_path), b"content"
    digest = digest_bytes(data)
    with pytest.raises(BlobError, match="arrived as another"):
        blobs.put(digest, b"other")
    with pytest.raises(BlobError, match="not a digest"):
        blobs.add("../x", data, offset_bytes=0, size_bytes=9)
    assert blobs.held_bytes(digest) == 0
    blobs.put(digest, data)
    assert (blobs.held_bytes(digest), blobs.get(digest)) == (None, data)
    (tmp_path / digest).write_bytes(b"altered")
    assert blobs.get(digest) is None
    assert blobs.held_bytes(digest) == 0


def test_pieces_follow_each_other_and_the_whole_is_checked(tmp_path: Path):
    blobs, digest = Blobs(tmp_path), digest_bytes(b"abcd")
    blobs.add(digest, b"ab", offset_bytes=0, size_bytes=4)
    assert blobs.held_bytes(digest) == 2
    with pytest.raises(BlobError, match="2 bytes of"):
        blobs.add(digest, b"cd", offset_bytes=3, size_bytes=4)
    with pytest.raises(BlobError, match="arrived as another"):
        blobs.add(digest, b"xx", offset_bytes=2, size_bytes=4)
    assert blobs.held_bytes(digest) == 0
    for offset in (0, 2):
        blobs.add(digest, b"abcd"[offset : offset + 2], offset_bytes=offset, size_bytes=4)
    assert blobs.get(digest) == b"abcd"


def test_folders_settled_long_ago_or_beyond_the_room_go_and_no_others(tmp_path: Path):
    jobs = jobs_in(tmp_path)
    for index, name in enumerate(("old", "big", "new", "open")):
        folder = tmp_path / "jobs" / name
        folder.mkdir()
        (folder / "log").write_bytes(b"x" * 50_000)
        if name != "open":
            jobs.settle(name, keep_s=1e9, keep_bytes=1 << 30)
            os.utime(folder / "settled", (1e9 + index, 1e9 + index))
    (tmp_path / "jobs" / "link").symlink_to(tmp_path / "jobs" / "open")
    jobs.settle("new", keep_s=1e9, keep_bytes=150_000)
    assert kept(tmp_path) == ["big", "link", "new", "open"]
    jobs.settle("new", keep_s=100, keep_bytes=1 << 30)
    assert kept(tmp_path) == ["link", "new", "open"]


def kept(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "jobs").iterdir())


@given(st.text())
def test_shown_text_does_nothing_to_a_terminal(text: str):
    shown = harmless(text)
    assert all(letter in "\n\t" or ord(letter) >= 32 for letter in shown)
    assert not any(0x7F <= ord(letter) < 0xA0 or ord(letter) == 0x202E for letter in shown)


def test_plain_text_is_shown_as_it_is():
    assert harmless("line 1\n\tüber 日本 🚀\n") == "line 1\n\tüber 日本 🚀\n"


@pytest.mark.parametrize(
    ("rc", "alive", "age_s", "status"),
    [
        (0, None, 0, JobStatus.DONE),
        (143, None, 0, JobStatus.CANCELLED),
        (70, None, 0, JobStatus.FAILED),
        (None, True, 1e6, JobStatus.RUNNING),
        (None, None, 1, JobStatus.QUEUED),
        (None, None, 31, JobStatus.LOST),
        (None, False, 0, JobStatus.LOST),
    ],
)
def test_what_a_folder_says_decides_where_a_job_stands(
    rc: int | None, alive: bool | None, age_s: float, status: JobStatus
):
    look = Look(rc=rc, alive=alive, age_s=age_s, failure="\x1b[2Jwhy", progress={"done": "x"})
    found = state_of(look)
    assert found.status is status
    assert "\x1b" not in found.failure
    assert found.progress is None


def resolved(tmp_path: Path, config: str, **more: object) -> tuple[Hop, ...]:
    (tmp_path / "config").write_text(config)
    entry = {"host": "ssh", "address": "gpu", "work": "/w", "ssh_config": f"{tmp_path}/config"}
    return route(Target.model_validate_json(json.dumps({**entry, **more})))


def test_a_route_is_what_openssh_makes_of_the_users_configuration(tmp_path: Path):
    (tmp_path / "more").write_text("Host gpu\n  HostName 10.1.2.3\n  HostKeyAlias farm\n")
    config = (
        f"Include {tmp_path}/more\nHost gpu\n  User me\n  Port 2200\n  ProxyJump you@hop:23\n"
        "Host hop\n  HostName hop.example\n  IdentityAgent none\n"
    )
    hop, gpu = resolved(tmp_path, config)
    assert (str(hop), hop.label, hop.has_agent) == (
        "you@hop.example:23",
        "[hop.example]:23",
        False,
    )
    assert (str(gpu), gpu.label, gpu.has_agent) == ("me@10.1.2.3:2200", "farm", True)
    key = f"{tmp_path}/more"
    (told,) = resolved(tmp_path, "", user="root", port=2022, key=key)
    assert (str(told), told.keys) == ("root@gpu:2022", (key,))
    with pytest.raises(UsageError, match="is not on this machine"):
        resolved(tmp_path, "", key="/nowhere/key")


def test_a_program_between_us_and_the_machine_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="ProxyCommand"):
        resolved(tmp_path, "Host gpu\n  ProxyCommand touch /tmp/x\n")


def test_jumps_in_a_circle_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="more than 8 machines"):
        resolved(tmp_path, "Host gpu\n  ProxyJump hop\nHost hop\n  ProxyJump gpu\n")


def test_a_local_host_says_the_same_of_a_folder(tmp_path: Path):
    folder = tmp_path / "jobs" / "j1"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text("{}")
    (folder / "rc").write_text("0\n")
    assert asyncio.run(Local(tmp_path).state("j1")) == JobState(status=JobStatus.DONE, rc=0)
