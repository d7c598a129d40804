"""Which GPUs an order holds, what that may cost, and what it did cost."""

import getpass
import hmac
from collections.abc import Callable, Iterable

from pydantic import ValidationError

from inferproof.core.canonical import Json
from inferproof.core.errors import InfrastructureError, NotFound, Unreachable, UsageError
from inferproof.core.lease_facts import LeaseFacts
from inferproof.core.values import Entry
from inferproof.hosts.base import Host
from inferproof.ledger.bodies import Attempt, OutcomeOfJob, parse_body
from inferproof.orders import Order

_SHARED = ("run",)
_HOUR_S = 3600.0


def wish(order: Order, attempt: Attempt) -> dict[str, Json]:
    """Return what the supervisor is told to lease; nothing for an order without GPUs."""
    count, reserved_s = order.gpu_count, attempt.reserved_accelerator_s
    if reserved_s is None:
        return {}
    lease: dict[str, Json] = {
        "gpus": list(order.target.gpus),
        "count": count,
        "mode": "shared" if order.kind in _SHARED else "exclusive",
        "folder": order.target.lease_dir,
        "owner": f"{getpass.getuser()}: {order.files.campaign.name}",
        "held_s": reserved_s / count,
    }
    return {"lease": lease}


async def account(
    host: Host, attempt: Attempt, secret: Callable[[str], str], *, most_s: float
) -> LeaseFacts | None:
    """Return the account that a job's supervisor signed; None if it was to hold nothing.

    An account that was altered is charged in full. One that is not there says nothing of how long
    GPUs were held: they are charged `most_s`, the longest that the job can have had them.

    Raises:
        Unreachable: the machine does not answer now; whoever looks again finds the account.
    """
    reserved_s = attempt.reserved_accelerator_s
    if reserved_s is None:
        return None
    try:
        out = await host.result_dir(attempt.job_id)
        head, _, body = (out / "lease.signed").read_bytes().partition(b"\n")
    except Unreachable:
        raise  # what it held is told when it can be seen again
    except (OSError, NotFound, InfrastructureError):
        return _without_account("unmetered", min(reserved_s, most_s))
    asked, _, signature = head.partition(b" ")
    key = secret(asked.decode(errors="replace")).encode()
    expected = hmac.new(key, b"lease " + asked + body, "sha256").hexdigest()
    if hmac.compare_digest(expected.encode(), signature):
        try:
            return LeaseFacts.model_validate_json(body)
        except ValidationError:
            pass  # a bench of another version
    return _without_account("altered", reserved_s)


def _without_account(why: str, charged_s: float) -> LeaseFacts:
    return LeaseFacts(
        gpus=(why,),
        tokens={},
        mode="exclusive",
        waited_s=0,
        held_s=charged_s,
        beat_s=0,
        is_over=True,
    )


def spent_s(entries: Iterable[Entry]) -> float:
    """Return the accelerator-seconds of jobs that ended, and those that open ones reserve."""
    due: dict[str, float] = {}
    for entry in entries:
        body = parse_body(entry.body)
        if isinstance(body, Attempt) and body.reserved_accelerator_s is not None:
            due[body.job_id] = body.reserved_accelerator_s
        if isinstance(body, OutcomeOfJob) and body.job_id in due:
            due[body.job_id] = body.accelerator_s or 0.0
    return sum(due.values())


def reserved(attempt: Attempt, hours: float | None, entries: Iterable[Entry]) -> Attempt:
    """Return the attempt, reserving no more than the campaign's budget of `hours` leaves.

    Raises:
        UsageError: nothing is left.
    """
    if hours is None or attempt.reserved_accelerator_s is None:
        return attempt
    left_s = hours * _HOUR_S - spent_s(entries)
    if left_s <= 0:
        raise UsageError(
            f"the campaign's budget of {hours:g} accelerator hours is spent, or promised to jobs "
            "that have not ended",
            hint="wait for open jobs or cancel them; else a person raises budget.accelerator_hours "
            "and seals the campaign again",
        )
    most_s = min(left_s, attempt.reserved_accelerator_s)
    return attempt.model_copy(update={"reserved_accelerator_s": most_s})
