"""The seal: one approver for good, and every sealed byte accounted for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from inferproof.core.errors import SealBroken
from inferproof.ledger.chain import Severity
from inferproof.ledger.seals import broken_files, current_seal, read_seals, seal_campaign
from inferproof.ledger.signing import ApproverKey
from unit.ledger.worlds import SEALED, World


def test_an_unsealed_campaign_is_said_to_be_so(empty_world: World) -> None:
    with pytest.raises(SealBroken, match="inferproof seal"):
        current_seal(empty_world.ledger.entries())


def test_the_newest_seal_by_the_same_approver_rules(sealed_world: World) -> None:
    (sealed_world.folder / SEALED[0]).write_text("amended\n")
    amended = sealed_world.seal()
    history = read_seals(sealed_world.ledger.entries())
    assert history.current_entry == amended
    assert history.findings == ()
    assert history.current
    assert broken_files(sealed_world.folder, history.current) == []


def test_another_approver_cannot_seal_again(sealed_world: World, tmp_path: Path) -> None:
    other = ApproverKey.create_demo(tmp_path / "other.pem")
    with pytest.raises(SealBroken, match="another approver key"):
        sealed_world.seal(other)
    assert len(sealed_world.ledger) == 1


def test_a_demo_seal_is_always_reported(empty_world: World) -> None:
    seal_campaign(empty_world.ledger, empty_world.approver, campaign="c", mode="demo", files={})
    (finding,) = read_seals(empty_world.ledger.entries()).findings
    assert finding.severity is Severity.NOTICE
    assert "demo" in finding.what


def change(path: Path) -> None:
    path.write_text("changed")


def remove(path: Path) -> None:
    path.unlink()


def link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("attack", "said"),
    [(change, "changed"), (remove, "missing"), (link, "changed"), (folder, "changed")],
)
def test_a_sealed_file_that_is_not_as_sealed_is_named(
    sealed_world: World, attack: Callable[[Path], None], said: str
) -> None:
    attack(sealed_world.folder / "campaign.yaml")
    seal = current_seal(sealed_world.ledger.entries())
    assert broken_files(sealed_world.folder, seal) == [f"campaign.yaml ({said})"]


@pytest.mark.parametrize("name", ["extra.py", ".hidden", "__pycache__/reference.cpython-311.pyc"])
def test_a_new_file_among_the_contracts_is_named(sealed_world: World, name: str) -> None:
    path = sealed_world.folder / "contracts/kernels/k" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    seal = current_seal(sealed_world.ledger.entries())
    assert broken_files(sealed_world.folder, seal) == [f"contracts/kernels/k/{name} (not sealed)"]


def test_a_linked_folder_among_the_contracts_is_named(sealed_world: World) -> None:
    (sealed_world.folder / "contracts/more").symlink_to("kernels")
    seal = current_seal(sealed_world.ledger.entries())
    assert broken_files(sealed_world.folder, seal) == ["contracts/more (not sealed)"]


def test_files_outside_the_contracts_may_come_and_go(sealed_world: World) -> None:
    (sealed_world.folder / "README.md").write_text("mine")
    seal = current_seal(sealed_world.ledger.entries())
    assert broken_files(sealed_world.folder, seal) == []


def test_a_seal_for_another_campaign_or_of_unknown_form_is_altered(sealed_world: World) -> None:
    first = sealed_world.seal()
    entry = seal_campaign(
        sealed_world.ledger, sealed_world.approver, campaign="other", mode="passphrase", files={}
    )
    odd = first.model_copy(update={"body": {"kind": "seal"}})
    history = read_seals([*sealed_world.ledger.entries(), odd])
    assert history.current_entry == first
    assert [finding.seq for finding in history.findings] == [entry.seq, odd.seq]
    assert "another campaign" in history.findings[0].what
