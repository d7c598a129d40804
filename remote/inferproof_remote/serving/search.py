"""The `search` verb: configurations of the baseline engine, each held to what candidates are.

Every configuration of a job gets the same prompts, in a drawn order of starts. One that does not
start, breaks or answers wrongly is told like the others: the server judges, and nothing is skipped
but for time.
"""

import gzip
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from inferproof_remote import facts, job
from inferproof_remote.sent import CHECKED, checked
from inferproof_remote.serving.balancer import find_haproxy
from inferproof_remote.serving.client import Client
from inferproof_remote.serving.deployment import Arm, Deployment
from inferproof_remote.serving.features import Features, suited
from inferproof_remote.serving.plans import Plan, parse_plan
from inferproof_remote.serving.serve import BITS, Facts, Order, read_order
from inferproof_remote.stream import Stream

if TYPE_CHECKING:  # it loads torch and transformers
    from inferproof_remote.serving.examiner import Examiner

_DEFAULT = 0


@dataclass(slots=True)
class Trial:
    """One configuration, and what has been measured of it so far."""

    number: int
    options: Facts
    plan: Plan
    deployments: list[Facts] = field(default_factory=list[Facts])
    fidelity: list[Facts] = field(default_factory=list[Facts])
    loads: list[Facts] = field(default_factory=list[Facts])

    @property
    def arm(self) -> Arm:
        """The contract's own configuration is what all others are compared with."""
        return "baseline" if self.number == _DEFAULT else "candidate"

    def told(self) -> Facts:
        """Return it in the form of the server's `TrialFacts`."""
        names = ("number", "options", "deployments", "fidelity", "loads")
        return {name: getattr(self, name) for name in names}


@dataclass(slots=True)
class _Clock:
    """Says whether there is time for another start, as long as the longest so far."""

    until_s: float | None
    began: float
    longest_s: float = 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def has_time(self) -> bool:
        return self.until_s is None or self.seconds + self.longest_s < self.until_s


def search(job_dir: Path) -> Facts:
    """Return the facts of `job_dir`'s job, in the form of the server's `SearchFacts`."""
    order, clock = read_order(job_dir), _Clock(_until_s(job_dir), time.monotonic())
    contract = checked(
        job_dir / CHECKED / "contract", job.as_table(order.spec["contract_files"], "contract")
    )
    trials = [_trial(raw) for raw in cast("Sequence[object]", order.spec["trials"])]
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from inferproof_remote.serving.examiner import Examiner  # loads torch and transformers

    job.report_progress(job_dir, 0, 1, "loading the reference")
    examiner = Examiner(order, os.urandom(BITS // 8))
    done, total = 0, len(trials) * order.restarts
    for restart in range(order.restarts):
        for trial in Stream(examiner.bits, f"order {restart}").shuffled(trials):
            if trial.number == _DEFAULT or clock.has_time():
                what = "the contract's own options" if trial.number == 0 else str(trial.options)
                job.report_progress(job_dir, done, total, f"round {restart + 1}: {what}")
                began = clock.seconds
                _one_start(order, examiner, trial, restart)
                clock.longest_s = max(clock.longest_s, clock.seconds - began)
            done += 1
    shutil.rmtree(job_dir / "work", ignore_errors=True)
    bench = facts.bench(order.threads)
    names = ("separation", "sandbox", "cpu_model", "cores", "versions")
    return {
        "bits": examiner.bits.hex(),
        "contract_seen": job.digest_json(contract.digests),
        "model_name": job.as_table(order.spec["model"], "model")["name"],
        "model_digest": examiner.model_digest,
        **{name: bench[name] for name in names},
        "stage": order.spec["stage"],
        "trials": [trial.told() for trial in trials if trial.deployments],
        "seconds": clock.seconds,
    }


def _until_s(job_dir: Path) -> float | None:
    until = job.read_job(job_dir).spec["until_s"]
    return None if until is None else job.as_number(until, "until_s")


def _trial(raw: object) -> Trial:
    table = job.as_table(raw, "trial")
    return Trial(
        number=int(job.as_number(table["number"], "number")),
        options=dict(job.as_table(table["options"], "options")),
        plan=parse_plan(table["plan"]),
    )


def _one_start(order: Order, examiner: "Examiner", trial: Trial, restart: int) -> None:
    """Start a configuration, hold its first start against the reference, put it under load."""
    deployment = Deployment(
        trial.plan,
        arm=trial.arm,
        place=order.place("baseline"),
        replicas=1,
        haproxy=order.tool("haproxy") or find_haproxy(),
        name=f"trial-{trial.number}-{restart}",
    )
    with deployment:
        features = Features()
        if deployment.ready_s is not None:
            client = suited(Client(deployment.endpoint).first_model())
            features = examiner.features(client)
            if trial.number != _DEFAULT and restart == 0:
                trial.fidelity.append(examiner.examine(client, features, trial.arm, restart))
            for shape in order.traffic:
                load = examiner.load(
                    client,
                    features,
                    shape,
                    arm=trial.arm,
                    restart=restart,
                    on_progress=lambda _done, _of: None,
                    given_up=lambda: bool(deployment.incidents()),
                )
                trial.loads.append(load)
        trial.deployments.append(deployment.facts(restart=restart, features=features.as_facts()))
    _keep_exports(order, trial, restart)


def _keep_exports(order: Order, trial: Trial, restart: int) -> None:
    """Keep what the load client exported as compressed files of the evidence; drop the rest."""
    kept = order.job_dir / "out" / "files"
    kept.mkdir(parents=True, exist_ok=True)
    for load in sorted((order.job_dir / "work").glob("load-*")):
        for path in load.rglob("profile_export_raw.jsonl"):
            name = f"trial-{trial.number}-{restart}-{load.name.rpartition('-')[2]}.jsonl.gz"
            with path.open("rb") as records, gzip.open(kept / name, "wb") as packed:
                shutil.copyfileobj(records, packed)
        shutil.rmtree(load, ignore_errors=True)
