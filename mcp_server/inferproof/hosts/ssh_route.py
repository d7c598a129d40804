"""How a machine is reached by SSH, as OpenSSH itself reads the user's configuration."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferproof.core.campaign import Target
from inferproof.core.errors import InfrastructureError, UsageError

_RESOLVE_S = 20.0
_MOST_HOPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One machine on the way: where it listens, who we are there, and by which keys."""

    name: str
    host: str
    port: int
    user: str
    keys: tuple[str, ...]
    has_agent: bool
    known_hosts: tuple[str, ...]

    @property
    def label(self) -> str:
        """The name that known_hosts files have for it."""
        is_plain = self.port == 22 or self.name != self.host
        return self.name if is_plain else f"[{self.name}]:{self.port}"

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"


def route(target: Target) -> tuple[Hop, ...]:
    """Return the hops to a target, itself last.

    Raises:
        UsageError: the configuration asks for what is not supported.
        InfrastructureError: OpenSSH cannot read it.
    """
    if target.address is None:
        raise UsageError("the target has no address", hint="give it one in targets.yaml")
    asked = _options(target)
    return _hops(target.address, asked, _config(target), seen=())


def _hops(
    address: str, asked: Sequence[str], config: Sequence[str], *, seen: tuple[str, ...]
) -> tuple[Hop, ...]:
    if len(seen) >= _MOST_HOPS:
        raise UsageError(f"ProxyJump of {seen[0]!r} goes through more than {_MOST_HOPS} machines")
    told = _resolved([*config, *asked, "--", address])
    if told.get("proxycommand", ["none"]) != ["none"]:
        what = f"ProxyCommand, which the SSH configuration has for {address!r}, is not supported"
        raise UsageError(what, hint="use ProxyJump, which does the same without a program")
    before: tuple[Hop, ...] = ()
    for jump in " ".join(told.get("proxyjump", ["none"])).split(","):
        if jump != "none":
            before += _hops(*_jump(jump), config, seen=(*seen, address))
    return (*before, _hop(told))


def _hop(told: Mapping[str, list[str]]) -> Hop:
    host = told["hostname"][0]
    files = [*told.get("userknownhostsfile", []), *told.get("globalknownhostsfile", [])]
    return Hop(
        name=told.get("hostkeyalias", [host])[0],
        host=host,
        port=int(told["port"][0]),
        user=told["user"][0],
        keys=tuple(_home(key) for key in told.get("identityfile", [])),
        has_agent=told.get("identityagent") != ["none"],
        known_hosts=tuple(_home(name) for line in files for name in line.split()),
    )


def _jump(text: str) -> tuple[str, list[str]]:
    """Return the address of `[user@]host[:port]` and the options for the rest."""
    user, _, place = text.rpartition("@")
    host, _, port = place.rpartition(":") if place.count(":") == 1 else (place, "", "")
    options = ["-l", user] if user else []
    return host.strip("[]"), [*options, *(["-p", port] if port else [])]


def _options(target: Target) -> list[str]:
    options = ["-l", target.user] if target.user else []
    options += ["-p", str(target.port)] if target.port else []
    if target.key is None:
        return options
    if not Path(target.key).is_file():
        what = f"the key {target.key} is not on this machine"
        raise UsageError(what, hint="correct `key` in targets.yaml, then seal again")
    return [*options, "-o", f"IdentityFile={target.key}", "-o", "IdentitiesOnly=yes"]


def _config(target: Target) -> list[str]:
    return ["-F", target.ssh_config] if target.ssh_config else []


def _resolved(options: Sequence[str]) -> dict[str, list[str]]:
    """Return what `ssh -G` says, each key with all its values."""
    try:
        said = subprocess.run(
            ["ssh", "-G", *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_RESOLVE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        what = f"OpenSSH's client cannot be asked for its configuration: {error}"
        raise InfrastructureError(what, hint="as root: apt-get install openssh-client") from error
    if said.returncode != 0:
        what = f"ssh -G {options[-1]} failed: {' '.join(said.stderr.split())[:300]}"
        raise InfrastructureError(what, hint="correct the SSH configuration, or `ssh_config`")
    told: dict[str, list[str]] = {}
    for line in said.stdout.splitlines():
        key, _, value = line.partition(" ")
        told.setdefault(key, []).append(value)
    return told


def _home(name: str) -> str:
    return str(Path(name).expanduser())
