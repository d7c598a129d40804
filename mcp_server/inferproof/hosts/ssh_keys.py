"""Which host key a machine must show: what a person pinned, and nothing that only came along."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from inferproof.core.errors import InfrastructureError
from inferproof.hosts.known_hosts import REVOKED, KnownKey, entries
from inferproof.hosts.ssh_route import Hop

PINS_FILE = "known_hosts"


class HostKeyRefused(InfrastructureError):
    """A machine showed a host key that nobody vouched for."""

    error_code = "host_key"
    retryable = False


@dataclass(frozen=True, slots=True)
class Pinned(paramiko.MissingHostKeyPolicy):
    """Refuse a host without a known key, unless its key has the very `fingerprint` that was said.

    With `pins`, a file, a key that was said is kept there.
    """

    hop: Hop
    target: str
    fingerprint: str | None
    pins: Path | None

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        """Return if the key has the fingerprint that a person said, else refuse it."""
        del client, hostname
        refuse_revoked(self.hop, key)
        if self.fingerprint is None:
            shown = fingerprint(key)
            raise HostKeyRefused(
                f"{self.hop} is unknown; it showed the {key.get_name()} host key {shown}",
                hint="compare it with what the machine's owner says (ssh-keygen -lf "
                "/etc/ssh/ssh_host_ed25519_key.pub there), then a person runs: "
                f"inferproof doctor --target {self.target} --pin {shown}",
            )
        refuse_another(self.hop, key, self.fingerprint)
        if self.pins is not None:
            _keep(self.pins, self.hop.label, key)


def known_keys(hop: Hop, pins: Path) -> tuple[paramiko.PKey, ...]:
    """Return the host keys on record for a hop: pinned here, else known to OpenSSH."""
    for path in (pins, *map(Path, hop.known_hosts)):
        told = [known.key for known in entries(path, hop.label) if not known.marker]
        found = tuple(key for key in told if _revoked_in(hop, key) is None)
        if found:
            return found
    return ()


def _revoked_in(hop: Hop, key: paramiko.PKey) -> Path | None:
    """Return the file of OpenSSH that revokes this key of a hop, if one does."""
    for path in map(Path, hop.known_hosts):
        if KnownKey(REVOKED, key) in entries(path, hop.label):
            return path
    return None


def refuse_revoked(hop: Hop, key: paramiko.PKey) -> None:
    """Return unless a known_hosts file of OpenSSH says that this key is revoked.

    Raises:
        HostKeyRefused: it does.
    """
    path = _revoked_in(hop, key)
    if path is not None:
        what = f"the host key {fingerprint(key)} that {hop} showed is revoked in {path}"
        raise HostKeyRefused(what, hint="ask the machine's owner for its new key")


def refuse_another(hop: Hop, key: paramiko.PKey, said: str | None) -> None:
    """Return if the key is the one that a person said, or if nobody said any.

    Raises:
        HostKeyRefused: it is another one.
    """
    shown = fingerprint(key)
    if said not in (None, shown):
        raise HostKeyRefused(
            f"{hop} showed the host key {shown}, not {said}",
            hint="do not connect before you know why: another machine may be answering",
        )


def changed(hop: Hop, shown: paramiko.PKey, expected: Sequence[paramiko.PKey]) -> HostKeyRefused:
    """Return the refusal of a key that is not the known one; no option overrides it."""
    known = ", ".join(map(fingerprint, expected))
    return HostKeyRefused(
        f"the host key of {hop} CHANGED: it showed {fingerprint(shown)}, known is {known}",
        hint="another machine may be answering. If its owner confirms the new key, a person "
        f"removes the old one: ssh-keygen -R '{hop.label}' -f FILE for the campaign's .inferproof/"
        f"{PINS_FILE} or ~/.ssh/known_hosts, or corrects `host_key` in targets.yaml",
    )


def fingerprint(key: paramiko.PKey) -> str:
    """Return a key's fingerprint as OpenSSH writes it."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _keep(pins: Path, label: str, key: paramiko.PKey) -> None:
    pins.parent.mkdir(parents=True, exist_ok=True)
    with pins.open("a", encoding="ascii") as stream:
        stream.write(f"{label} {key.get_name()} {key.get_base64()}\n")
