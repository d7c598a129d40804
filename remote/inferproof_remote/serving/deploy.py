"""The `deploy` verb: replicas behind one endpoint until they are told to end."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inferproof_remote import job
from inferproof_remote.incidents import BenchError
from inferproof_remote.sent import CHECKED, checked
from inferproof_remote.serving.balancer import find_haproxy
from inferproof_remote.serving.deployment import Deployment
from inferproof_remote.serving.plans import Place, parse_plan

CONTROL = "control.json"
STATE = "deployment.json"
_STEP_S = 0.1
_FAREWELL_S = 20.0
_MOST_REPLICAS = 256


@dataclass(frozen=True, slots=True)
class _Seen:
    """What anyone who looks at the deployment is told."""

    endpoint: str
    asked: int
    healthy: int
    incidents: int


def deploy(job_dir: Path) -> dict[str, object]:
    """Serve until the time is up or no replica is left; return how it went.

    Whoever cancels the job ends it earlier. `control.json` says how many replicas are wanted.
    """
    asked = job.read_job(job_dir)
    until = time.monotonic() + asked.wall_s - min(_FAREWELL_S, asked.wall_s / 4)
    spec = asked.spec
    files = job.as_table(spec["candidate_files"], "candidate_files")
    sent = checked(job_dir / CHECKED / "candidate", files)
    if sent.strangers:
        raise BenchError(sent.strangers[0].detail)
    model = job.as_table(spec["model"], "model")
    work = job_dir / "work"
    work.mkdir()
    place = Place(
        candidate=job_dir / CHECKED / "candidate",
        model=Path(str(model["path"])),
        limits=job.as_table(spec["limits"], "limits"),
        threads=int(job.as_number(spec["threads"], "threads")),
        work=work,
    )
    replicas = int(job.as_number(spec["replicas"], "replicas"))
    job.report_progress(job_dir, 0, replicas, f"starting {replicas} replicas")
    deployment = Deployment(
        parse_plan(spec["plan"]),
        arm="candidate",
        place=place,
        replicas=replicas,
        haproxy=_haproxy(spec),
        name="candidate",
    )
    with deployment:
        _follow(job_dir, deployment, until)
        return _facts(job_dir, deployment)


def _follow(job_dir: Path, deployment: Deployment, until: float) -> None:
    """Tell what changes and do what is asked, to the end."""
    told: _Seen | None = None
    while True:
        seen = _look(deployment)
        if seen != told:
            _tell(job_dir, deployment, seen)
            told = seen
        if time.monotonic() > until or not deployment.is_alive:
            return
        wanted = _wanted(job_dir, deployment.asked)
        if wanted != deployment.asked:
            deployment.scale(wanted)
        time.sleep(_STEP_S)


def _look(deployment: Deployment) -> _Seen:
    return _Seen(
        deployment.endpoint,
        deployment.asked,
        deployment.healthy(),
        len(deployment.incidents()),
    )


def _tell(job_dir: Path, deployment: Deployment, seen: _Seen) -> None:
    state = json.dumps(_facts(job_dir, deployment), allow_nan=False)
    job.write_atomically(job_dir / "out" / STATE, state)
    where = seen.endpoint or "no endpoint"
    message = f"{where}, {seen.healthy} of {seen.asked} replicas healthy"
    job.report_progress(job_dir, seen.healthy, seen.asked, message)


def _facts(job_dir: Path, deployment: Deployment) -> dict[str, object]:
    return {
        "candidate_seen": job.read_job(job_dir).spec["candidate_digest"],
        "endpoint": deployment.endpoint,
        "deployments": [deployment.facts(restart=0, features={})],
    }


def _haproxy(spec: Mapping[str, object]) -> Path | None:
    named = job.as_table(spec["tools"], "tools")["haproxy"]
    return find_haproxy() if named is None else Path(str(named))


def _wanted(job_dir: Path, present: int) -> int:
    """Return how many replicas `control.json` asks for; what it says otherwise changes nothing."""
    try:
        table = job.as_table(json.loads((job_dir / CONTROL).read_bytes()), CONTROL)
        wanted = int(job.as_number(table["replicas"], "replicas"))
    except (OSError, ValueError, KeyError):
        return present
    return wanted if 1 <= wanted <= _MOST_REPLICAS else present
