"""A machine in trouble hides its own jobs and nothing else; what is not measured is not free."""

import asyncio
import hmac
import json
from pathlib import Path

import pytest

from inferproof import machines
from inferproof.core.errors import InfrastructureError
from inferproof.core.values import JobStatus, Purpose
from inferproof.hosts.local import Local
from inferproof.leasing import account
from inferproof.ledger.bodies import Attempt, dump
from inferproof.pipeline import Keeper
from small_campaign import sealed_on

UNUSABLE = {
    "host": "ssh",
    "address": "192.0.2.1",
    "work": "/work",
    "key": "/no/such/key",  # nothing is asked of any network
}


def attempt(job_id: str, target: str, reserved_s: float | None = None) -> Attempt:
    return Attempt(
        job_id=job_id,
        tool="run",
        purpose=Purpose.PRACTICE,
        candidate=None,
        contract=None,
        target=target,
        request_key=None,
        reserved_accelerator_s=reserved_s,
    )


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    gpu = {"host": "local", "gpus": ["fake-0", "fake-1"], "lease_dir": str(tmp_path / "leases")}
    return sealed_on(tmp_path / "c", {"box": UNUSABLE, "gpu": gpu})


def test_a_target_in_trouble_is_told_and_the_rest_of_the_campaign_answers(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(machines, "LAUNCH_GRACE_S", 0.0)
    keeper.ledger.append(dump(attempt("run-1", "box")))
    keeper.ledger.append(dump(attempt("run-2", "local")))
    status = asyncio.run(keeper.status())
    assert [job.job_id for job in status.open_jobs] == ["run-1"]
    assert "run-1 is out of sight: the key /no/such/key is not on this machine" in status.summary
    stuck, lost = asyncio.run(keeper.jobs())
    assert (stuck.status, lost.status) == (JobStatus.RUNNING, JobStatus.LOST)
    assert "/no/such/key" in stuck.failure
    followed = asyncio.run(keeper.follow("run-1", wait_s=0))
    assert (followed.status, followed.job_id) == (JobStatus.RUNNING, "run-1")


def test_gpus_without_an_account_are_charged_for_as_long_as_they_can_have_been_held(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(machines, "LAUNCH_GRACE_S", 0.0)
    keeper.ledger.append(dump(attempt("run-1", "gpu", reserved_s=1e-9)))
    asyncio.run(keeper.status())
    lease = keeper.evidence("run-1").lease
    assert lease is not None
    assert lease.gpus == ("unmetered",)
    ended = keeper.docket.outcome("run-1")
    assert ended is not None
    assert ended[0].accelerator_s == 1e-9, "no more than it reserved"


def test_a_job_that_a_machine_would_not_begin_is_charged_nothing(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Local, "start", _refuses)
    started = asyncio.run(
        keeper.start("run", candidate=None, target="gpu", purpose=Purpose.PRACTICE, argv=("true",))
    )
    ended = keeper.docket.outcome(started.job_id)
    assert ended is not None
    assert (ended[0].status, ended[0].accelerator_s) == (JobStatus.INFRA, None)


def test_an_account_is_charged_as_signed_in_full_if_altered_and_never_nothing(tmp_path: Path):
    host, secret = Local(tmp_path), "s"
    out = tmp_path / "jobs" / "j1" / "out"
    out.mkdir(parents=True)
    body = json.dumps(
        {
            "gpus": ["fake-0"],
            "tokens": {"fake-0": 1},
            "mode": "shared",
            "waited_s": 0,
            "held_s": 2.5,
            "beat_s": 5,
            "is_over": True,
        }
    )
    signature = hmac.digest(secret.encode(), f"lease asked{body}".encode(), "sha256").hex()

    def charged() -> float:
        asked = account(host, attempt("j1", "gpu", 90.0), lambda _: secret, most_s=7.0)
        lease = asyncio.run(asked)
        assert lease is not None
        return lease.accelerator_s

    assert charged() == 7.0
    (out / "lease.signed").write_text(f"asked {signature}\n{body}")
    assert charged() == 2.5
    (out / "lease.signed").write_text(f"asked {signature}\n{body.replace('2.5', '0.5')}")
    assert charged() == 90.0


async def _refuses(host: Local, request: object) -> None:
    raise InfrastructureError("no room")
