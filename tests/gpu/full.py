"""Whole graded checks of a few good kernels: ratio, interval, spread and seconds of each.

python tests/gpu/full.py prepare JOBS         # here: one job folder for each kernel
python3 tests/gpu/measure.py JOBS RESULTS     # on the machine with the GPU
python tests/gpu/full.py judge JOBS RESULTS   # here
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu.zoo import KERNELS, Scale, prepare, verdicts_of
from inferproof.backends import grade
from inferproof.core.evidence import TimedWorkload
from inferproof.gates import overall
from inferproof.gates.intervals import speeds

NAMES = (
    "honest-rms-norm-fast",
    "honest-triton-rms-norm",
    "honest-silu-and-mul-fast",
    "honest-matmul-tensor-cores",
    "honest-decode-split-kv",
)
SCALE = Scale(full=True, timing=True, one_shape=False)
ASKED = frozenset({"compiled", "conduct", "numerics", "speed", "physics"})


def spread(workload: TimedWorkload, baseline: str) -> float:
    """Return half the distance between the quartiles of the rounds' ratios, over their median."""
    ratios = [
        (pair.baselines_s[baseline] - pair.null_s) / (pair.candidate_s - pair.null_s)
        for pair in workload.pairs
    ]
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    return (high - low) / 2 / middle


def told(jobs: Path, name: str, result: Mapping[str, object]) -> str:
    """Return the rows of one kernel: its verdict, then each timed shape."""
    if result["facts"] is None:
        return f"| `{name}` | none: {str(result['said'])[-200:]} |"
    found = grade.parse(json.dumps(result["facts"]).encode())
    asked = [each for each in verdicts_of(jobs, name, SCALE, result) if each.gate in ASKED]
    verdict = overall(asked)[1]
    lines = [f"| `{name}` | {result['seconds']:.1f} s | {verdict.outcome} {verdict.code} |"]
    lines.append(f"|  | {verdict.reason} | |")
    for workload, speed in zip(found.timed, speeds(found), strict=True):
        dims = " ".join(f"{key}={size}" for key, size in workload.dims.items())
        micro = median(pair.candidate_s for pair in workload.pairs) * 1e6
        lines.append(
            f"|  | {dims} {workload.cache}: {micro:.2f} us | {speed.ratio:.3f} ({speed.low:.3f} to"
            f" {speed.high:.3f}) of {speed.best_baseline}, spread"
            f" {spread(workload, speed.best_baseline):.2%} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Do what the command line asks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=("prepare", "judge"))
    parser.add_argument("jobs", type=Path)
    parser.add_argument("results", type=Path, nargs="?")
    given = parser.parse_args()
    if given.verb == "prepare":
        for name in NAMES:
            prepare(given.jobs, KERNELS / name, name, SCALE)
        return 0
    results = json.loads(given.results.read_text(encoding="utf-8"))
    for name in NAMES:
        if name in results:
            sys.stdout.write(told(given.jobs, name, results[name]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
