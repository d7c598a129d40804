"""Approvals: bound to one action, candidate, target, place in the chain, time and use."""

from datetime import timedelta
from pathlib import Path

import pytest

from inferproof.core.errors import ApprovalRefused
from inferproof.ledger import approvals
from inferproof.ledger.approvals import Subject
from inferproof.ledger.signing import ApproverKey
from unit.ledger.worlds import CANDIDATE, OTHER_CANDIDATE, SUBJECT, World

OTHERS = [
    Subject(action="deploy", candidate=CANDIDATE, target="local"),
    Subject(action="promote", candidate=OTHER_CANDIDATE, target="local"),
    Subject(action="promote", candidate=CANDIDATE, target="elsewhere"),
]


def test_an_approval_is_asked_for_given_and_used_once(sealed_world: World) -> None:
    ledger, now = sealed_world.ledger, sealed_world.clock.now
    approval_id = sealed_world.ask()
    assert approvals.find_valid(ledger, SUBJECT, now=now).approval_id is None
    sealed_world.approve(approval_id)
    assert approvals.find_valid(ledger, SUBJECT, now=now).approval_id == approval_id
    assert approvals.use(ledger, SUBJECT, now=now).body["approval_id"] == approval_id
    with pytest.raises(ApprovalRefused, match="was used already"):
        approvals.use(ledger, SUBJECT, now=now)


def test_asking_again_returns_the_open_request(sealed_world: World) -> None:
    first = sealed_world.ask()
    assert sealed_world.ask() == first
    sealed_world.approve(first)
    approvals.use(sealed_world.ledger, SUBJECT, now=sealed_world.clock.now)
    assert sealed_world.ask() != first


@pytest.mark.parametrize("other", OTHERS)
def test_an_approval_is_good_for_its_subject_only(sealed_world: World, other: Subject) -> None:
    sealed_world.approve(sealed_world.ask())
    with pytest.raises(ApprovalRefused, match="nobody approved"):
        approvals.use(sealed_world.ledger, other, now=sealed_world.clock.now)


def test_an_approval_expires(sealed_world: World) -> None:
    approval_id = sealed_world.ask()
    sealed_world.approve(approval_id)
    sealed_world.clock.now += timedelta(hours=2)
    with pytest.raises(ApprovalRefused, match="expired"):
        approvals.use(sealed_world.ledger, SUBJECT, now=sealed_world.clock.now)
    assert sealed_world.ask() != approval_id


def test_an_expired_or_answered_or_unknown_request_is_not_answered(sealed_world: World) -> None:
    approval_id = sealed_world.ask()
    with pytest.raises(ApprovalRefused, match=f"waiting: {approval_id}"):
        sealed_world.approve("0" * 32)
    sealed_world.approve(approval_id)
    with pytest.raises(ApprovalRefused, match="approved already"):
        sealed_world.approve(approval_id)
    sealed_world.clock.now += timedelta(hours=2)
    with pytest.raises(ApprovalRefused, match="expired"):
        sealed_world.approve(approval_id)


def test_only_the_key_that_sealed_approves(sealed_world: World, tmp_path: Path) -> None:
    ledger = sealed_world.ledger
    asked = approvals.find_request(ledger, sealed_world.ask(), now=sealed_world.clock.now)
    other = ApproverKey.create_demo(tmp_path / "other.pem")
    with pytest.raises(ApprovalRefused, match="not the key that sealed"):
        approvals.approve(ledger, asked, other)
    assert approvals.find_valid(ledger, SUBJECT, now=sealed_world.clock.now).approval_id is None


def test_an_approval_used_without_a_promotion_is_good_for_that_promotion_only(
    sealed_world: World,
) -> None:
    ledger, outcome = sealed_world.ledger, sealed_world.run_job("job-1")
    approval_id = sealed_world.ask()
    sealed_world.approve(approval_id)
    assert approvals.find_unfinished(ledger, SUBJECT) is None, "not used yet"
    approvals.use(ledger, SUBJECT, now=sealed_world.clock.now)
    sealed_world.clock.now += timedelta(hours=2)
    assert approvals.find_unfinished(ledger, SUBJECT) == approval_id, "it was used in time"
    assert [approvals.find_unfinished(ledger, other) for other in OTHERS] == [None] * len(OTHERS)
    sealed_world.promote(outcome, approval_id)
    assert approvals.find_unfinished(ledger, SUBJECT) is None


def test_an_approval_used_after_it_expired_is_never_unfinished(sealed_world: World) -> None:
    approval_id = sealed_world.ask()
    sealed_world.approve(approval_id)
    sealed_world.clock.now += timedelta(hours=2)
    sealed_world.ledger.append({"kind": "approval_used", "approval_id": approval_id})
    assert approvals.find_unfinished(sealed_world.ledger, SUBJECT) is None
