"""The two keys: the keeper's, which signs every entry, and the approver's, which is a person's.

They are different types, so neither can stand in for the other. `cryptography` is imported when a
key is first used. The keeper's key lies beside the ledger: it shows who wrote an entry only to
those who trust that folder. The approver's key is worth as much as its passphrase.
"""

import os
import secrets
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from inferproof.core.canonical import Json, canonical_bytes
from inferproof.core.errors import ApprovalRefused, LedgerError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import KeySerializationEncryption

PASSPHRASE_LEAST_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that never shows in a message, log or traceback."""

    value: str

    def __repr__(self) -> str:
        return "***"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An ed25519 private key that signs and never shows itself."""

    private: "Ed25519PrivateKey"

    def __repr__(self) -> str:
        return "***"

    @property
    def public_key(self) -> str:
        """The public half as 64 hex digits."""
        return self.private.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> str:
        """Return the signature over `message` as 128 hex digits."""
        return self.private.sign(message).hex()


class KeeperKey(SigningKey):
    """The server's own key: raw 32-byte seed in hex, readable by its owner only."""

    @classmethod
    def load_or_create(cls, path: Path) -> Self:
        """Return the key at `path`, made on first use; of two makers at once, one wins."""
        if not path.exists():
            _write_new(path, secrets.token_hex(32).encode() + b"\n")
        return cls.load(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the key at `path`.

        Raises:
            LedgerError: there is none, others can read it, or it is not a key.
        """
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        try:
            readable_by_others = path.stat().st_mode & 0o077
            seed = bytes.fromhex(path.read_text("ascii").strip())
            key = Ed25519PrivateKey.from_private_bytes(seed)
        except OSError as exc:
            raise LedgerError(
                f"the keeper key {path} cannot be read: {exc.strerror}",
                hint="restore keeper.key from a copy; entries by another key do not verify",
            ) from exc
        except ValueError as exc:
            raise LedgerError(f"{path} is not a keeper key (64 hex digits)") from exc
        if readable_by_others:
            raise LedgerError(f"others can read {path}", hint=f"run: chmod 600 {path}")
        return cls(key)


class ApproverKey(SigningKey):
    """A person's key. Its signature is what seals a campaign and approves an action."""

    @classmethod
    def create(cls, path: Path, passphrase: Secret) -> Self:
        """Return a new key, stored encrypted at `path`.

        Raises:
            ApprovalRefused: a key is there already, or the passphrase is too short.
        """
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption

        if len(passphrase.value) < PASSPHRASE_LEAST_CHARACTERS:
            raise ApprovalRefused(
                f"the passphrase has fewer than {PASSPHRASE_LEAST_CHARACTERS} characters",
                hint="choose a longer one: whoever can copy the key file can try passphrases",
            )
        return cls._create(path, BestAvailableEncryption(passphrase.value.encode()))

    @classmethod
    def load(cls, path: Path, passphrase: Secret) -> Self:
        """Return the key at `path`.

        Raises:
            ApprovalRefused: no key there, not passphrase-protected, or the wrong passphrase.
        """
        return cls._load(path, passphrase.value.encode())

    @classmethod
    def create_demo(cls, path: Path) -> Self:
        """Return a new throw-away key, stored without protection: for seals of mode "demo"."""
        from cryptography.hazmat.primitives.serialization import NoEncryption

        return cls._create(path, NoEncryption())

    @classmethod
    def load_demo(cls, path: Path) -> Self:
        """Return the throw-away key at `path`."""
        return cls._load(path, None)

    @classmethod
    def _create(cls, path: Path, encryption: "KeySerializationEncryption") -> Self:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat

        key = Ed25519PrivateKey.generate()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _write_new(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)):
            raise ApprovalRefused(f"there is an approver key at {path} already", hint="use that")
        return cls(key)

    @classmethod
    def _load(cls, path: Path, passphrase: bytes | None) -> Self:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(path.read_bytes(), passphrase)
        except OSError as exc:
            raise ApprovalRefused(
                f"the approver key {path} cannot be read: {exc.strerror}",
                hint="run inferproof seal once in a terminal; it makes the key",
            ) from exc
        except TypeError as exc:
            protected = "is not protected" if passphrase else "is protected"
            raise ApprovalRefused(f"the approver key {path} {protected} by a passphrase") from exc
        except ValueError as exc:
            raise ApprovalRefused(f"wrong passphrase for {path}", hint="try again") from exc
        if not isinstance(key, Ed25519PrivateKey):
            raise ApprovalRefused(f"{path} is not an ed25519 key")
        return cls(key)


def verifier(public_key: str) -> Callable[[bytes, str], bool]:
    """Return the function that says whether a hex signature over a message is by `public_key`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))

    def is_signed(message: bytes, signature: str) -> bool:
        try:
            key.verify(bytes.fromhex(signature), message)
        except InvalidSignature:
            return False
        return True

    return is_signed


def is_signed_json(value: Json, signature: str, *, public_key: str) -> bool:
    """Return whether `signature` is by `public_key` over the canonical bytes of `value`."""
    return verifier(public_key)(canonical_bytes(value), signature)


def ask_passphrase(*, confirm: bool) -> Secret:
    """Return what a person types at the terminal of this process, without showing it.

    Only the controlling terminal is asked: never standard input, never the environment.

    Raises:
        ApprovalRefused: there is no terminal, nothing was typed, or the repeat differs.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError as exc:
        raise ApprovalRefused(
            "the passphrase can only be typed at a terminal, and there is none",
            hint="a person runs this command in a terminal",
        ) from exc
    try:
        typed = _ask_hidden(terminal, "Approver passphrase: ")
        if confirm and _ask_hidden(terminal, "The same once more: ") != typed:
            raise ApprovalRefused("the two passphrases differ", hint="try again")
    finally:
        os.close(terminal)
    if not typed:
        raise ApprovalRefused("no passphrase was typed", hint="try again")
    return Secret(typed)


def _ask_hidden(terminal: int, prompt: str) -> str:
    before = termios.tcgetattr(terminal)
    hidden = [*before]
    hidden[3] = int(before[3]) & ~termios.ECHO
    try:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, hidden)
        os.write(terminal, prompt.encode())
        return os.read(terminal, 4096).decode(errors="replace").rstrip("\r\n")
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
        os.write(terminal, b"\n")


def _write_new(path: Path, data: bytes) -> bool:
    """Return whether `path` was made, whole and private; False when something is there."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True
