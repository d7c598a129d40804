"""known_hosts files, read as OpenSSH reads them: what is no entry is passed over."""

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.pkey import UnknownKeyType

REVOKED = "@revoked"
_HASHED = "|1|"


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key that a line gives to a machine. `marker` is empty, `@revoked` or `@cert-authority`."""

    marker: str
    key: paramiko.PKey


def entries(path: Path, label: str) -> Iterator[KnownKey]:
    """Yield what a file says of the machine known by `label`: NAME, or [NAME]:PORT."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split()
        marker = fields.pop(0) if line.startswith("@") else ""
        if len(fields) < 3 or line.startswith("#") or not names(fields[0], label):
            continue
        key = _key(fields[1], fields[2])
        if key is not None:
            yield KnownKey(marker, key)


def names(patterns: str, label: str) -> bool:
    """Whether the first field of a line, a list of patterns or a hash, means `label`."""
    if patterns.startswith(_HASHED):
        return _is_hash_of(patterns, label)
    found = False
    for pattern in patterns.lower().split(","):
        plain = pattern.removeprefix("!").replace("[", "[[]")  # brackets are brackets there
        if fnmatch.fnmatchcase(label.lower(), plain):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _is_hash_of(text: str, label: str) -> bool:
    salt, _, digest = text.removeprefix(_HASHED).partition("|")
    try:
        made = hmac.digest(base64.b64decode(salt), label.encode(), hashlib.sha1)
        return hmac.compare_digest(made, base64.b64decode(digest))
    except binascii.Error:
        return False


def _key(kind: str, text: str) -> paramiko.PKey | None:
    try:
        return paramiko.PKey.from_type_string(kind, base64.b64decode(text))
    except (paramiko.SSHException, UnknownKeyType, ValueError):
        return None
