"""Verify on honest ledgers: what is fine, what is only told, and what is not."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from inferproof.core.canonical import Json, digest_bytes
from inferproof.core.errors import LedgerError, NotFound, UsageError
from inferproof.core.evidence import BuildFacts, Evidence
from inferproof.core.values import Outcome, Reason, Verdict
from inferproof.ledger.bodies import json_body
from inferproof.ledger.chain import GENESIS, Severity
from inferproof.ledger.store import Ledger
from inferproof.ledger.verify import verify
from unit.ledger.worlds import (
    CANDIDATE,
    CONTRACT,
    GATE,
    World,
    attempt_body,
    evidence_bytes,
    evidence_of,
    judge,
    note,
    outcome_body,
)


def test_an_honest_ledger_verifies_without_a_finding(world: World) -> None:
    report = world.verify(world.ledger.head)
    assert report.findings == ()
    assert (report.ok, report.entries, report.head) == (True, 8, world.ledger.head)


def test_an_older_head_of_the_same_chain_verifies(world: World) -> None:
    assert world.verify(world.ledger.entry(2).digest).ok
    assert world.verify(GENESIS).ok


def test_a_copy_without_the_keeper_key_verifies(world: World) -> None:
    (world.state_dir / "keeper.key").unlink()
    assert world.verify(world.ledger.head).findings == ()


def test_a_failed_candidate_and_a_running_job_are_no_findings(sealed_world: World) -> None:
    sealed_world.run_job("failed", rc=1)
    sealed_world.ledger.append(attempt_body("running"))
    assert sealed_world.verify().findings == ()


def test_a_torn_tail_is_told_before_and_after_its_repair(world: World) -> None:
    head = world.ledger.head
    with world.ledger.path.open("ab") as file:
        file.write(b'{"at":"2026')
    before = world.verify(head)
    assert before.ok
    assert [finding.severity for finding in before.findings] == [Severity.NOTICE]
    world.ledger.append(note("after"))
    after = world.verify(head)
    assert after.ok
    assert "torn tail of 11 bytes" in after.findings[0].what


def test_a_verdict_by_another_gate_is_told_and_is_not_tampering(world: World) -> None:
    def newer(contract: str, evidence: Evidence) -> Sequence[Verdict]:
        return [
            verdict.model_copy(
                update={"gate_digest": digest_bytes(b"newer"), "outcome": Outcome.FAIL}
            )
            for verdict in judge(contract, evidence)
        ]

    report = verify(world.state_dir, world.folder, judge=newer, expected_head=world.ledger.head)
    assert report.ok
    (finding,) = report.findings
    assert finding.severity is Severity.OLDER_GATE
    assert (finding.seq, finding.kind) == (2, "outcome")
    assert finding.what == "exit: judged by an older gate; the present gate says fail"


def test_a_gate_that_came_later_is_told_as_not_having_judged(world: World) -> None:
    def more(contract: str, evidence: Evidence) -> Sequence[Verdict]:
        (verdict,) = judge(contract, evidence)
        return [verdict, verdict.model_copy(update={"gate": "new"})]

    report = verify(world.state_dir, world.folder, judge=more)
    assert report.ok
    assert [finding.what for finding in report.findings] == ["new: has not judged this evidence"]


def test_a_pass_that_cannot_be_judged_again_is_no_pass(world: World) -> None:
    def lost(contract: str, evidence: Evidence) -> Sequence[Verdict]:
        raise NotFound(f"no contract {contract}")

    report = verify(world.state_dir, world.folder, judge=lost)
    assert not report.ok
    assert "cannot be judged again: no contract" in report.findings[0].what


def test_the_same_gate_that_says_something_else_is_alteration(world: World) -> None:
    def stricter(contract: str, evidence: Evidence) -> Sequence[Verdict]:
        (verdict,) = judge(contract, evidence)
        return [verdict.model_copy(update={"outcome": Outcome.FAIL})]

    report = verify(world.state_dir, world.folder, judge=stricter)
    assert not report.ok
    assert report.findings[0].what.startswith("exit says fail")


def test_a_promotion_needs_its_approval_unless_the_campaign_asks_for_none(
    sealed_world: World,
) -> None:
    outcome = sealed_world.run_job("job-1")
    sealed_world.ledger.append(
        {
            "kind": "promotion",
            "candidate": CANDIDATE,
            "contract": CONTRACT,
            "outcome_seq": outcome.seq,
            "approval_id": None,
        }
    )
    assert not sealed_world.verify().ok
    report = verify(
        sealed_world.state_dir, sealed_world.folder, judge=judge, approval_required=False
    )
    assert report.findings == ()


def test_an_unsealed_ledger_is_told(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    ledger.append(note("a"))
    report = verify(tmp_path, tmp_path, judge=judge, expected_head=ledger.head)
    assert report.ok
    assert "not sealed" in report.findings[0].what
    (tmp_path / "keeper.key").unlink()
    assert not verify(tmp_path, tmp_path, judge=judge).ok


def test_evidence_of_a_missing_or_foreign_kind_is_named(sealed_world: World) -> None:
    ledger = sealed_world.ledger
    ledger.append(attempt_body("a"))
    ledger.append(outcome_body("a", digest_bytes(b"never stored")))
    ledger.append(attempt_body("b"))
    ledger.append(outcome_body("b", ledger.objects.put_bytes(b"not evidence")))
    found = {finding.seq: finding.what for finding in sealed_world.verify().findings}
    assert "No such file" in found[2]
    assert "is not evidence" in found[4]


@pytest.mark.parametrize("field", ["artefacts", "arming"])
def test_an_object_that_evidence_rests_on_and_that_is_gone_is_named(
    sealed_world: World, field: str
) -> None:
    ledger = sealed_world.ledger
    stored = ledger.objects.put_bytes(b"log")
    value = {"log": stored} if field == "artefacts" else stored
    evidence = evidence_of("a").model_copy(update={field: value})
    ledger.append(attempt_body("a"))
    ledger.append(outcome_body("a", ledger.objects.put_bytes(evidence_bytes(evidence))))
    assert sealed_world.verify().ok
    ledger.objects.path(stored).unlink()
    (finding,) = sealed_world.verify().findings
    assert finding.seq == 2


def test_wrong_usage_is_a_clear_error(world: World, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a head"):
        world.verify("abc")
    with pytest.raises(LedgerError, match="there is no ledger at"):
        verify(tmp_path / "none", tmp_path, judge=judge)


def test_verify_writes_nothing(world: World) -> None:
    def state() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in world.folder.rglob("*") if p.is_file()}

    before = state()
    world.verify(world.ledger.head)
    assert state() == before


def test_damaged_lines_are_named_by_their_number(world: World) -> None:
    lines = world.ledger.path.read_bytes().splitlines(keepends=True)
    lines[3] = b"\xff" + lines[3][1:]
    world.ledger.path.write_bytes(b"".join(lines))
    findings = world.verify().findings
    assert "entry 3 (unreadable): line 4 is not a ledger entry [altered]" in map(str, findings)


def test_an_unparsable_last_line_is_alteration_until_an_append_has_kept_it_aside(
    world: World,
) -> None:
    head = world.ledger.head
    with world.ledger.path.open("ab") as file:
        file.write(b"rubbish\n")
    assert not world.verify(head).ok
    world.ledger.append(note("after"))
    assert world.verify(head).ok


def test_a_torn_tail_whose_bytes_are_gone_is_named(world: World) -> None:
    with world.ledger.path.open("ab") as file:
        file.write(b"torn")
    world.ledger.append(note("after"))
    (repair,) = world.ledger.entries("repair")
    world.ledger.objects.path(str(repair.body["digest_of_torn_tail"])).unlink()
    assert [finding.seq for finding in world.verify().findings] == [repair.seq]


def test_a_keeper_key_that_cannot_be_trusted_is_told(world: World) -> None:
    (world.state_dir / "keeper.key").chmod(0o644)
    (finding,) = world.verify().findings
    assert "others can read" in finding.what


def test_an_honest_arming_and_snapshot_are_no_findings(sealed_world: World) -> None:
    ledger = sealed_world.ledger
    source = b"int k() { return 0; }\n"
    snapshot = sealed_world.state_dir / "candidates" / CANDIDATE
    snapshot.mkdir(parents=True)
    (snapshot / "k.cpp").write_bytes(source)
    stored: dict[str, Json] = {
        "kind": "candidate",
        "candidate": CANDIDATE,
        "files": {"k.cpp": digest_bytes(source)},
        "contract": "k",
        "parent": None,
    }
    arming: dict[str, Json] = {
        "kind": "arming",
        "contract": CONTRACT,
        "gate_digest": GATE,
        "target": "local",
        "tools_digest": GATE,
        "evidence": ledger.objects.put_bytes(b"{}"),
        "armed": True,
        "survivors": [],
    }
    ledger.append(stored)
    ledger.append(arming)
    ledger.append({**arming, "evidence": None, "armed": False, "survivors": ["half"]})
    assert sealed_world.verify().findings == ()
    (snapshot / "k.cpp").unlink()
    assert not sealed_world.verify().ok
    snapshot.rmdir()
    (finding,) = sealed_world.verify().findings
    assert finding.severity is Severity.NOTICE


def test_a_failed_verdict_that_cannot_be_judged_again_is_only_told(sealed_world: World) -> None:
    evidence = evidence_of("a", rc=1).model_copy(update={"contract": None})
    ledger = sealed_world.ledger
    ledger.append(attempt_body("a"))
    stored = ledger.objects.put_bytes(evidence_bytes(evidence))
    ledger.append(outcome_body("a", stored, judge(CONTRACT, evidence_of("a", rc=1)), "fail"))
    report = sealed_world.verify()
    assert report.ok
    assert "the evidence names no contract" in report.findings[0].what


def test_evidence_under_another_contract_is_named(sealed_world: World) -> None:
    evidence = evidence_of("a").model_copy(update={"contract": digest_bytes(b"laxer")})
    ledger = sealed_world.ledger
    ledger.append(attempt_body("a"))
    ledger.append(outcome_body("a", ledger.objects.put_bytes(evidence_bytes(evidence))))
    (finding,) = sealed_world.verify().findings
    assert finding.what == "its evidence is of another contract"


def test_a_promotion_for_another_contract_or_from_no_outcome_is_named(world: World) -> None:
    (promotion,) = world.ledger.entries("promotion")
    body = json_body(promotion)
    world.ledger.append({**body, "contract": digest_bytes(b"laxer")})
    world.ledger.append({**body, "outcome_seq": 0})
    told = [str(finding) for finding in world.verify().findings]
    assert "entry 8 (promotion): entry 2 is about another contract [altered]" in told
    assert "entry 9 (promotion): entry 0 is no outcome of a job [altered]" in told


def test_a_grade_whose_artefacts_are_stored_verifies(sealed_world: World) -> None:
    ledger = sealed_world.ledger
    library = ledger.objects.put_bytes(b"library")
    build = BuildFacts(
        language="cpp",
        ok=True,
        code=Reason.ACCEPTED,
        compiler="g++",
        command=(),
        seconds=1.0,
        artefacts={"k.so": library},
        cache_key=library,
    )
    evidence = evidence_of("a").model_copy(update={"build": build})
    ledger.append(attempt_body("a"))
    ledger.append(outcome_body("a", ledger.objects.put_bytes(evidence_bytes(evidence))))
    assert sealed_world.verify().ok
    ledger.objects.path(library).unlink()
    assert not sealed_world.verify().ok
