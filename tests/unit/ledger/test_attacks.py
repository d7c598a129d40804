"""What an agent with a shell under the same user can try; whoever holds the head sees each.

Every attack may use the keeper's key, which lies beside the ledger. None has the approver's.
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from inferproof.core.canonical import Json
from inferproof.core.values import Entry, Purpose
from inferproof.ledger import approvals
from inferproof.ledger.bodies import UNSIGNED, Approval, Seal, json_body, sign_body
from inferproof.ledger.chain import GENESIS, Severity, entry_bytes, make_entry
from inferproof.ledger.signing import ApproverKey, KeeperKey
from unit.ledger.worlds import (
    CANDIDATE,
    CONTRACT,
    NOW,
    OTHER_CANDIDATE,
    SUBJECT,
    World,
    attempt_body,
    evidence_bytes,
    evidence_of,
    judge,
    make_world,
    outcome_body,
)

LATER = NOW + timedelta(minutes=30)


def write(world: World, entries: list[Entry]) -> None:
    world.ledger.path.write_bytes(b"".join(map(entry_bytes, entries)))


def chained(bodies: list[dict[str, Json]], key: KeeperKey, world: World) -> None:
    """Write a whole new ledger, consistent in itself."""
    entries: list[Entry] = []
    for seq, body in enumerate(bodies):
        prev = entries[-1].digest if entries else GENESIS
        entries.append(make_entry(prev=prev, seq=seq, at=LATER, body=body, sign=key.sign))
    write(world, entries)


def stolen(world: World) -> KeeperKey:
    return KeeperKey.load(world.state_dir / "keeper.key")


def bodies(world: World) -> list[dict[str, Json]]:
    return [dict(json_body(entry)) for entry in world.ledger.entries()]


def own_approver(world: World) -> ApproverKey:
    return ApproverKey.create_demo(world.folder / "own.pem")


def promotion(outcome_seq: int, approval_id: str | None, candidate: str) -> dict[str, Json]:
    return {
        "kind": "promotion",
        "candidate": candidate,
        "contract": "k",
        "outcome_seq": outcome_seq,
        "approval_id": approval_id,
    }


def used_approval(world: World) -> str:
    (entry,) = world.ledger.entries("approval_used")
    return str(entry.body["approval_id"])


def forge_an_entry_with_an_own_key(world: World) -> None:
    own = KeeperKey.load_or_create(world.folder / "own.key")
    last = list(world.ledger.entries())[-1]
    forged = make_entry(
        prev=last.digest,
        seq=last.seq + 1,
        at=LATER,
        body=attempt_body("forged"),
        sign=own.sign,
    )
    with world.ledger.path.open("ab") as file:
        file.write(entry_bytes(forged))


def seal_again_with_an_own_approver(world: World) -> None:
    own = own_approver(world)
    (seal,) = world.ledger.entries("seal")
    body = Seal.model_validate(seal.body).model_copy(
        update={"approver_public_key": own.public_key, "replaces": seal.digest}
    )
    world.ledger.append(sign_body(body, own.sign))


def seal_again_claiming_the_true_approver(world: World) -> None:
    (seal,) = world.ledger.entries("seal")
    body = Seal.model_validate(seal.body).model_copy(update={"replaces": seal.digest})
    world.ledger.append(sign_body(body, own_approver(world).sign))


def put_an_older_seal_in_force_again(world: World) -> None:
    first = next(world.ledger.entries("seal"))
    (world.folder / "campaign.yaml").write_text("stricter\n")
    world.seal()
    (world.folder / "campaign.yaml").write_text("content of campaign.yaml\n")
    world.ledger.append(json_body(first))


def edit_a_sealed_file(world: World) -> None:
    (world.folder / "contracts/kernels/k/reference.py").write_text("tolerance = 1e9\n")


def plant_compiled_code_beside_a_reference(world: World) -> None:
    cache = world.folder / "contracts/kernels/k/__pycache__"
    cache.mkdir()
    (cache / "reference.cpython-311.pyc").write_bytes(b"")


def replay_an_approval_entry(world: World) -> None:
    (approval,) = world.ledger.entries("approval")
    world.ledger.append(json_body(approval))
    world.ledger.append({"kind": "approval_used", "approval_id": used_approval(world)})


def spend_an_approval_twice(world: World) -> None:
    outcome = world.run_job("job-2")
    world.ledger.append(promotion(outcome.seq, used_approval(world), CANDIDATE))


def use_an_approval_for_another_candidate(world: World) -> None:
    outcome = world.run_job("job-2", candidate=OTHER_CANDIDATE)
    world.approve(world.ask())
    used = approvals.use(world.ledger, SUBJECT, now=world.clock.now)
    world.ledger.append(promotion(outcome.seq, str(used.body["approval_id"]), OTHER_CANDIDATE))


def promote_another_candidate_than_was_measured(world: World) -> None:
    world.ledger.append(promotion(2, used_approval(world), OTHER_CANDIDATE))


def promote_on_a_failed_outcome(world: World) -> None:
    outcome = world.run_job("job-2", rc=1)
    world.approve(world.ask())
    used = approvals.use(world.ledger, SUBJECT, now=world.clock.now)
    world.ledger.append(promotion(outcome.seq, str(used.body["approval_id"]), CANDIDATE))


def promote_without_an_approval(world: World) -> None:
    world.ledger.append(promotion(2, None, CANDIDATE))


def sign_an_approval_with_an_own_key(world: World) -> None:
    asked = approvals.find_request(world.ledger, world.ask(), now=world.clock.now)
    plain = asked.model_dump(exclude={"kind", "reason"})
    approval = Approval(**plain, approver_signature=UNSIGNED)
    world.ledger.append(sign_body(approval, own_approver(world).sign))


def approve_another_candidate_under_a_known_id(world: World) -> None:
    (approval,) = world.ledger.entries("approval")
    world.ledger.append({**json_body(approval), "candidate": OTHER_CANDIDATE})


def stretch_the_expiry_of_an_approval(world: World) -> None:
    entries = list(world.ledger.entries())
    changed = [
        {**body, "expires_at": "2036-01-01T00:00:00Z"}
        if body["kind"] in ("approval", "approval_request")
        else body
        for body in map(dict, map(json_body, entries))
    ]
    chained(changed, stolen(world), world)


def approve_by_editing_the_ledger(world: World) -> None:
    lines = world.ledger.path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(CANDIDATE.encode(), OTHER_CANDIDATE.encode())
    world.ledger.path.write_bytes(b"".join(lines))


def delete_the_tail(world: World) -> None:
    write(world, list(world.ledger.entries())[:-1])


def delete_the_whole_ledger(world: World) -> None:
    write(world, [])


def change_an_outcome(world: World) -> None:
    lines = world.ledger.path.read_bytes()
    world.ledger.path.write_bytes(lines.replace(b'"overall":"pass"', b'"overall":"fail"'))


def swap_an_evidence_object(world: World) -> None:
    (outcome,) = world.ledger.entries("outcome")
    path = world.ledger.objects.path(str(outcome.body["evidence"]))
    path.chmod(0o644)
    path.write_bytes(evidence_bytes(evidence_of("job-1", rc=1)))


def show_the_evidence_of_another_job(world: World) -> None:
    evidence = evidence_of("job-1")
    world.ledger.append(attempt_body("job-2"))
    stored = world.ledger.objects.put_bytes(evidence_bytes(evidence))
    verdicts = judge(CONTRACT, evidence)
    world.ledger.append(outcome_body("job-2", stored, verdicts, "pass"))


def show_the_evidence_of_another_candidate(world: World) -> None:
    evidence = evidence_of("job-2")
    world.ledger.append(attempt_body("job-2", OTHER_CANDIDATE))
    stored = world.ledger.objects.put_bytes(evidence_bytes(evidence))
    world.ledger.append(outcome_body("job-2", stored, judge(CONTRACT, evidence), "pass"))


def write_a_verdict_that_the_gate_did_not_give(world: World) -> None:
    failed = evidence_of("job-2", rc=1)
    world.ledger.append(attempt_body("job-2"))
    stored = world.ledger.objects.put_bytes(evidence_bytes(failed))
    passing = judge(CONTRACT, evidence_of("job-2"))
    world.ledger.append(outcome_body("job-2", stored, passing, "pass"))


def pass_without_any_evidence(world: World) -> None:
    world.ledger.append(attempt_body("job-2"))
    world.ledger.append(outcome_body("job-2", None, judge(CONTRACT, evidence_of("x")), "pass"))


def write_a_second_outcome(world: World) -> None:
    (outcome,) = world.ledger.entries("outcome")
    world.ledger.append(json_body(outcome))


def end_a_job_that_never_began(world: World) -> None:
    world.ledger.append(outcome_body("ghost", None))


def arm_a_gate_that_mutants_survived(world: World) -> None:
    world.ledger.append(
        {
            "kind": "arming",
            "contract": CONTRACT,
            "gate_digest": "0" * 64,
            "target": "local",
            "tools_digest": "0" * 64,
            "evidence": None,
            "armed": True,
            "survivors": [],
        }
    )


def edit_a_snapshot(world: World) -> None:
    snapshot = world.state_dir / "candidates" / CANDIDATE
    snapshot.mkdir(parents=True)
    (snapshot / "k.cpp").write_text("something else")
    world.ledger.append(
        {
            "kind": "candidate",
            "candidate": CANDIDATE,
            "files": {"k.cpp": "0" * 64},
            "contract": "k",
            "parent": None,
        }
    )


def regenerate_the_ledger_with_the_stolen_key(world: World) -> None:
    kept = [body for body in bodies(world) if body["kind"] in ("seal", "attempt", "outcome")]
    chained(kept, stolen(world), world)


def regenerate_the_ledger_with_own_keys(world: World) -> None:
    keeper = stolen(world)
    own = own_approver(world)
    (seal,) = world.ledger.entries("seal")
    body = Seal.model_validate(seal.body).model_copy(update={"approver_public_key": own.public_key})
    chained([sign_body(body, own.sign)], keeper, world)


def replace_the_keeper_key(world: World) -> None:
    path = world.state_dir / "keeper.key"
    path.unlink()
    KeeperKey.load_or_create(path)


def use_an_approval_after_it_expired(world: World) -> None:
    approval_id = world.ask()
    world.approve(approval_id)
    world.clock.now += timedelta(hours=2)
    world.ledger.append({"kind": "approval_used", "approval_id": approval_id})


def promote_on_a_practice_outcome(world: World) -> None:
    evidence = evidence_of("job-2").model_copy(update={"purpose": Purpose.PRACTICE})
    stored = world.ledger.objects.put_bytes(evidence_bytes(evidence))
    world.ledger.append({**attempt_body("job-2"), "purpose": "practice"})
    body = outcome_body("job-2", stored, judge(CONTRACT, evidence), "pass")
    outcome = world.ledger.append(body)
    world.approve(world.ask())
    used = approvals.use(world.ledger, SUBJECT, now=world.clock.now)
    world.ledger.append(promotion(outcome.seq, str(used.body["approval_id"]), CANDIDATE))


def pass_over_a_verdict_that_failed(world: World) -> None:
    failed = evidence_of("job-2", rc=1)
    world.ledger.append(attempt_body("job-2"))
    stored = world.ledger.objects.put_bytes(evidence_bytes(failed))
    world.ledger.append(outcome_body("job-2", stored, judge(CONTRACT, failed), "pass"))


def attempt_a_job_twice(world: World) -> None:
    world.ledger.append(attempt_body("job-1"))


ATTACKS: dict[Callable[[World], None], str] = {
    forge_an_entry_with_an_own_key: "entry 8 (attempt): not signed by the campaign's keeper key",
    seal_again_with_an_own_approver: "entry 8 (seal): sealed with another approver key",
    seal_again_claiming_the_true_approver: "the seal's signature is not by its approver key",
    put_an_older_seal_in_force_again: "entry 9 (seal): does not replace the seal in force",
    edit_a_sealed_file: "sealed file contracts/kernels/k/reference.py (changed)",
    plant_compiled_code_beside_a_reference: "reference.cpython-311.pyc (not sealed)",
    replay_an_approval_entry: "entry 9 (approval_used): approval",
    use_an_approval_after_it_expired: "entry 10 (approval_used): approval",
    spend_an_approval_twice: "was spent by entry 6",
    use_an_approval_for_another_candidate: "is for something else",
    promote_another_candidate_than_was_measured: "entry 2 is about another candidate",
    promote_on_a_failed_outcome: "entry 9 says fail, not pass",
    promote_on_a_practice_outcome: "entry 9 was not graded",
    promote_without_an_approval: "entry 8 (promotion): promotes without an approval",
    sign_an_approval_with_an_own_key: "not signed by the campaign's approver key",
    approve_another_candidate_under_a_known_id: "approves something else than was asked for",
    stretch_the_expiry_of_an_approval: "its id does not belong to this place in the chain",
    approve_by_editing_the_ledger: "its content does not match its digest",
    delete_the_tail: "is not in the chain: rewritten or cut off",
    delete_the_whole_ledger: "is not in the chain: rewritten or cut off",
    change_an_outcome: "entry 2 (outcome): its content does not match its digest",
    swap_an_evidence_object: "entry 2 (outcome): object",
    show_the_evidence_of_another_job: "its evidence is of another job",
    show_the_evidence_of_another_candidate: "its evidence is of another candidate",
    write_a_verdict_that_the_gate_did_not_give: "exit says fail (wrong_values)",
    pass_without_any_evidence: "says pass, but nothing was measured",
    pass_over_a_verdict_that_failed: "says pass, but exit said fail",
    write_a_second_outcome: "second outcome of job job-1",
    end_a_job_that_never_began: "which was never attempted",
    attempt_a_job_twice: "second attempt of job job-1",
    arm_a_gate_that_mutants_survived: "says armed, but mutants survived",
    edit_a_snapshot: "k.cpp in snapshot",
    regenerate_the_ledger_with_the_stolen_key: "is not in the chain: rewritten or cut off",
    regenerate_the_ledger_with_own_keys: "is not in the chain: rewritten or cut off",
    replace_the_keeper_key: "is not the sealed keeper key",
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_who_holds_the_head_sees(world: World, attack: Callable[[World], None]) -> None:
    head = world.ledger.head
    assert world.verify(head).ok
    attack(world)
    report = world.verify(head)
    assert not report.ok
    altered = [f for f in report.findings if f.severity is Severity.ALTERED]
    assert any(ATTACKS[attack] in str(finding) for finding in altered)


def test_an_approval_of_another_campaign_is_worth_nothing(world: World, tmp_path: Path) -> None:
    (request,) = world.ledger.entries("approval_request")
    (approval,) = world.ledger.entries("approval")
    elsewhere = make_world(tmp_path / "other", world.approver)
    elsewhere.seal()
    for entry in (request, approval):
        elsewhere.ledger.append(json_body(entry))
    decision = approvals.find_valid(elsewhere.ledger, SUBJECT, now=LATER)
    assert decision.approval_id is None
    assert not elsewhere.verify().ok


def test_only_the_head_shows_a_ledger_written_anew_with_the_stolen_key(world: World) -> None:
    head = world.ledger.head
    regenerate_the_ledger_with_the_stolen_key(world)
    assert world.verify().ok
    assert not world.verify(head).ok
