"""Another machine by SSH, OpenSSH's own server on a loopback address: it does the same work."""

import asyncio
import dataclasses
import io
import json
import os
import signal
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inferproof.cli import main
from inferproof.core.campaign import Target
from inferproof.core.canonical import digest_bytes
from inferproof.core.errors import InfrastructureError, NotFound, Unreachable, UsageError
from inferproof.core.values import JobStatus
from inferproof.hosts import bundle, ssh, ssh_lines, ssh_link
from inferproof.hosts.base import JobRequest, JobState, follow
from inferproof.hosts.bundle import Bundle, build_zipapp
from inferproof.hosts.ssh import Ssh
from inferproof.hosts.ssh_keys import HostKeyRefused
from inferproof_remote import processes
from sshd import Sshd

LIMITS = {"memory_mib": 512, "tmp_mib": 16, "processes": 16, "call_s": 5}
# A verb that says all it has to say in the job's log.
CHATTY = """\
import sys, time
from inferproof_remote import job

def run(job_dir):
    spec = job.read_job(job_dir).spec
    for number in range(int(spec["lines"])):
        sys.stdout.buffer.write(b"line %d\\n" % number)
        sys.stdout.buffer.flush()
        time.sleep(spec["pause_s"])
    sys.stdout.buffer.write(bytes.fromhex(spec["last_hex"]))
    return {}
"""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def host(tmp_path: Path, box: Sshd) -> Iterator[Ssh]:
    made = machine(tmp_path, box)
    yield made
    made.close()


def machine(tmp_path: Path, box: Sshd, **more: object) -> Ssh:
    entry = box.target(tmp_path / "work", python=sys.executable, **more)
    return Ssh("box", target(entry), tmp_path / "state")


def target(entry: Mapping[str, object]) -> Target:
    return Target.model_validate_json(json.dumps(entry))


def name() -> str:
    return f"j-{os.getpid()}-{time.monotonic_ns()}"


def request(job_id: str, *argv: str) -> JobRequest:
    spec = {"argv": list(argv), "limits": LIMITS, "timeout_s": 30}
    return JobRequest(job_id=job_id, verb="run", wall_s=60, spec=spec)


def chatty(job_id: str, *, lines: int, pause_s: float, last: bytes = b"") -> JobRequest:
    spec = {"lines": lines, "pause_s": pause_s, "last_hex": last.hex()}
    return JobRequest(job_id=job_id, verb="run", wall_s=60, spec=spec)


@pytest.fixture
def talking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the verb `run` of every bench be the chatty one."""

    def changed(cache_dir: Path) -> Bundle:
        whole = build_zipapp(cache_dir)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as new, zipfile.ZipFile(whole.path) as old:
            for entry in old.namelist():
                is_verb = entry == "inferproof_remote/run.py"
                new.writestr(entry, CHATTY if is_verb else old.read(entry))
        data = buffer.getvalue()
        return dataclasses.replace(whole, data=data, digest=digest_bytes(data))

    monkeypatch.setattr(ssh, "build_zipapp", changed)


async def ended(host: Ssh, job_id: str) -> JobState:
    states = [state async for state in follow(host, job_id, wait_s=60)]
    return states[-1]


def done(host: Ssh, asked: JobRequest) -> JobState:
    async def scenario() -> JobState:
        await host.start(asked)
        return await ended(host, asked.job_id)

    return asyncio.run(scenario())


def result(host: Ssh, job_id: str) -> dict[str, object]:
    return json.loads((asyncio.run(host.result_dir(job_id)) / "result.json").read_text())


@pytest.mark.zoo
@pytest.mark.parametrize("sessions", [10, 2])
def test_more_jobs_than_one_connection_has_channels_run_at_once(tmp_path: Path, sessions: int):
    ids = [f"{name()}-{number}" for number in range(11)]
    with Sshd(tmp_path / "sshd", sessions=sessions) as box:
        host = machine(tmp_path, box)

        async def one(job_id: str) -> JobState:
            await host.start(request(job_id, "echo", job_id))
            return await ended(host, job_id)

        async def all_of_them() -> list[JobState]:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(11))
            return await asyncio.gather(*map(one, ids))

        assert {state.status for state in asyncio.run(all_of_them())} == {JobStatus.DONE}
        said = [result(host, job_id)["output_tail"] for job_id in ids]
        host.close()
    assert said == [f"{each}\n" for each in ids]
    assert len(list((tmp_path / "work" / "cache").glob("*.pyz"))) == 1


def test_a_connection_cut_and_a_second_server_change_nothing_of_a_job(
    tmp_path: Path, talking: None
):
    del talking
    job_id, log = name(), b""
    with Sshd(tmp_path / "sshd") as box:
        host, other = machine(tmp_path, box), machine(tmp_path, box)

        async def scenario() -> JobState:
            nonlocal log
            await host.start(chatty(job_id, lines=40, pause_s=0.03))
            while log.count(b"\n") < 5:
                log += await host.log(job_id, offset_bytes=len(log), limit_bytes=100)
            box.kill()
            box.start()
            while not (await other.state(job_id)).status.is_final:
                log += await other.log(job_id, offset_bytes=len(log), limit_bytes=100)
            log += await other.log(job_id, offset_bytes=len(log), limit_bytes=10_000)
            return await host.state(job_id)

        state = asyncio.run(scenario())
        other.close()
        host.close()
    assert (state.status, state.rc) == (JobStatus.DONE, 0)
    assert log == b"".join(b"line %d\n" % number for number in range(40))


@pytest.mark.zoo
def test_a_frozen_machine_is_noticed_and_its_jobs_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for module, constant, seconds in (
        (ssh_link, "BEAT_S", 0.1),
        (ssh_link, "SILENCE_S", 0.4),
        (ssh_link, "CONNECT_S", 0.5),
        (ssh_lines, "_PATIENCE_S", 0.5),
        (ssh_lines, "_LONGEST_PAUSE_S", 0.5),
    ):
        monkeypatch.setattr(module, constant, seconds)
    job_id = name()
    with Sshd(tmp_path / "sshd") as box:
        host = machine(tmp_path, box)

        async def scenario() -> JobState:
            await host.start(request(job_id, "echo", "done"))
            box.send(signal.SIGSTOP)
            with pytest.raises(Unreachable):
                await host.state(job_id)
            box.send(signal.SIGCONT)
            return await ended(host, job_id)

        assert asyncio.run(scenario()).status is JobStatus.DONE
        assert result(host, job_id)["output_tail"] == "done\n"
        host.close()


def test_cancel_reaches_everything_that_a_job_started_there(host: Ssh):
    job_id, token = name(), f"77{time.monotonic_ns()}"

    async def scenario() -> JobState:
        await host.start(request(job_id, "sh", "-c", f"setsid sleep {token} & sleep {token}"))
        while not processes.with_environment("INFERPROOF_JOB", job_id):
            assert (await host.state(job_id)).status in (JobStatus.QUEUED, JobStatus.RUNNING)
        return await host.cancel(job_id)

    state = asyncio.run(scenario())
    assert (state.status, state.rc) == (JobStatus.CANCELLED, 143)
    assert processes.with_environment("INFERPROOF_JOB", job_id) == []


def test_a_job_asked_for_twice_runs_once(host: Ssh, tmp_path: Path):
    asked = request(name(), "sh", "-c", "echo once")

    async def scenario() -> JobState:
        await asyncio.gather(host.start(asked), host.start(asked))
        await host.start(asked)
        return await ended(host, asked.job_id)

    assert asyncio.run(scenario()).status is JobStatus.DONE
    with pytest.raises(UsageError, match="exists already"):
        asyncio.run(host.start(request(asked.job_id, "echo", "other")))
    assert len(list((tmp_path / "work" / "jobs").iterdir())) == 1


def test_junk_and_escapes_in_a_log_are_only_shown(host: Ssh, talking: None, tmp_path: Path):
    del talking
    host.close()
    junk = b"\x1b[2J\x1b]0;title\x07\xff\xfe\x00\rover\xe2\x80\xae end\n"
    with Sshd(tmp_path / "sshd") as box:
        host = machine(tmp_path, box)
        asked = chatty(name(), lines=0, pause_s=0, last=junk)
        assert done(host, asked).status is JobStatus.DONE
        text = asyncio.run(host.log_tail(asked.job_id, limit_bytes=2000))
        host.close()
    assert text == "\\x1b[2J\\x1b]0;title\\x07\ufffd\ufffd\\x00\\x0dover\\u202e end\n"


def test_a_host_that_nobody_vouched_for_is_refused_until_a_person_pins_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    campaign = tmp_path / "campaign"
    assert main(["init", "--template", "kernel", "--campaign", str(campaign)]) == 0
    with Sshd(tmp_path / "sshd") as box:
        entry = box.target(tmp_path / "work", python=sys.executable, host_key=None)
        (campaign / "targets.yaml").write_text(json.dumps({"local": {"host": "local"}, "b": entry}))
        doctor = ["doctor", "--target", "b", "--campaign", str(campaign)]
        capsys.readouterr()

        assert main(doctor) == 5
        told = capsys.readouterr().out
        assert f"inferproof doctor --target b --pin {box.fingerprint}" in told
        assert main([*doctor, "--pin", "SHA256:" + "A" * 43]) == 5
        assert "do not connect before you know why" in capsys.readouterr().out
        assert not (tmp_path / "work").exists(), "worked on a machine that was not let in"

        main([*doctor, "--pin", box.fingerprint])
        assert "found    connection" in capsys.readouterr().out
        assert main([*doctor, "--pin", "SHA256:" + "A" * 43]) == 5
        assert f"showed the host key {box.fingerprint}, not SHA256:AAAA" in capsys.readouterr().out
        state = campaign / ".inferproof"
        host = Ssh("b", target(entry), state)
        assert done(host, request(name(), "true")).status is JobStatus.DONE
        host.close()

        box.kill()
        box.new_host_key()
        box.start()
        for more in ([], ["--pin", box.fingerprint]):
            assert main([*doctor, *more]) == 5
            assert "CHANGED" in capsys.readouterr().out
        with pytest.raises(HostKeyRefused, match="CHANGED"):
            asyncio.run(Ssh("b", target(entry), state).state("any"))


def test_a_revoked_host_key_is_refused_whoever_vouches_for_it(tmp_path: Path, box: Sshd):
    public = (box.folder / "host_key.pub").read_text(encoding="ascii")
    (tmp_path / "known").write_text(f"@revoked * {public}", encoding="ascii")
    config = tmp_path / "config"
    config.write_text(f"Host *\n  UserKnownHostsFile {tmp_path / 'known'}\n", encoding="ascii")
    for said in (box.fingerprint, None):
        host = machine(tmp_path, box, host_key=said, ssh_config=str(config))
        with pytest.raises(HostKeyRefused, match="is revoked in"):
            asyncio.run(host.state("any"))


def test_a_sealed_host_key_is_the_only_one_that_counts(tmp_path: Path, box: Sshd):
    host = machine(tmp_path, box, host_key="SHA256:" + "A" * 43)
    with pytest.raises(HostKeyRefused, match="not SHA256:AAAA"):
        asyncio.run(host.state("any"))


def test_a_key_that_does_not_open_is_told_with_what_to_try(tmp_path: Path, box: Sshd):
    stranger = Sshd(tmp_path / "stranger")
    host = machine(tmp_path, box, key=str(stranger.key))
    with pytest.raises(InfrastructureError, match="does not let us in") as told:
        asyncio.run(host.state("any"))
    assert f"ssh -p {box.port}" in told.value.hint


def test_a_machine_behind_another_is_reached_by_the_users_own_configuration(
    tmp_path: Path, box: Sshd
):
    with Sshd(tmp_path / "inner", address="127.0.0.3") as inner:
        known = tmp_path / "known_hosts"
        lines = [
            f"[{each.address}]:{each.port} {(each.folder / 'host_key.pub').read_text()}"
            for each in (box, inner)
        ]
        known.write_text("".join(lines))
        config = tmp_path / "ssh_config"
        (tmp_path / "included").write_text(
            f"Host inner\n  HostName {inner.address}\n  Port {inner.port}\n"
            f"  IdentityFile {inner.key}\n  ProxyJump outer\n"
        )
        config.write_text(
            f"Include {tmp_path}/included\nHost outer\n  HostName {box.address}\n"
            f"  Port {box.port}\n  IdentityFile {box.key}\n"
            f"Host *\n  UserKnownHostsFile {known}\n  IdentitiesOnly yes\n"
        )
        entry = {
            "host": "ssh",
            "address": "inner",
            "ssh_config": str(config),
            "work": str(tmp_path / "work"),
            "python": sys.executable,
        }
        host = Ssh("inner", target(entry), tmp_path / "state")
        asked = request(name(), "sh", "-c", "true")
        assert done(host, asked).status is JobStatus.DONE
        host.close()
        accepted = "Accepted publickey"
        assert accepted in (inner.folder / "log").read_text()


def test_a_big_file_goes_on_where_it_was_cut(host: Ssh, tmp_path: Path):
    big = os.urandom(9 << 20)
    digest = digest_bytes(big)
    partial = tmp_path / "work" / "cache" / "blobs" / f"{digest}.part"
    with pytest.raises(NotFound):
        asyncio.run(host.state("nothing"))  # connects
    partial.parent.mkdir()
    partial.write_bytes(big[: 5 << 20])
    asked = request(name(), "sh", "-c", "sha256sum big | cut -c-64")
    sent = dataclasses.replace(asked, inputs={"candidate/big": big})
    assert done(host, sent).status is JobStatus.DONE
    assert result(host, asked.job_id)["output_tail"] == f"{digest}\n"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"python": "/nowhere/python3"}, "far end closed the line"),
        ({"work": "/proc/nowhere"}, "cannot be used"),
    ],
)
def test_a_machine_that_cannot_work_says_what_it_lacks(
    tmp_path: Path, box: Sshd, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], told: str
):
    monkeypatch.setattr(ssh_lines, "_PATIENCE_S", 0.3)
    entry = {**box.target(tmp_path / "work", python=sys.executable), **change}
    host = Ssh("box", target(entry), tmp_path / "state")
    with pytest.raises(InfrastructureError, match=told):
        asyncio.run(host.state("any"))
    host.close()


def test_a_work_folder_that_others_may_write_to_is_refused(tmp_path: Path, box: Sshd):
    (tmp_path / "work").mkdir(mode=0o777)
    (tmp_path / "work").chmod(0o777)
    host = machine(tmp_path, box)
    with pytest.raises(InfrastructureError, match="others may write") as told:
        asyncio.run(host.state("any"))
    assert "chmod 700" in told.value.hint
    host.close()


@pytest.mark.zoo
def test_an_altered_program_is_never_run_and_no_helper_stays(host: Ssh, tmp_path: Path, box: Sshd):
    with pytest.raises(NotFound):
        asyncio.run(host.state("nothing"))  # brings it
    (program,) = (tmp_path / "work" / "cache").glob("*.pyz")
    program.write_bytes(program.read_bytes() + b"\n")
    with pytest.raises(InfrastructureError, match="not what the keeper put there"):
        asyncio.run(host.start(request(name(), "true")))
    other = machine(tmp_path, box)  # a new line puts it right
    assert done(other, request(name(), "true")).status is JobStatus.DONE
    other.close()
    host.close()
    deadline = time.monotonic() + 10
    while doors := _doors(tmp_path / "work"):
        assert time.monotonic() < deadline, doors


def _doors(work: Path) -> list[str]:
    lines: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if f"\0door\0{work}" in line]


def test_the_boot_program_is_the_one_that_is_linted():
    assert bundle.boot_source().startswith(b'"""Bring the bench')
