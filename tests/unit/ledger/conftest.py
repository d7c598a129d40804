"""Worlds to attack: unsealed, sealed, and one in which a candidate was promoted."""

from pathlib import Path

import pytest

from inferproof.ledger import approvals
from inferproof.ledger.signing import ApproverKey
from unit.ledger.worlds import SUBJECT, World, make_world, note


@pytest.fixture
def empty_world(tmp_path: Path) -> World:
    """Return an unsealed campaign with files and keys."""
    approver = ApproverKey.create_demo(tmp_path / "approver.pem")
    return make_world(tmp_path / "campaign", approver)


@pytest.fixture
def sealed_world(empty_world: World) -> World:
    empty_world.seal()
    return empty_world


@pytest.fixture
def world(sealed_world: World) -> World:
    """Return a campaign in which one candidate was measured, approved and promoted."""
    outcome = sealed_world.run_job("job-1")
    approval_id = sealed_world.ask()
    sealed_world.approve(approval_id)
    approvals.use(sealed_world.ledger, SUBJECT, now=sealed_world.clock.now)
    sealed_world.promote(outcome, approval_id)
    sealed_world.ledger.append(note("try wider tiles"))
    return sealed_world
