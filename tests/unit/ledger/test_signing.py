"""Keys: private, distinct, and a passphrase that only a terminal can give."""

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from inferproof.core.errors import ApprovalRefused, LedgerError
from inferproof.ledger.signing import (
    ApproverKey,
    KeeperKey,
    Secret,
    ask_passphrase,
    is_signed_json,
    verifier,
)

PASSPHRASE = Secret("correct horse battery")
ASK = (
    "from inferproof.ledger.signing import ask_passphrase\n"
    "from inferproof.core.errors import ApprovalRefused\n"
    "try:\n"
    "    print('got', len(ask_passphrase(confirm=True).value))\n"
    "except ApprovalRefused as error:\n"
    "    print('refused', error)\n"
)


def test_the_keeper_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "keeper.key"
    first = KeeperKey.load_or_create(path)
    assert KeeperKey.load_or_create(path).public_key == first.public_key
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["keeper.key"]


def test_a_keeper_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keeper.key"
    KeeperKey.load_or_create(path)
    path.chmod(0o644)
    with pytest.raises(LedgerError, match="others can read"):
        KeeperKey.load(path)


@pytest.mark.parametrize("content", ["", "ab", "zz" * 32, "ab" * 33])
def test_what_is_no_keeper_key_is_a_clear_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keeper.key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(LedgerError, match="not a keeper key"):
        KeeperKey.load(path)


def test_a_missing_keeper_key_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be read"):
        KeeperKey.load(tmp_path / "keeper.key")


def test_the_approver_key_needs_its_passphrase(tmp_path: Path) -> None:
    path = tmp_path / "config" / "approver.pem"
    key = ApproverKey.create(path, PASSPHRASE)
    assert ApproverKey.load(path, PASSPHRASE).public_key == key.public_key
    assert b"ENCRYPTED" in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ApprovalRefused, match="wrong passphrase"):
        ApproverKey.load(path, Secret("wrong horse battery"))
    with pytest.raises(ApprovalRefused, match="is protected"):
        ApproverKey.load_demo(path)


def test_an_approver_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "approver.pem"
    key = ApproverKey.create(path, PASSPHRASE)
    with pytest.raises(ApprovalRefused, match="already"):
        ApproverKey.create(path, PASSPHRASE)
    assert ApproverKey.load(path, PASSPHRASE).public_key == key.public_key


def test_a_short_passphrase_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ApprovalRefused, match="fewer than 12"):
        ApproverKey.create(tmp_path / "approver.pem", Secret("short"))
    assert list(tmp_path.iterdir()) == []


def test_a_demo_key_does_not_pass_for_a_protected_one(tmp_path: Path) -> None:
    path = tmp_path / "demo.pem"
    key = ApproverKey.create_demo(path)
    assert ApproverKey.load_demo(path).public_key == key.public_key
    with pytest.raises(ApprovalRefused, match="is not protected"):
        ApproverKey.load(path, PASSPHRASE)


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_what_is_no_approver_key_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "approver.pem"
    path.write_bytes(content)
    with pytest.raises(ApprovalRefused):
        ApproverKey.load(path, PASSPHRASE)
    with pytest.raises(ApprovalRefused, match="cannot be read"):
        ApproverKey.load(tmp_path / "none.pem", PASSPHRASE)


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    path = tmp_path / "approver.pem"
    other = generate_private_key(SECP256R1())
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(ApprovalRefused, match="not an ed25519 key"):
        ApproverKey.load_demo(path)


def test_a_signature_is_good_for_its_message_and_key_only(tmp_path: Path) -> None:
    key = KeeperKey.load_or_create(tmp_path / "a")
    other = KeeperKey.load_or_create(tmp_path / "b")
    signature = key.sign(b'{"a":1}')
    assert is_signed_json({"a": 1}, signature, public_key=key.public_key)
    assert not is_signed_json({"a": 2}, signature, public_key=key.public_key)
    assert not verifier(other.public_key)(b'{"a":1}', signature)


def test_secrets_never_show(tmp_path: Path) -> None:
    shown = [
        repr(PASSPHRASE),
        str(PASSPHRASE),
        repr(KeeperKey.load_or_create(tmp_path / "k")),
        repr(ApproverKey.create_demo(tmp_path / "a")),
    ]
    assert shown == ["***"] * 4


def test_without_a_terminal_the_passphrase_is_refused_whatever_stdin_says() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        input="correct horse battery\n" * 2,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=True,
    )
    assert done.stdout.startswith("refused the passphrase can only be typed at a terminal")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["correct horse battery", "correct horse battery"], b"got 21"),
        (["correct horse battery", "another"], b"refused the two passphrases differ"),
        (["", ""], b"refused no passphrase was typed"),
    ],
)
def test_a_passphrase_typed_at_the_terminal_is_taken_and_not_shown(
    typed: list[str], answer: bytes
) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", ASK])
    seen = b""
    for prompt, line in zip((b"passphrase: ", b"once more: "), typed, strict=True):
        while not seen.endswith(prompt):
            seen += os.read(terminal, 1024)
        os.write(terminal, line.encode() + b"\n")
    while answer not in seen:
        seen += os.read(terminal, 1024)
    os.waitpid(child, 0)
    os.close(terminal)
    assert b"correct horse" not in seen


@pytest.mark.parametrize("confirm", [True, False])
def test_what_is_typed_is_returned_without_its_line_end(
    monkeypatch: pytest.MonkeyPatch, confirm: bool
) -> None:
    keyboard, terminal = os.openpty()
    name = os.ttyname(terminal)
    opened = os.open

    def open_terminal(path: str, flags: int) -> int:
        return opened(name if path == "/dev/tty" else path, flags)

    def person() -> None:
        for prompt in (b"passphrase: ", b"once more: ")[: 1 + confirm]:
            seen = b""
            while not seen.endswith(prompt):
                seen += os.read(keyboard, 1024)
            os.write(keyboard, b"correct horse battery\n")

    typing = threading.Thread(target=person)
    typing.start()
    with monkeypatch.context() as patch:
        patch.setattr("inferproof.ledger.signing.os.open", open_terminal)
        assert ask_passphrase(confirm=confirm) == PASSPHRASE
    typing.join()
    os.close(terminal)
    os.close(keyboard)


def test_reading_a_ledger_module_does_not_import_cryptography() -> None:
    code = (
        "import sys, inferproof.ledger.verify, inferproof.ledger.approvals\n"
        "sys.exit('cryptography' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
