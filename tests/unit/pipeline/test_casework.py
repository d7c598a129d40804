"""Campaigns rebuilt from their seals alone, and armings that hold for exactly one key."""

from pathlib import Path

import pytest

from inferproof import casework
from inferproof.core.errors import LedgerError, SealBroken
from inferproof.ledger.bodies import Arming, dump
from inferproof.ledger.store import Ledger
from small_campaign import CONTRACT_FILE, sealed_keeper

KEY: casework.ArmingKey = ("a" * 64, "b" * 64, "local", "c" * 64)


def test_a_sealed_campaign_is_rebuilt_whatever_the_folder_says_now(tmp_path: Path):
    keeper, _ = sealed_keeper(tmp_path / "campaign")
    as_sealed = keeper.sealed()
    for path in ("campaign.yaml", "targets.yaml", CONTRACT_FILE):
        (keeper.root / path).unlink()
    (entry,) = keeper.ledger.entries("seal")
    rebuilt = casework.Archive(keeper.ledger.objects).campaign(entry)
    assert rebuilt.campaign == as_sealed.campaign
    assert rebuilt.contracts["rms_norm"].digest == as_sealed.contracts["rms_norm"].digest


def test_a_sealed_file_altered_in_the_store_is_not_used(tmp_path: Path):
    keeper, _ = sealed_keeper(tmp_path / "campaign")
    (entry,) = keeper.ledger.entries("seal")
    stored = keeper.ledger.objects.path(casework.seal_of(entry).files[CONTRACT_FILE])
    stored.chmod(0o644)
    stored.write_bytes(stored.read_bytes() + b"\n")
    with pytest.raises(LedgerError, match="altered"):
        casework.Archive(keeper.ledger.objects).campaign(entry)


def test_a_contract_that_is_not_sealed_judges_nothing(tmp_path: Path):
    files = sealed_keeper(tmp_path / "campaign")[0].sealed()
    with pytest.raises(SealBroken, match="no contract 'softmax'"):
        casework.contract_named(files, "softmax")


def armed(ledger: Ledger, key: casework.ArmingKey, evidence: str, *, good: bool = True) -> None:
    body = Arming(
        contract=key[0],
        gate_digest=key[1],
        target=key[2],
        tools_digest=key[3],
        evidence=evidence,
        armed=good,
        survivors=() if good else ("zeros",),
    )
    ledger.append(dump(body))


def test_an_arming_holds_for_its_contract_gate_target_and_tools_alone(tmp_path: Path):
    ledger = Ledger.open(tmp_path)
    armed(ledger, KEY, "1" * 64)
    assert casework.armed_by(ledger, KEY) == "1" * 64
    for place in range(4):
        other = (*KEY[:place], "d" * 64, *KEY[place + 1 :])
        assert casework.armed_by(ledger, (other[0], other[1], other[2], other[3])) is None


def test_the_newest_success_arms_and_a_failure_does_not(tmp_path: Path):
    ledger = Ledger.open(tmp_path)
    armed(ledger, KEY, "1" * 64, good=False)
    assert casework.armed_by(ledger, KEY) is None
    armed(ledger, KEY, "2" * 64)
    armed(ledger, KEY, "3" * 64)
    assert casework.armed_by(ledger, KEY) == "3" * 64
