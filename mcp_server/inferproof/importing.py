"""The console command for contracts: list and add the shipped ones, import a FlashInfer-Trace."""

import argparse
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from inferproof.campaign.contracts import CONTRACT_FILE, load_contract, resolve_dims
from inferproof.campaign.files import CAMPAIGN_FILE
from inferproof.campaign.flashinfer.contract import REVIEW, Imported, map_definition
from inferproof.campaign.flashinfer.trace import Left, read_definition, read_workloads
from inferproof.campaign.templates import shipped_contract, shipped_contracts, write_new
from inferproof.campaign.tree import read_file
from inferproof.console import show
from inferproof.core.canonical import Json
from inferproof.core.contract import KernelContract
from inferproof.core.errors import InfrastructureError, UsageError

REFERENCE_FILE, DEFINITION_FILE, LEFT_FILE = "reference.py", "definition.json", "not-mapped.md"
NOT_JUDGEABLE = 2
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_LIMIT_BYTES = 8 << 20
_IN_BLOCKS = frozenset({"dims", "inputs", "params", "outputs", "workloads"})


def contracts(args: argparse.Namespace) -> int:
    """List the contracts that are shipped, add one to the campaign, or import one."""
    if args.action == "list":
        names = shipped_contracts()
        show("\n".join(names), {"ok": True, "contracts": list(names)}, as_json=args.json)
        return 0
    if args.what is None:
        hint = "run: inferproof contracts list" if args.action == "add" else "name its JSON file"
        raise UsageError(f"contracts {args.action} needs the name of what to add", hint=hint)
    return _add(args) if args.action == "add" else _import(args)


def _add(args: argparse.Namespace) -> int:
    """Copy a shipped contract into the campaign."""
    if args.what not in shipped_contracts():
        what = f"no contract {args.what!r} is shipped"
        raise UsageError(what, hint=f"there are: {', '.join(shipped_contracts())}")
    if not (args.campaign / CAMPAIGN_FILE).is_file():
        what = f"there is no campaign in {args.campaign.resolve()}"
        raise UsageError(what, hint="run: inferproof init, or name it with --campaign DIR")
    written = write_new(args.campaign, shipped_contract(args.what))
    text = (
        f"wrote {len(written)} files of contract {args.what}\n"
        f"next: add `- {{contract: {args.what}}}` under `components:` in "
        f"{args.campaign / CAMPAIGN_FILE}, then run: inferproof seal"
    )
    facts = {"ok": True, "contract": args.what, "files": [str(path) for path in written]}
    show(text, facts, as_json=args.json)
    return 0


def _import(args: argparse.Namespace) -> int:
    """Write a contract folder; write nothing if the definition makes no judgeable contract."""
    source = Path(args.what)
    definition = read_definition(source)
    rows = () if args.workloads is None else read_workloads(args.workloads, definition)
    if args.out is None:
        raise UsageError("contracts import needs --out", hint="--out contracts/kernels/NAME")
    out: Path = (args.campaign / args.out).resolve()
    _require_new(out)
    imported = map_definition(out.name, definition, rows)
    files = _files(imported, read_file(source, limit_bytes=_LIMIT_BYTES))
    left = imported.left
    if imported.contract:
        left = (*left, *_write(out, files))
    written = not any(each.blocks for each in left)
    facts: dict[str, Json] = {
        "ok": written,
        "contract": str(out) if written else None,
        "not_mapped": [
            {"field": e.field, "value": e.value, "why": e.why, "blocks": e.blocks} for e in left
        ],
        "review": list(REVIEW) if written else [],
    }
    show(_told(out, left, written=written), facts, as_json=args.json)
    return 0 if written else NOT_JUDGEABLE


def _require_new(out: Path) -> None:
    if not _NAME.fullmatch(out.name):
        what = f"--out names the contract, and {out.name!r} is no name of one"
        raise UsageError(what, hint="lower-case letters, digits, '_', '.' and '-', at most 64")
    if out.exists():
        raise UsageError(f"{out} exists and is never overwritten", hint="name another folder")
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}", hint="make it, or name another --out")


def _files(imported: Imported, definition: bytes) -> dict[str, bytes]:
    return {
        CONTRACT_FILE: _yaml(imported.contract).encode(),
        REFERENCE_FILE: imported.reference.encode(),
        DEFINITION_FILE: definition,
        LEFT_FILE: _page(imported.left).encode(),
    }


def _yaml(contract: Mapping[str, Json]) -> str:
    """Return the contract as the shipped ones are written: one argument, dim or list a line."""
    lines: list[str] = []
    for key, value in contract.items():
        if key in _IN_BLOCKS and isinstance(value, dict):
            lines += [f"{key}:", *(f"  {_flow(name, each)}" for name, each in value.items())]
        else:
            lines.append(_flow(key, value))
    return "\n".join(lines) + "\n"


def _flow(key: str, value: Json) -> str:
    import yaml  # only this command writes YAML

    page = yaml.safe_dump({key: value}, default_flow_style=True, sort_keys=False, width=1 << 20)
    return page.strip()[1:-1]


def _write(out: Path, files: Mapping[str, bytes]) -> list[Left]:
    """Put the folder in its place once it is a contract; return what the loader refuses, if any."""
    try:
        with tempfile.TemporaryDirectory(prefix=".importing-", dir=out.parent) as scratch:
            return _move(Path(scratch) / out.name, out, files)
    except OSError as error:
        what = f"cannot write {error.filename or out}: {error.strerror}"
        raise InfrastructureError(what) from error


def _move(made: Path, out: Path, files: Mapping[str, bytes]) -> list[Left]:
    made.mkdir()
    for name, data in files.items():
        (made / name).write_bytes(data)
    try:
        contract = load_contract(made).contract
        if isinstance(contract, KernelContract):
            resolve_dims(contract, {})
    except UsageError as error:
        why = error.what.replace(f"{made}/", "")
        return [Left(field="contract", value=out.name, why=why, blocks=True)]
    made.rename(out)
    return []


def _told(out: Path, left: Sequence[Left], *, written: bool) -> str:
    needed = [each for each in left if each.blocks]
    lines = [f"wrote {out}, which nobody has reviewed" if written else "wrote nothing"]
    if needed:
        lines += ["a contract cannot be without:", *map(_line, needed)]
    others = [each for each in left if not each.blocks]
    if others:
        lines += ["not mapped:", *map(_line, others)]
    if written:
        lines += ["before you seal it:", *(f"  {each}" for each in REVIEW)]
    return "\n".join(lines)


def _line(left: Left) -> str:
    value = " ".join(left.value.split())
    return f"  {left.field} = {value[:100]}: {left.why}"


def _page(left: Sequence[Left]) -> str:
    rows = "".join(f"| {_cell(e.field)} | {_cell(e.value)} | {_cell(e.why)} |\n" for e in left)
    table = f"| field | value | why |\n| --- | --- | --- |\n{rows}" if left else "Nothing.\n"
    review = "".join(f"- {each}\n" for each in REVIEW)
    return f"# Not mapped\n\n{table}\n# Before it is sealed\n\n{review}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
