"""Cheats in device code and their honest twins: prepare jobs, judge what came back, print a table.

python tests/gpu/zoo.py prepare JOBS          # here: one job folder for each candidate
python3 tests/gpu/measure.py JOBS RESULTS     # on the machine with the GPU
python tests/gpu/zoo.py judge JOBS RESULTS    # here: the server's own gates

`--names` takes some rows only, `--shard i/n` every nth of them from the ith on.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import yaml
from pydantic import Field, TypeAdapter

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu.overlay import laid_out
from inferproof.backends import grade
from inferproof.backends.base import Against, Work
from inferproof.backends.grade import GradeOrder
from inferproof.campaign.candidates import CandidateStore
from inferproof.campaign.contracts import load_contract, resolve_dims
from inferproof.core.campaign import Limits
from inferproof.core.contract import KernelContract
from inferproof.core.evidence import Evidence
from inferproof.core.sealed import SealedContract
from inferproof.core.values import JobStatus, Outcome, Purpose, Reason, Value, Verdict, utc_now
from inferproof.gates import judge_all, overall
from inferproof.gates.base import Case

HERE = Path(__file__).parent
KERNELS = HERE / "kernels"
CONTRACTS = HERE.parents[1] / "contracts" / "kernels"
MODEL = {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts": 128,
    "vocab_size": 32000,
}
LIMITS = Limits(memory_mib=4096, tmp_mib=256, processes=64, call_s=10.0)
LARGEST = 1024
DRAWS = 12
PAIRS = 8
# These ask for a larger experiment than a refusal: mutants, and an objective.
NOT_ASKED = frozenset({"armed", "physics"})


class Row(Value):
    """One candidate: which codes may refuse it; none if it is honest.

    `not_applicable` is an honest one for a matrix instruction that not every chip has: there, all
    that can be said is that its numbers are right.
    """

    folder: str
    expect: tuple[Reason, ...] = ()
    twin: str | None = None
    timing: bool = False
    one_shape: bool = False
    sanitize: bool = False
    not_applicable: bool = False

    @property
    def scale(self) -> "Scale":
        """How large its check is."""
        return Scale(
            full=False, timing=self.timing, one_shape=self.one_shape, sanitize=self.sanitize
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a check is: the zoo's, or the contract's own."""

    full: bool
    timing: bool
    one_shape: bool
    arm: bool = False
    sanitize: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One of `of` parts of the zoo, which together are the whole."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Return the part that `i/n` names."""
        told = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
        if told is None or int(told[1]) > int(told[2]):
            raise ValueError(f"{text} is no part: 1/4 to 4/4 are the four parts")
        return cls(number=int(told[1]), of=int(told[2]))

    def part(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return every `of`th row, so that rows alike fall into different parts."""
        return rows[self.number - 1 :: self.of]


def load_rows() -> tuple[Row, ...]:
    """Return the rows of zoo.yaml."""
    table: object = yaml.safe_load((HERE / "zoo.yaml").read_text(encoding="utf-8"))
    return TypeAdapter(Annotated[tuple[Row, ...], Field(min_length=1)]).validate_python(table)


def rule(name: str, scale: Scale) -> Against:
    """Return the shipped contract `name` at that scale."""
    shipped = load_contract(CONTRACTS / name)
    contract = shipped.contract
    if not isinstance(contract, KernelContract):
        raise TypeError(f"{name} is no kernel contract")
    dims = resolve_dims(contract, MODEL)
    cut = {dim: size if scale.full else min(size, LARGEST) for dim, size in dims.maxima.items()}
    usual = {dim: min(size, 300) for dim, size in dims.maxima.items()} if scale.one_shape else {}
    sealed = SealedContract(
        contract=contract if scale.full else _scaled(contract, timing=scale.timing),
        digest=shipped.digest,
        folder=shipped.folder,
        files=shipped.files,
    )
    return Against(
        sealed=sealed,
        contents={file: (CONTRACTS / name / file).read_bytes() for file in shipped.files},
        dims_fixed=usual | dims.fixed,
        dims_max=dims.maxima if scale.timing else cut,
    )


def _scaled(contract: KernelContract, *, timing: bool) -> KernelContract:
    work = contract.workloads
    graded = work.graded.model_copy(update={"draw": DRAWS})
    timed = work.timed.model_copy(update={"ranges": work.timed.ranges[:1], "pairs": PAIRS})
    scaled = work.model_copy(update={"graded": graded, "timed": timed})
    baselines = ("torch",) if timing else contract.baselines
    return contract.model_copy(update={"workloads": scaled, "baselines": baselines})


def prepare(jobs: Path, folder: Path, name: str, scale: Scale) -> None:
    """Lay out the job that grades the candidate in `folder`."""
    store = CandidateStore(jobs / "state")
    candidate = store.add(laid_out(folder, jobs / "laid out"))
    work = Work(
        job_id=name,
        wall_s=300.0,
        candidate=candidate,
        contents=store.contents(candidate.digest),
        limits=LIMITS,
    )
    order = GradeOrder(
        purpose=Purpose.GRADED,
        threads=8,
        arm=scale.arm,
        timing=scale.timing,
        shapes_scale="full" if scale.full else "zoo",
        sanitize=scale.sanitize,
    )
    request = grade.request(work, rule(candidate.manifest.contract, scale), order)
    place = jobs / name
    for file, data in request.inputs.items():
        path = place / "in" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (place / "out").mkdir(exist_ok=True)
    body = {
        "schema": 1,
        "job_id": request.job_id,
        "verb": request.verb,
        "wall_s": request.wall_s,
        "spec": request.spec,
    }
    (place / "job.json").write_text(json.dumps(body, allow_nan=False), encoding="utf-8")


def judged(jobs: Path, name: str, scale: Scale, result: Mapping[str, object]) -> Verdict | None:
    """Return the verdict that decides on a job's result; None if it left none."""
    if result["facts"] is None:
        return None
    skipped = NOT_ASKED if scale.timing else NOT_ASKED | {"speed"}
    verdicts = [each for each in verdicts_of(jobs, name, scale, result) if each.gate not in skipped]
    return overall(verdicts)[1]


def verdicts_of(
    jobs: Path, name: str, scale: Scale, result: Mapping[str, object], *, speedup: float = 1.0
) -> tuple[Verdict, ...]:
    """Return what every gate says about a job's result."""
    spec = json.loads((jobs / name / "job.json").read_text(encoding="utf-8"))["spec"]
    against = rule(str(spec["manifest"]["contract"]), scale)
    now = utc_now()
    evidence = Evidence(
        kind="grade",
        job_id=name,
        status=JobStatus.DONE,
        purpose=Purpose.PRACTICE,
        target="gpu",
        candidate=spec["candidate_digest"],
        contract=against.sealed.digest,
        started_at=now,
        ended_at=now,
        command=("grade",),
        remote_digest="0" * 64,
        grade=grade.parse(json.dumps(result["facts"]).encode()),
    )
    contract = against.sealed.contract
    if not isinstance(contract, KernelContract):
        raise TypeError(f"{name} is no kernel")
    return judge_all(
        Case(
            contract=contract,
            contract_digest=against.sealed.digest,
            candidate=spec["candidate_digest"],
            speedup_at_least=speedup,
            evidence=evidence,
        )
    )


def table(rows: Sequence[Row], jobs: Path, results: Mapping[str, Mapping[str, object]]) -> bool:
    """Print one line for each candidate; return whether each was judged as it should be."""
    well = True
    lines = [
        "| candidate | verdict | code | as expected | seconds |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if row.folder not in results:
            continue
        result = results[row.folder]
        verdict = judged(jobs, row.folder, row.scale, result)
        right = verdict is not None and is_right(row, verdict)
        well = well and right
        said = (
            ("none", str(result["said"])[-80:])
            if verdict is None
            else (verdict.outcome, verdict.code)
        )
        lines.append(
            f"| {row.folder} | {said[0]} | {said[1]} | {'yes' if right else 'NO'} "
            f"| {cast('float', result['seconds']):.1f} |"
        )
        if not right and verdict is not None:
            lines.append(f"| | | {verdict.reason[:200]} | | |")
    sys.stdout.write("\n".join(lines) + "\n")
    return well


def is_right(row: Row, verdict: Verdict) -> bool:
    """Return whether a candidate was judged as its row says."""
    if row.expect:
        return verdict.outcome is Outcome.FAIL and verdict.code in row.expect
    if row.not_applicable and verdict.code is Reason.NOT_APPLICABLE:
        return verdict.outcome is Outcome.INCONCLUSIVE
    return verdict.outcome is Outcome.PASS


def main() -> int:
    """Do what the command line asks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=("prepare", "judge"))
    parser.add_argument("jobs", type=Path)
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--names", nargs="+", default=())
    parser.add_argument("--shard", type=Shard.parse, default=Shard(number=1, of=1))
    given = parser.parse_args()
    named = [row for row in load_rows() if not given.names or row.folder in given.names]
    rows = given.shard.part(named)
    if given.verb == "prepare":
        for row in rows:
            prepare(given.jobs, KERNELS / row.folder, row.folder, row.scale)
        return 0
    results = json.loads(given.results.read_text(encoding="utf-8"))
    return 0 if table(rows, given.jobs, results) else 1


if __name__ == "__main__":
    sys.exit(main())
