"""The console command that deploys engines for users; beyond a test place a person agrees first."""

import argparse
import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import assert_never

from inferproof.campaign.files import CampaignFiles
from inferproof.console import show
from inferproof.core.campaign import Target
from inferproof.core.errors import InfrastructureError, NotFound, UsageError
from inferproof.core.places import Cluster, DeployPlace, DockerPlace, ProcessPlace, TrussPlace
from inferproof.core.values import utc_now
from inferproof.deploy_jobs import DeployJobs
from inferproof.ledger import approvals
from inferproof.pipeline import Keeper
from inferproof.serving.deployers.base import Deployer, Release, Service, Status
from inferproof.serving.deployers.process import Process
from inferproof.serving.engines import candidate_plan

_ASKS_A_PERSON = 4
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_POLL_S, _DAY_S = 1.0, 86400.0


def deployment(args: argparse.Namespace) -> int:
    """Deploy, look at, change or end a deployment in a place of a target; return the exit code."""
    for told in (args.name, *((args.to,) if args.to and args.action == "promote" else ())):
        _require_label(told)
    keeper = Keeper.open(args.campaign)
    files = keeper.sealed()
    place = _place(files, args.target, args.place)
    jobs = DeployJobs(keeper, args.target)
    deployer = _deployer(place, files.targets[args.target], jobs, keeper.state_dir)
    act = _ACTIONS[args.action]
    if args.action in _CHANGING and not place.is_test:
        subject = approvals.Subject(
            action=f"{args.action} {args.name} in {args.place}{_details(args)}",
            candidate=keeper.candidates.get(_needed(args.candidate, "--candidate")).digest,
            target=args.target,
        )
        asked = _ask_unless_approved(keeper, subject, files)
        if asked is not None:
            told = f"approval needed: a person runs: inferproof approve {asked}; then repeat this"
            show(told, {"ok": False, "approval_id": asked}, as_json=args.json)
            return _ASKS_A_PERSON
    return act(args, deployer, keeper)


def _require_label(name: str) -> None:
    """Refuse what could name anything but a deployment: names become folders and labels."""
    if not _LABEL.fullmatch(name):
        what = f"{name!r} is no name of a deployment"
        raise UsageError(what, hint="a-z, 0-9 and - within, at most 40")


def _details(args: argparse.Namespace) -> str:
    """Return what else a person approves: all that changes what will run, or where."""
    asked = {"to": args.to, "model": args.model}
    counts = {"replicas": args.replicas - 1, "gpus-each": args.gpus_each}
    told = [f"{name} {value}" for name, value in asked.items() if value]
    told += [f"{name} {getattr(args, name.replace('-', '_'))}" for name, n in counts.items() if n]
    return f" with {', '.join(told)}" if told else ""


def _deploy(args: argparse.Namespace, deployer: Deployer, keeper: Keeper) -> int:
    status = deployer.deploy(_release(args, keeper))
    return _told(args, _settled(args, deployer, status))


def _promote(args: argparse.Namespace, deployer: Deployer, keeper: Keeper) -> int:
    candidate = keeper.candidates.get(args.candidate).digest if args.candidate else None
    if candidate is not None and deployer.status(args.name).candidate != candidate:
        what = f"{args.name} is not candidate {candidate}"
        raise UsageError(what, hint="see: inferproof deployment status")
    status = deployer.promote(args.name, _needed(args.to, "--to"))
    return _told(args, _settled(args, deployer, status, name=args.to))


def _render(args: argparse.Namespace, deployer: Deployer, keeper: Keeper) -> int:
    files = deployer.render(_release(args, keeper))
    wrong = deployer.validate(files)
    if wrong:
        raise UsageError("; ".join(wrong), hint="mend the place in targets.yaml and seal again")
    out = Path(_needed(args.out, "--out"))
    for name, data in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    show(
        f"wrote {len(files)} files in {out}", {"ok": True, "files": list(files)}, as_json=args.json
    )
    return 0


def _push(args: argparse.Namespace, deployer: Deployer, keeper: Keeper) -> int:
    from inferproof.serving.deployers.docker import Docker

    if not isinstance(deployer, Docker):
        raise UsageError(f"{args.place} builds no images", hint="name a place of kind docker")
    image = deployer.push(_release(args, keeper), _needed(args.to, "--to"))
    show(image, {"ok": True, "image": image}, as_json=args.json)
    return 0


def _logs(args: argparse.Namespace, deployer: Deployer, keeper: Keeper) -> int:
    del keeper
    lines = list(deployer.logs(args.name, since_s=_DAY_S))
    show("\n".join(lines), {"ok": True, "lines": lines}, as_json=args.json)
    return 0


def _endpoint(args: argparse.Namespace, deployer: Deployer, keeper: Keeper) -> int:
    del keeper
    found = deployer.endpoint(args.name)
    show(found.url, {"ok": True, **found.model_dump(mode="json")}, as_json=args.json)
    return 0


def _status(args: argparse.Namespace, deployer: Deployer, keeper: Keeper) -> int:
    del keeper
    return _told(args, deployer.status(args.name))


def _scale(args: argparse.Namespace, deployer: Deployer, keeper: Keeper) -> int:
    del keeper
    return _told(args, _settled(args, deployer, deployer.scale(args.name, args.replicas)))


def _rollback(args: argparse.Namespace, deployer: Deployer, keeper: Keeper) -> int:
    del keeper
    return _told(args, _settled(args, deployer, deployer.rollback(args.name)))


def _delete(args: argparse.Namespace, deployer: Deployer, keeper: Keeper) -> int:
    del keeper
    return _told(args, deployer.delete(args.name))


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Deployer, Keeper], int]] = {
    "render": _render,
    "push": _push,
    "deploy": _deploy,
    "status": _status,
    "endpoint": _endpoint,
    "scale": _scale,
    "promote": _promote,
    "rollback": _rollback,
    "logs": _logs,
    "delete": _delete,
}
_CHANGING = ("deploy", "promote")
"""What brings a version to users that was not there before: a person agrees to it."""


def _ask_unless_approved(
    keeper: Keeper, subject: approvals.Subject, files: CampaignFiles
) -> str | None:
    """Use the approval of this action up, or return the request that a person has to answer."""
    now = utc_now()
    if approvals.find_valid(keeper.ledger, subject, now=now).approval_id is not None:
        approvals.use(keeper.ledger, subject, now=now)
        return None
    asked = approvals.request(
        keeper.ledger,
        subject,
        expires_at=now + timedelta(hours=files.campaign.approvals.expire_after_h),
        reason=f"{subject.action} on {subject.target}: it will serve users",
        now=now,
    )
    return asked.approval_id


def _place(files: CampaignFiles, target: str, name: str) -> DeployPlace:
    if target not in files.targets:
        hint = f"targets: {', '.join(files.targets)}"
        raise NotFound(f"no target {target!r} in targets.yaml", hint=hint)
    places = files.targets[target].places
    if name not in places:
        known = ", ".join(places) or "none"
        raise NotFound(f"target {target} has no place {name!r}", hint=f"its places: {known}")
    return places[name]


def _deployer(place: DeployPlace, target: Target, jobs: DeployJobs, state: Path) -> Deployer:
    match place:
        case ProcessPlace():
            return Process(state / "deployments" / "jobs", jobs)
        case DockerPlace():
            from inferproof.serving.deployers.docker import Docker

            return Docker(
                state / "deployments",
                url=place.url,
                base_image=place.base_image,
                haproxy=target.haproxy or "haproxy",
            )
        case Cluster():
            from inferproof.serving.deployers.kubernetes import Kubernetes

            return Kubernetes(place)
        case TrussPlace():
            from inferproof.serving.deployers.truss import Truss

            return Truss(base_image=place.base_image, accelerator=place.accelerator)
        case _:
            assert_never(place)


def _release(args: argparse.Namespace, keeper: Keeper) -> Release:
    files = keeper.sealed()
    candidate = keeper.candidates.get(_needed(args.candidate, "--candidate"))
    target, campaign = files.targets[args.target], files.campaign
    service = Service(
        name=args.name,
        candidate=candidate.digest,
        plan=candidate_plan(candidate.engine),
        replicas=args.replicas,
        limits=campaign.limits,
        threads=target.threads or 1,
        gpus_each=args.gpus_each,
        model=args.model or target.models.get(campaign.model.name, ""),
    )
    return Release(service=service, contents=keeper.candidates.contents(candidate.digest))


def _settled(
    args: argparse.Namespace, deployer: Deployer, status: Status, *, name: str | None = None
) -> Status:
    """Return how it stands once it is ready, or after `--wait-s`."""
    deadline = time.monotonic() + args.wait_s
    while status.phase == "starting" and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        status = deployer.status(name or args.name)
    return status


def _told(args: argparse.Namespace, status: Status) -> int:
    body = status.model_dump(mode="json")
    show(json.dumps(body, indent=1), {"ok": status.phase != "degraded", **body}, as_json=args.json)
    return InfrastructureError.exit_code if status.phase == "degraded" else 0


def _needed(given: str | None, option: str) -> str:
    if given is None:
        raise UsageError(f"{option} is missing", hint="see: inferproof deployment --help")
    return given
