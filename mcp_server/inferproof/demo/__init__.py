"""The demo: a person's part by console commands, an agent's part by a real MCP client over stdio.

Ends in 0 only if the honest kernel is accepted and promoted, an honest engine is found right,
deployed and judged per metric (with search: against a baseline that plain search has tuned), every
cheat is refused for its own reason, the record verifies, and one flipped byte in it is found.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path

from inferproof.campaign.templates import Model
from inferproof.console import show, warn
from inferproof.core.errors import InfrastructureError, UsageError
from inferproof.demo.play import Played, Player, server_parameters
from inferproof.demo.story import (
    CHEATS,
    ENGINE,
    ENGINE_CHEATS,
    HONEST,
    LOADED,
    PROMOTED,
    Act,
)

_ENGINE_CONTRACT = "contracts/services/completions/contract.yaml"
# The demo is short: fewer draws and pairs, one timed shape, no task file, fewer sampled tokens.
_SHORTER = {
    "contracts/kernels/rms_norm/contract.yaml": {
        "draw: 8": "draw: 5",
        "neighbours: [-1, 1]": "neighbours: [1]",
        ", {tokens: [6144, 8192]}]": "]",
        "pairs: 20": "pairs: 12",
    },
    _ENGINE_CONTRACT: {
        "tasks: {file: tasks.jsonl, margin: 0.1}\n": "",
        "tokens: 640": "tokens: 160",
    },
}
LOUD = "DEMO KEY: this campaign is sealed with a throw-away key; its approvals prove nothing."


def run(*, keep: Path | None, model: Model, search: bool, as_json: bool) -> int:
    """Play the demo in `keep`, or in a folder that is removed afterwards; return the exit code."""
    if keep is not None:
        return _in_folder(_fresh(keep), model, search=search, as_json=as_json)
    with tempfile.TemporaryDirectory(prefix="inferproof-demo-") as folder:
        return _in_folder(Path(folder) / "campaign", model, search=search, as_json=as_json)


def _edit_contracts(campaign: Path, *, search: bool) -> None:
    """Write into the contracts, as a person would before the seal, what the demo asks of them."""
    for name, changes in _SHORTER.items():
        text = (campaign / name).read_text(encoding="utf-8")
        for old, new in changes.items():
            text = text.replace(old, new)
        (campaign / name).write_text(text, encoding="utf-8")
    if search:
        section = files("inferproof.demo").joinpath("search.yaml").read_text(encoding="utf-8")
        with (campaign / _ENGINE_CONTRACT).open("a", encoding="utf-8") as contract:
            contract.write(section)


def _fresh(folder: Path) -> Path:
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", hint="name a new folder: --keep DIR")
    return folder.resolve()


def _in_folder(campaign: Path, model: Model, *, search: bool, as_json: bool) -> int:
    warn(LOUD)
    served = f"{model.name}={model.folder}"
    _console("init", "--template", "demo", "--model", served, campaign=campaign)
    _edit_contracts(campaign, search=search)
    _console("seal", "--demo-key", campaign=campaign)
    with as_file(files("inferproof.demo")) as here:
        played, found = asyncio.run(_agent(campaign, here, search=search))
    checks = _record(campaign)
    _console("report", "--out", str(campaign / "report.html"), campaign=campaign)
    ok = all(act.as_expected for act in played) and all(checks.values())
    if as_json:
        told = [act.told() for act in played]
        show("", {"ok": ok, "acts": told, "search": found, "record": checks}, as_json=True)
    else:
        _print_table(played, found, checks)
    warn(f"report: {campaign / 'report.html'}" if campaign.exists() else "")
    return 0 if ok else 1


async def _agent(
    campaign: Path, candidates: Path, *, search: bool
) -> tuple[tuple[Played, ...], str]:
    """Play the agent's part: submit, have it judged, ask for a promotion; say what search found."""
    from mcp import Client

    async with Client(server_parameters(campaign)) as client:
        player = Player(client, candidates)
        played = [await _act(player, HONEST), await _promotion(player, campaign)]
        played += [await _act(player, cheat) for cheat in CHEATS]
        played.append(await _act(player, ENGINE))
        warn("deploy: the engine as 2 replicas behind a balancer ...")
        warn(f"    {await player.deployed(ENGINE, replicas=2)}")
        found = await _search(player) if search else "search: not asked for"
        played += [await _act(player, act) for act in (LOADED, *ENGINE_CHEATS)]
    return tuple(played), found


async def _search(player: Player) -> str:
    warn("search_config: the baseline's options, tried until the best is proved ...")
    found = await player.searched()
    warn(f"    {found}")
    return found


async def _act(player: Player, act: Act) -> Played:
    warn(f"{act.folder}: {act.trick} ...")
    played = await player.play(act)
    warn(f"    {played.verdict.value} ({played.code.value}): {played.reason}")
    for line in played.figures:
        warn(f"      {line}")
    return played


async def _promotion(player: Player, campaign: Path) -> Played:
    """Ask for the honest kernel to be promoted; a person approves; ask again."""
    warn("promote: every gate again, then a person's signature ...")
    candidate = await player.submit(PROMOTED)
    asked = await player.promote(candidate)
    approval_id = asked["approval_id"]
    if approval_id is None:
        return player.told(PROMOTED, candidate, asked)
    warn(
        f"    {asked['verdict']} ({asked['code']}): a person runs inferproof approve {approval_id}"
    )
    _console("approve", str(approval_id), campaign=campaign)
    played = player.told(PROMOTED, candidate, await player.promote(candidate))
    warn(f"    {played.verdict.value} ({played.code.value}): {played.reason}")
    return played


def _record(campaign: Path) -> dict[str, bool]:
    """Verify the record, then a copy of it with one byte flipped."""
    head = _console("head", campaign=campaign).stdout.strip()
    sound = _console("verify", "--head", head, campaign=campaign, may_fail=True)
    copy = campaign.with_name(f"{campaign.name}-altered")
    shutil.copytree(campaign, copy, ignore=shutil.ignore_patterns("jobs"))
    entry = _flip_a_byte(copy / ".inferproof/ledger.jsonl")
    altered = _console("verify", "--head", head, campaign=copy, may_fail=True)
    shutil.rmtree(copy)
    named = f"entry {entry} " in altered.stdout
    warn(f"verify: {sound.stdout.strip().splitlines()[-1]}")
    warn(f"one byte of entry {entry} flipped: exit {altered.returncode}, entry named: {named}")
    return {
        "record verifies": sound.returncode == 0,
        "a flipped byte is found": altered.returncode == 1,
        "and its entry is named": named,
    }


def _flip_a_byte(ledger: Path) -> int:
    """Change one digit inside the body of a middle entry; return the entry's number."""
    lines = ledger.read_bytes().splitlines(keepends=True)
    number = len(lines) // 2
    line = bytearray(lines[number])
    line[line.rindex(b'"kind":"') + len(b'"kind":"')] ^= 1
    lines[number] = bytes(line)
    ledger.write_bytes(b"".join(lines))
    return number


def _console(
    *words: str, campaign: Path, may_fail: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a console command as a person would."""
    done = subprocess.run(
        [sys.executable, "-m", "inferproof.cli", *words, "--campaign", str(campaign)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 and not may_fail:
        raise InfrastructureError(
            f"inferproof {words[0]} ended in {done.returncode}: {done.stderr.strip()}"
        )
    return done


def _print_table(played: tuple[Played, ...], search: str, checks: Mapping[str, bool]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="inferproof demo", show_lines=True)
    for column in ("candidate", "what it tries", "verdict", "reason", "entry"):
        table.add_column(column, overflow="fold")
    for act in played:
        mark = "" if act.as_expected else " (UNEXPECTED)"
        verdict = f"{act.verdict.value}\n{act.code.value}{mark}"
        table.add_row(act.act.folder, act.act.trick, verdict, act.reason, act.entry[:12])
    table.add_row("the baseline", "is tuned by plain search before it is the bar", "", search, "")
    for what, held in checks.items():
        table.add_row("the ledger", what, "yes" if held else "NO (UNEXPECTED)", "", "")
    Console().print(table)
