"""Kernels built to have one bottleneck each: prepare jobs, read what came back, print a table.

python tests/gpu/profile.py JOBS              # on a machine with GPU, ncu and this project: all
python tests/gpu/profile.py prepare JOBS      # or in parts: here
python3 tests/gpu/measure.py JOBS RESULTS     # on the machine with the GPU
python tests/gpu/profile.py judge RESULTS     # here
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu.zoo import CONTRACTS, KERNELS, LIMITS, MODEL
from inferproof.backends import torch_profile
from inferproof.backends.base import Against, Work
from inferproof.backends.torch_profile import ProfileOrder
from inferproof.campaign.candidates import CandidateStore
from inferproof.campaign.contracts import load_contract, resolve_dims
from inferproof.core.contract import KernelContract
from inferproof.core.evidence import ProfileFacts
from inferproof.core.sealed import SealedContract

HERE = Path(__file__).parent
OURS = HERE / "profile_kernels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kernel, the bottleneck that it was built to have, and the shape that shows it."""

    folder: Path
    expect: str
    dims: Mapping[str, int] = field(default_factory=dict[str, int])


WIDE: Mapping[str, int] = {"rows": 4096, "cols": 4096}
ROWS = (
    Row(folder=OURS / "uncoalesced", expect="uncoalesced"),
    Row(folder=OURS / "spilling", expect="spills", dims=WIDE),
    Row(folder=OURS / "low-occupancy", expect="occupancy"),
    Row(folder=OURS / "bank-conflicts", expect="bank_conflicts"),
    Row(folder=OURS / "launch-bound", expect="launch", dims={"tokens": 7}),
    Row(folder=OURS / "tensor-idle", expect="tensor_idle"),
    # The same six in other code, by which no bar was set.
    Row(folder=OURS / "uncoalesced-own-rows", expect="uncoalesced"),
    Row(folder=OURS / "spilling-indexed", expect="spills"),
    Row(folder=OURS / "low-occupancy-few-blocks", expect="occupancy"),
    Row(folder=OURS / "bank-conflicts-eight", expect="bank_conflicts", dims=WIDE),
    Row(folder=OURS / "launch-bound-in-four", expect="launch", dims={"tokens": 7}),
    Row(folder=OURS / "tensor-idle-plain", expect="tensor_idle"),
    Row(folder=KERNELS / "honest-rms-norm-fast", expect="memory"),
    Row(folder=KERNELS / "honest-silu-and-mul-fast", expect="memory"),
    Row(folder=KERNELS / "honest-triton-rms-norm", expect="memory"),
)


def against(name: str) -> Against:
    """Return the shipped contract `name`, resolved for a usual model."""
    shipped = load_contract(CONTRACTS / name)
    if not isinstance(shipped.contract, KernelContract):
        raise TypeError(f"{name} is no kernel contract")
    dims = resolve_dims(shipped.contract, MODEL)
    return Against(
        sealed=SealedContract(
            contract=shipped.contract,
            digest=shipped.digest,
            folder=shipped.folder,
            files=shipped.files,
        ),
        contents={file: (CONTRACTS / name / file).read_bytes() for file in shipped.files},
        dims_fixed=dims.fixed,
        dims_max=dims.maxima,
    )


def prepare(jobs: Path, row: Row) -> None:
    """Lay out the job that profiles one kernel."""
    store = CandidateStore(jobs / "state")
    candidate = store.add(row.folder)
    work = Work(
        job_id=row.folder.name,
        wall_s=300.0,
        candidate=candidate,
        contents=store.contents(candidate.digest),
        limits=LIMITS,
    )
    order = ProfileOrder(threads=8, dims=row.dims)
    request = torch_profile.request(work, against(candidate.manifest.contract), order)
    place = jobs / row.folder.name
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


def judge(results: Path) -> bool:
    """Print what each kernel was found to be bound by; return whether all were right."""
    found = json.loads(results.read_text(encoding="utf-8"))
    well = True
    print(
        "| kernel | named | right | us | proof | seconds |\n| --- | --- | --- | --- | --- | --- |"
    )
    for row in [each for each in ROWS if each.folder.name in found]:
        result = found[row.folder.name]
        if result["facts"] is None:
            named, proof, micro = "none", str(result["said"])[-200:], 0.0
        else:
            named, proof, micro = _said(torch_profile.parse(json.dumps(result["facts"]).encode()))
        well = well and named == row.expect
        print(
            f"| `{row.folder.name}` | {named} | {'yes' if named == row.expect else 'NO'} "
            f"| {micro:.1f} | {proof} | {result['seconds']:.1f} |"
        )
    return well


def _said(facts: ProfileFacts) -> tuple[str, str, float]:
    micro = (facts.seconds_per_call or 0.0) * 1e6
    if facts.device is None:
        return "none", facts.bottleneck, micro
    found = facts.device.bottleneck
    return found.name, "; ".join(found.proof), micro


def main() -> int:
    """Do what the command line asks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=("all", "prepare", "judge"), nargs="?", default="all")
    parser.add_argument("place", type=Path)
    given = parser.parse_args()
    if given.verb == "judge":
        return 0 if judge(given.place) else 1
    for row in ROWS:
        prepare(given.place, row)
    if given.verb == "prepare":
        return 0
    results = given.place / "results.json"
    command = [sys.executable, str(HERE / "measure.py"), str(given.place), str(results)]
    subprocess.run(command, check=True)
    return 0 if judge(results) else 1


if __name__ == "__main__":
    sys.exit(main())
