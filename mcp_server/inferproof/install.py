"""Registers the server and the skills with an agent host, next to whatever is there already.

A plan is made first and says what would be written where; nothing foreign is ever overwritten.
"""

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from inferproof.core.canonical import Json
from inferproof.core.errors import FileFormatError, InfrastructureError, UsageError
from inferproof.render import GENERATOR

SERVER_NAME = "inferproof"
Host = Literal["claude", "codex"]
Action = Literal["write", "same", "keep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """How a host starts the server: a command and its arguments."""

    command: str
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a host reads its servers and its skills."""

    host: Host
    config: Path
    skills_dir: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One file: what would be in it, and whether it is written, already so, or not ours."""

    path: Path
    action: Action
    text: str
    why: str


def place_of(host: Host, folder: Path, *, user_config: Path | None = None) -> Place:
    """Return where `host` looks in the project `folder`; `user_config` replaces its config."""
    match host:
        case "claude":
            config, skills_dir = folder / ".mcp.json", folder / ".claude" / "skills"
        case "codex":
            config, skills_dir = folder / ".codex" / "config.toml", folder / ".agents" / "skills"
    return Place(host=host, config=user_config or config, skills_dir=skills_dir)


def plan(
    place: Place, registration: Registration, skills: Mapping[str, str], *, force: bool = False
) -> tuple[Change, ...]:
    """Return what installing at `place` would change.

    Raises:
        UsageError: the host knows another server of our name and `force` is false.
        FileFormatError: the host's configuration cannot be read.
    """
    change_of = _claude_change if place.host == "claude" else _codex_change
    change = change_of(place.config, registration, force=force)
    return (change, *_skill_changes(place.skills_dir, skills))


def apply(changes: Sequence[Change]) -> None:
    """Write every change that is to be written, each file whole or not at all.

    Raises:
        InfrastructureError: a file cannot be written.
    """
    for change in changes:
        if change.action == "write":
            try:
                write_whole(change.path, change.text)
            except OSError as exc:
                raise InfrastructureError(
                    f"{change.path} cannot be written: {exc.strerror}",
                    hint="check the rights of the folder and run the command again",
                ) from exc


def claude_entry(registration: Registration) -> dict[str, Json]:
    """Return the server's entry under mcpServers of .mcp.json."""
    return {
        "type": "stdio",
        "command": registration.command,
        "args": list(registration.args),
        "env": {},
        "alwaysLoad": True,
        "timeout": 3_600_000,
    }


def codex_table(registration: Registration) -> str:
    """Return the server's table for Codex's config.toml."""
    # A JSON string without control characters is also a TOML basic string.
    args = ", ".join(json.dumps(arg, ensure_ascii=False) for arg in registration.args)
    return (
        f"[mcp_servers.{SERVER_NAME}]\n"
        f"command = {json.dumps(registration.command, ensure_ascii=False)}\n"
        f"args = [{args}]\n"
        "required = true\n"
        "startup_timeout_sec = 30\n"
        "tool_timeout_sec = 600\n"
        'env_vars = ["SSH_AUTH_SOCK"]\n'
    )


def write_whole(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step; a link's target is replaced, not the link."""
    real = path.resolve()
    real.parent.mkdir(parents=True, exist_ok=True)
    mode = real.stat().st_mode & 0o777 if real.exists() else 0o644
    with tempfile.NamedTemporaryFile(
        "w", dir=real.parent, prefix=f".{real.name}.", delete=False, encoding="utf-8"
    ) as file:
        temporary = Path(file.name)
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            temporary.chmod(mode)
            temporary.replace(real)
        finally:
            temporary.unlink(missing_ok=True)


def _claude_change(path: Path, registration: Registration, *, force: bool) -> Change:
    before = _existing(path)
    document = _json_object(path, before)
    servers = document.get("mcpServers", {})
    if not isinstance(servers, Mapping):
        raise FileFormatError("mcpServers is not an object", path=str(path), hint="correct it")
    entry = claude_entry(registration)
    known = servers.get(SERVER_NAME)
    if known == entry:
        return _same(path, before)
    _require_ours(path, known is not None, force=force)
    merged = {**document, "mcpServers": {**servers, SERVER_NAME: entry}}
    text = json.dumps(merged, indent=2, ensure_ascii=False) + "\n"
    return Change(path=path, action="write", text=text, why=f"registers the server {SERVER_NAME}")


def _codex_change(path: Path, registration: Registration, *, force: bool) -> Change:
    before = _existing(path)
    table = codex_table(registration)
    wanted = _servers(path, _toml(path, table))[SERVER_NAME]
    document = _toml(path, before)
    servers = _servers(path, document)
    known = servers.get(SERVER_NAME)
    if known == wanted:
        return _same(path, before)
    _require_ours(path, known is not None, force=force)
    rest = _without_table(before) if known is not None else before
    text = _appended(rest, table)
    expected = {**document, "mcp_servers": {**servers, SERVER_NAME: wanted}}
    if not _reads_as(text, expected):
        raise UsageError(
            f"{path} writes its servers in a form that cannot be added to safely",
            hint=f"add this by hand:\n{table}",
        )
    return Change(path=path, action="write", text=text, why=f"registers the server {SERVER_NAME}")


def _skill_changes(skills_dir: Path, skills: Mapping[str, str]) -> tuple[Change, ...]:
    changes: list[Change] = []
    for relative, text in skills.items():
        path = skills_dir / relative
        before = _existing(path)
        skill = skills_dir / relative.split("/")[0] / "SKILL.md"
        if before == text:
            changes.append(_same(path, text))
        elif (before or skill.exists()) and not _is_ours(_existing(skill)):
            why = "a skill of this name that inferproof did not write is there; it is left alone"
            changes.append(Change(path=path, action="keep", text=before, why=why))
        else:
            changes.append(Change(path=path, action="write", text=text, why="skill"))
    return tuple(changes)


def _is_ours(skill_text: str) -> bool:
    front = skill_text.split("\n---", 1)[0]
    return re.search(rf"^  generator: {GENERATOR}$", front, re.MULTILINE) is not None


def _same(path: Path, text: str) -> Change:
    return Change(path=path, action="same", text=text, why="is as it should be")


def _require_ours(path: Path, is_known: bool, *, force: bool) -> None:
    if is_known and not force:
        raise UsageError(
            f"{path} has another server named {SERVER_NAME}",
            hint="look at it; --force replaces that entry and nothing else",
        )


def _existing(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as exc:
        raise FileFormatError(f"cannot be read: {exc}", path=str(path)) from exc


def _json_object(path: Path, text: str) -> Mapping[str, Json]:
    try:
        document: Json = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as exc:
        raise FileFormatError(
            f"is not JSON: {exc.msg}", path=str(path), line=exc.lineno, hint="correct it first"
        ) from exc
    if not isinstance(document, Mapping):
        raise FileFormatError("is not a JSON object", path=str(path), hint="correct it first")
    return document


def _servers(path: Path, document: Mapping[str, Json]) -> Mapping[str, Json]:
    servers = document.get("mcp_servers", {})
    if not isinstance(servers, Mapping):
        raise FileFormatError("mcp_servers is not a table", path=str(path), hint="correct it")
    return servers


def _toml(path: Path, text: str) -> Mapping[str, Json]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise FileFormatError(
            f"is not TOML: {exc}", path=str(path), hint="correct it first"
        ) from exc


def _reads_as(text: str, expected: Mapping[str, object]) -> bool:
    try:
        return tomllib.loads(text) == expected
    except tomllib.TOMLDecodeError:
        return False


def _appended(text: str, table: str) -> str:
    if not text.strip():
        return table
    return text.rstrip("\n") + "\n\n" + table


def _without_table(text: str) -> str:
    """Return `text` without our table and its subtables; comments before the next table stay."""
    header = re.compile(rf"^\s*\[\s*mcp_servers\.{SERVER_NAME}\s*(\.[^\]]*)?\]")
    kept: list[str] = []
    held: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if header.match(line):
            inside, held = True, []
        elif line.lstrip().startswith("["):
            kept += held if inside else []
            inside, held = False, []
            kept.append(line)
        elif inside:
            held = [*held, line] if not line.strip() or line.lstrip().startswith("#") else []
        else:
            kept.append(line)
    return "".join(kept)
