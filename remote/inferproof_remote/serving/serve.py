"""The `serve` verb: start both arms, hold the candidate against the reference, put both under load.

One round is one start of each arm, in a drawn order, under the same prompts. What is examined and
what is loaded is the same running deployment.
"""

import gzip
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from inferproof_remote import facts, job
from inferproof_remote.incidents import Incident
from inferproof_remote.sent import CHECKED, Checked, checked
from inferproof_remote.serving.balancer import find_haproxy
from inferproof_remote.serving.client import Client
from inferproof_remote.serving.deployment import Arm, Deployment
from inferproof_remote.serving.features import Features, suited
from inferproof_remote.serving.lm_eval import EvalOrder, evaluate, find_lm_eval
from inferproof_remote.serving.patience import paced
from inferproof_remote.serving.plans import Place, Plan, parse_plan
from inferproof_remote.stream import Stream

if TYPE_CHECKING:  # they load torch and transformers
    from inferproof_remote.serving.examiner import Examiner
    from inferproof_remote.serving.load import OnProgress

BITS = 256
_START, _EXAMINE = 1, 2
Facts = dict[str, object]
Table = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A serve job as values. `plans` has the arms that are to run."""

    job_dir: Path
    spec: Table
    contract: Table
    plans: Mapping[Arm, Plan]
    model: Path
    replicas: int
    restarts: int
    traffic: Sequence[Table]

    def rules(self, part: str) -> Table:
        """Return one part of the contract."""
        return job.as_table(self.contract[part], part)

    def place(self, arm: Arm) -> Place:
        """Return where an arm's replicas run; the baseline has no files of the candidate's."""
        work = self.job_dir / "work"
        work.mkdir(exist_ok=True)
        return Place(
            candidate=self.job_dir / CHECKED / "candidate" if arm == "candidate" else None,
            model=self.model,
            limits=job.as_table(self.spec["limits"], "limits"),
            threads=self.threads,
            work=work,
        )

    @property
    def threads(self) -> int:
        """How many threads an engine and the reference may use."""
        return int(job.as_number(self.spec["threads"], "threads"))

    def tool(self, name: str) -> Path | None:
        """Return where the target says that a program lies."""
        path = job.as_table(self.spec["tools"], "tools").get(name)
        return None if path is None else Path(str(path))

    @property
    def loads(self) -> bool:
        """Whether both arms are put under load."""
        return self.has("load")

    def sealed(self, name: str) -> Path:
        """Return where a file or folder of the contract lies, as it was hashed."""
        return self.job_dir / CHECKED / "contract" / name

    def has(self, stage: str) -> bool:
        """Whether the job has a stage."""
        return stage in job.as_texts(self.spec["stages"], "stages")

    @property
    def steps(self) -> int:
        """How many steps of progress the whole job has."""
        starts = self.restarts * len(self.plans) * (_START + len(self.traffic))
        return starts + _EXAMINE


@dataclass(slots=True)
class Record:
    """What has been measured so far, and how far the job is."""

    order: Order
    deployments: list[Facts] = field(default_factory=list[Facts])
    fidelity: list[Facts] = field(default_factory=list[Facts])
    conformance: list[Facts] = field(default_factory=list[Facts])
    tasks: list[Facts] = field(default_factory=list[Facts])
    lm_eval: list[Facts] = field(default_factory=list[Facts])
    loads: list[Facts] = field(default_factory=list[Facts])
    done: int = 0

    def step(self, message: str, steps: int = 1) -> None:
        """Tell that `steps` more are done and what comes next."""
        job.report_progress(self.order.job_dir, self.done, self.order.steps, message)
        self.done += steps

    def teller(self, message: str) -> "OnProgress":
        """Return what tells how many requests of a load run are done; the run is one step."""
        self.step(message)
        done = self.done - 1

        def tell(requests: int, of: int) -> None:
            text = f"{message}: {requests} of {of} requests"
            job.report_progress(self.order.job_dir, done, self.order.steps, text)

        return tell


def serve(job_dir: Path) -> Facts:
    """Return the facts of `job_dir`'s job, in the form of the server's `ServeFacts`."""
    order = read_order(job_dir)
    candidate, contract = (_sent(order, part) for part in ("candidate", "contract"))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from inferproof_remote.serving.examiner import Examiner  # loads torch and transformers

    record = Record(order)
    record.step("loading the reference", 0)
    # Drawn only now: the candidate was committed before this job existed.
    examiner = Examiner(order, os.urandom(BITS // 8))
    for restart in range(order.restarts):
        for arm in Stream(examiner.bits, f"order {restart}").shuffled(sorted(order.plans)):
            _one_start(record, examiner, arm, restart)
    mutants = examiner.mutants() if order.spec["arm"] is True else None
    strangers = (*candidate.strangers, *contract.strangers)
    _keep_exports(order)
    return _told(record, examiner, strangers) | {
        "mutants": mutants,
        "candidate_seen": job.digest_json(
            {"manifest": order.spec["manifest"], "files": candidate.digests}
        ),
        "contract_seen": job.digest_json(contract.digests),
    }


def _keep_exports(order: Order) -> None:
    """Keep what each load run exported as a compressed file of the evidence; drop the rest.

    A client that was killed has exported nothing: then what its services had written so far.
    """
    files = order.job_dir / "out" / "files"
    files.mkdir(parents=True, exist_ok=True)
    work = order.job_dir / "work"
    for load in sorted(work.glob("load-*")):
        exported = [*load.rglob("profile_export_raw.jsonl")]
        for path in exported or sorted(load.rglob("raw_records_*.jsonl")):
            packed = files / f"{load.name}.jsonl.gz"
            with path.open("rb") as records, gzip.open(packed, "ab") as more:
                shutil.copyfileobj(records, more)
    shutil.rmtree(work, ignore_errors=True)


def _sent(order: Order, part: str) -> Checked:
    files = job.as_table(order.spec[f"{part}_files"], part)
    return checked(order.job_dir / CHECKED / part, files)


def _one_start(record: Record, examiner: "Examiner", arm: Arm, restart: int) -> None:
    """Start an arm, examine the candidate's first start, load it, and record how it fared."""
    order = record.order
    record.step(f"starting the {arm}, round {restart + 1} of {order.restarts}")
    deployment = Deployment(
        order.plans[arm],
        arm=arm,
        place=order.place(arm),
        replicas=order.replicas,
        haproxy=order.tool("haproxy") or find_haproxy(),
        name=f"{arm}-{restart}",
    )
    with deployment:
        features = Features()
        if deployment.ready_s is not None:
            client = paced(suited(Client(deployment.endpoint).first_model()))
            features = examiner.features(client)
            if restart == 0:
                _examine(record, examiner, deployment, client, features)
            for shape in order.traffic if order.loads else ():
                tell = record.teller(f"{shape['name']} on the {arm}, round {restart + 1}")
                load = examiner.load(
                    client,
                    features,
                    shape,
                    arm=arm,
                    restart=restart,
                    on_progress=tell,
                    given_up=lambda: bool(deployment.incidents()),
                )
                record.loads.append(load)
        told = deployment.facts(restart=restart, features=features.as_facts())
        record.deployments.append(told)


def _examine(
    record: Record,
    examiner: "Examiner",
    deployment: Deployment,
    client: Client,
    features: Features,
) -> None:
    """Ask the first start of an arm: the candidate first against the reference and the API."""
    order, arm = record.order, deployment.arm
    if arm == "candidate":
        record.step("holding the candidate against the reference", _EXAMINE)
        if order.has("fidelity"):
            record.fidelity.append(examiner.examine(client, features, arm, 0))
            examiner.sample(client, features)
        if order.has("conformance"):
            one = [f"unix:{path}" for path in deployment.sockets[:1]]
            alone = replace(client, endpoint=one[0]) if one else client
            record.conformance.append(examiner.conformance(alone, features, arm, 0))
    if order.loads:
        examiner.compare(client, features, arm, 0)
    if order.has("tasks"):
        record.step(f"asking the {arm} the contract's tasks", 0)
        record.tasks.append(examiner.tasks(client, features, arm))
    if order.has("lm_eval"):
        record.step(f"lm-eval on the {arm}", 0)
        program = order.tool("lm_eval") or find_lm_eval()
        told = evaluate(_eval_order(order, arm, client), program)
        record.lm_eval.append({"arm": arm, **told})


def _eval_order(order: Order, arm: Arm, client: Client) -> EvalOrder:
    rules = order.rules("tasks")
    asked = job.as_table(rules["lm_eval"], "lm_eval")
    folder = asked["folder"]
    return EvalOrder(
        endpoint=client.endpoint,
        model_name=client.model,
        tokenizer=order.model,
        tasks=job.as_texts(asked["tasks"], "tasks"),
        limit=int(job.as_number(asked["limit"], "limit")),
        folder=None if folder is None else order.sealed(str(folder)),
        at_once=int(job.as_number(rules["at_once"], "at_once")),
        wall_s=job.as_number(asked["wall_s"], "wall_s"),
        work=order.job_dir / "work" / f"lm-eval-{arm}",
    )


def _told(record: Record, examiner: "Examiner", strangers: Sequence[Incident]) -> Facts:
    spec, bench = record.order.spec, facts.bench(record.order.threads)
    names = ("separation", "sandbox", "cpu_model", "cores", "versions")
    return {
        "bits": examiner.bits.hex(),
        "bar": spec.get("bar"),
        "model_name": job.as_table(spec["model"], "model")["name"],
        "model_digest": examiner.model_digest,
        **examiner.told(),
        "kernels": job.as_table(spec["manifest"], "manifest").get("kernels", {}),
        "stages": list(job.as_texts(spec["stages"], "stages")),
        **{name: bench[name] for name in names},
        "incidents": [
            {"code": one.code, "call": one.call, "detail": one.detail} for one in strangers
        ],
        "deployments": record.deployments,
        "fidelity": record.fidelity,
        "conformance": record.conformance,
        "tasks": record.tasks,
        "lm_eval": record.lm_eval,
        "loads": record.loads,
    }


def read_order(job_dir: Path) -> Order:
    """Return the order of a job, read strictly."""
    spec = job.read_job(job_dir).spec
    plans = job.as_table(spec["plans"], "plans")
    model = job.as_table(spec["model"], "model")
    traffic = cast("Sequence[object]", spec["traffic"])
    return Order(
        job_dir=job_dir,
        spec=spec,
        contract=job.as_table(spec["contract"], "contract"),
        plans={cast("Arm", arm): parse_plan(raw) for arm, raw in plans.items()},
        model=Path(str(model["path"])),
        replicas=int(job.as_number(spec["replicas"], "replicas")),
        restarts=int(job.as_number(spec["restarts"], "restarts")),
        traffic=[job.as_table(each, "traffic") for each in traffic],
    )
