"""Console commands at a person's desk: set up, seal, approve, look at the record."""

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from inferproof.console import show, show_error, warn
from inferproof.core.errors import (
    InfrastructureError,
    LedgerError,
    NotFound,
    SealBroken,
    UsageError,
)

if TYPE_CHECKING:
    from inferproof.core.campaign import Target
    from inferproof.doctor import Check
    from inferproof.ledger.signing import ApproverKey
    from inferproof.pipeline import Keeper
    from inferproof.render import Subject
    from inferproof.report import Header

ALTERED = 1
DEMO_WARNING = "DEMO KEY: this seal and its approvals prove nothing. Never use it for real work."


def init(args: argparse.Namespace) -> int:
    """Write a new campaign folder."""
    from inferproof.campaign.files import STATE_FOLDER
    from inferproof.campaign.templates import init as write_template
    from inferproof.campaign.templates import named_model

    model = None if args.model is None else named_model(args.model)
    written = write_template(args.campaign, args.template, model)
    (args.campaign / STATE_FOLDER).mkdir(mode=0o700, exist_ok=True)
    where = args.campaign.resolve()
    text = (
        f"wrote {len(written)} files in {where}\n"
        f"next: edit {where / 'campaign.yaml'}, then run: inferproof seal --campaign {where}"
    )
    facts = {"ok": True, "campaign": str(where), "files": [str(path) for path in written]}
    show(text, facts, as_json=args.json)
    return 0


def seal(args: argparse.Namespace) -> int:
    """Sign the campaign's files as they are, then render skills and goal from them."""
    keeper = _keeper(args)
    if args.demo_key:
        warn(DEMO_WARNING)
    key = _approver_key(keeper, demo=args.demo_key, create=True)
    entry = keeper.seal(key, "demo" if args.demo_key else "passphrase")
    written = _write_rendered(keeper)
    head = keeper.head()
    text = (
        f"sealed {keeper.root} as entry {entry.seq}\nhead {head}\n"
        "keep the head elsewhere; inferproof verify --head takes it\n"
        f"rendered {len(written)} files: skills/ and GOAL.md\n"
        "next: inferproof install claude, or inferproof install codex"
    )
    facts = {"ok": True, "demo": args.demo_key, "entry": entry.digest, "head": head}
    show(text, facts, as_json=args.json)
    return 0


def install(args: argparse.Namespace) -> int:
    """Register the server and the skills with an agent host."""
    from inferproof import install as host
    from inferproof.render import rendered_files

    keeper = _keeper(args)
    folder = (args.dir or keeper.root).resolve()
    user_config = _user_config(args)
    runs_there = folder == keeper.root and user_config is None
    more = () if runs_there else ("--campaign", str(keeper.root))
    changes = host.plan(
        host.place_of(args.host, folder, user_config=user_config),
        host.Registration(command=_own_command(), args=("serve", *more)),
        rendered_files(_subject(keeper)),
        force=args.force,
    )
    if not args.dry_run:
        host.apply(changes)
    words = {"write": "would write" if args.dry_run else "wrote", "same": "kept", "keep": "SKIPPED"}
    lines = [f"{words[c.action]} {c.path}: {c.why}" for c in changes]
    text = "\n".join([*lines, "" if args.dry_run else _after_install(args.host, folder)]).strip()
    told = [{"path": str(c.path), "action": c.action, "why": c.why} for c in changes]
    show(text, {"ok": True, "dry_run": args.dry_run, "changes": told}, as_json=args.json)
    return 0


def _after_install(host: str, folder: Path) -> str:
    return f"next: start {host} in {folder} and give it the goal in GOAL.md"


def approve(args: argparse.Namespace) -> int:
    """Sign the approval of one request, after showing what it is about."""
    keeper = _keeper(args)
    request = keeper.find_request(args.approval_id)
    demo = asyncio.run(keeper.status()).demo
    warn(
        f"{request.action} of candidate {request.candidate} on target {request.target}\n"
        f"reason: {request.reason}\nexpires: {request.expires_at.isoformat()}"
    )
    if demo:
        warn(DEMO_WARNING)
    entry = keeper.approve(request, _approver_key(keeper, demo=demo, create=False))
    text = (
        f"approved {args.approval_id} as entry {entry.seq}\n"
        f"next: the agent calls promote with candidate {request.candidate}"
    )
    facts = {"ok": True, "approval_id": args.approval_id, "entry": entry.digest, "demo": demo}
    show(text, facts, as_json=args.json)
    return 0


def note(args: argparse.Namespace) -> int:
    """Record a person's steering."""
    entry = _keeper(args).note(args.text)
    show(f"noted as entry {entry.seq}", {"ok": True, "entry": entry.digest}, as_json=args.json)
    return 0


def verify(args: argparse.Namespace) -> int:
    """Check chain, signatures, artefacts and verdicts again."""
    try:
        report = _keeper(args).verify(args.head)
    except (SealBroken, LedgerError) as error:
        show_error(error, as_json=args.json)
        return ALTERED
    if report.ok and not report.entries:
        what = f"the record in {args.campaign.resolve()} has no entries: never sealed, or wiped"
        raise UsageError(what, hint="run: inferproof seal; a head kept elsewhere tells: --head HEX")
    against = "" if args.head else "; order is proved only against a head kept elsewhere: --head"
    verdict = "good" if report.ok else "ALTERED"
    lines = [str(finding) for finding in report.findings]
    lines.append(f"{verdict}: {report.entries} entries, head {report.head}{against}")
    show("\n".join(lines), report.model_dump(mode="json"), as_json=args.json)
    return 0 if report.ok else ALTERED


def render(args: argparse.Namespace) -> int:
    """Write skills and goal from the sealed campaign, or check the shipped skills for drift."""
    if args.check:
        return _check_rendered(args)
    if args.library:
        from inferproof.render import library_subject, rendered_files

        written = _write(args.library, rendered_files(library_subject()))
    else:
        written = _write_rendered(_keeper(args))
    text = "\n".join(f"wrote {path}" for path in written)
    show(text, {"ok": True, "files": list(written)}, as_json=args.json)
    return 0


def doctor(args: argparse.Namespace) -> int:
    """Say what this machine, or a target elsewhere, lacks, and how to get it."""
    checks = _looked_for(args)
    missing = [check.name for check in checks if check.state == "missing"]
    lines = [
        f"{c.state:8} {c.name}: {c.detail}" + (f"\n         -> {c.fix}" if c.fix else "")
        for c in checks
    ]
    where = f"on target {args.target}" if args.target else "here"
    verdict = f"checks fail {where} until these are there: {', '.join(missing)}"
    lines.append(verdict if missing else f"checks can run {where}")
    facts = {"ok": not missing, "checks": [check.model_dump(mode="json") for check in checks]}
    show("\n".join(lines), facts, as_json=args.json)
    return InfrastructureError.exit_code if missing else 0


def _looked_for(args: argparse.Namespace) -> "tuple[Check, ...]":
    from inferproof.campaign.files import CAMPAIGN_FILE, open_campaign
    from inferproof.doctor import examine, examine_target

    targets: dict[str, Target] = {}
    state_dir = args.campaign
    if (args.campaign / CAMPAIGN_FILE).is_file():
        files = open_campaign(args.campaign)
        targets, state_dir = files.targets, files.state_dir
    if args.pin and args.target is None:
        raise UsageError("--pin is of one target's host key", hint="name it: --target T")
    if args.target is None:
        return examine({name: t for name, t in targets.items() if t.host == "local"})
    if args.target not in targets:
        known = ", ".join(targets) or "none; name the campaign's folder with --campaign"
        raise NotFound(f"no target {args.target!r} in targets.yaml", hint=f"targets: {known}")
    target = targets[args.target]
    if target.host == "local":
        return examine({args.target: target})
    return examine_target(args.target, target, state_dir, pin=args.pin)


def report(args: argparse.Namespace) -> int:
    """Write every judged job and the champion as one HTML page."""
    from inferproof.install import write_whole
    from inferproof.report import html, rows, searched

    keeper = _keeper(args)
    entries = tuple(keeper.ledger.entries())
    judged = rows(entries, keeper.evidence, lambda c: keeper.candidates.get(c).manifest.note)
    out: Path = args.out or keeper.root / "report.html"
    files = keeper.sealed() if keeper.docket.ruling_seal() else None
    found = files and searched(
        entries,
        files.contracts,
        lambda sealed: keeper.search.standing(sealed, files.campaign.target),
        keeper.evidence,
    )
    write_whole(out, html(_header(keeper, len(entries)), judged, found or ()))
    show(f"wrote {out}", {"ok": True, "file": str(out)}, as_json=args.json)
    return 0


def head(args: argparse.Namespace) -> int:
    """Print the digest of the newest ledger entry."""
    digest = _keeper(args).head()
    show(digest, {"ok": True, "head": digest}, as_json=args.json)
    return 0


def _header(keeper: "Keeper", entries: int) -> "Header":
    from inferproof.report import Header

    status = asyncio.run(keeper.status())
    champions = [c.champion[:12] for c in status.components if c.champion]
    grades = [
        keeper.evidence(job.evidence).grade
        for job in asyncio.run(keeper.jobs())
        if job.evidence is not None
    ]
    separations = sorted({grade.bench.separation for grade in grades if grade is not None})
    return Header(
        campaign=status.campaign,
        goal=status.goal,
        head=keeper.head(),
        entries=entries,
        key_mode="demo" if status.demo else "passphrase",
        separation=", ".join(separations) or "not measured",
        champion=", ".join(champions) or "none",
    )


def _keeper(args: argparse.Namespace) -> "Keeper":
    from inferproof.pipeline import Keeper

    return Keeper.open(args.campaign)


def _subject(keeper: "Keeper") -> "Subject":
    from inferproof.render import subject

    return subject(keeper.sealed(), demo=asyncio.run(keeper.status()).demo)


def _approver_key(keeper: "Keeper", *, demo: bool, create: bool) -> "ApproverKey":
    from platformdirs import user_config_path

    from inferproof.ledger.signing import ApproverKey, ask_passphrase

    if demo:
        path = keeper.state_dir / "demo-approver.pem"
        if create and not path.exists():
            return ApproverKey.create_demo(path)
        return ApproverKey.load_demo(path)
    path = user_config_path("inferproof") / "approver.pem"
    if create and not path.exists():
        warn(f"making your approver key: {path}")
        return ApproverKey.create(path, ask_passphrase(confirm=True))
    return ApproverKey.load(path, ask_passphrase(confirm=False))


def _user_config(args: argparse.Namespace) -> Path | None:
    if not args.user:
        return None
    if args.host != "codex":
        hint = "run: claude mcp add -s user inferproof -- inferproof serve --campaign DIR"
        raise UsageError("--user is for codex", hint=hint)
    home = os.environ.get("CODEX_HOME")
    return (Path(home) if home else Path.home() / ".codex") / "config.toml"


def _own_command() -> str:
    """Return `inferproof` if a host would find this very one by that name, else its full path.

    A virtual environment is on the PATH of only those terminals in which it was activated.
    """
    beside = Path(sys.executable).parent / "inferproof"
    found = shutil.which("inferproof")
    is_virtual = sys.prefix != sys.base_prefix
    is_found = found is not None and not is_virtual and Path(found).resolve() == beside.resolve()
    return "inferproof" if is_found or not beside.exists() else str(beside)


def _check_rendered(args: argparse.Namespace) -> int:
    from importlib.resources import files

    from inferproof.render import drift, library_subject, rendered_files

    folder = args.library or Path(str(files("inferproof.skills")))
    drifted = drift(folder, rendered_files(library_subject()))
    hint = f"\nrun: inferproof render --library {folder}" if drifted else ""
    text = "\n".join(f"differs: {folder / path}" for path in drifted) + hint
    facts = {"ok": not drifted, "differs": list(drifted)}
    show(text or "skills are as rendered", facts, as_json=args.json)
    return ALTERED if drifted else 0


def _write_rendered(keeper: "Keeper") -> tuple[str, ...]:
    from inferproof.render import goal, rendered_files

    subject = _subject(keeper)
    texts = {f"skills/{path}": text for path, text in rendered_files(subject).items()}
    return _write(keeper.root, {**texts, "GOAL.md": goal(subject)})


def _write(folder: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    from inferproof.install import write_whole

    for path, text in texts.items():
        write_whole(folder / path, text)
    return tuple(str(folder / path) for path in texts)
