"""Measures the clock: twice the work under load, and what a candidate that does nothing costs.

Run: python tests/bench/bench_timing.py [RUNS]. Each run is a grade job as the server starts it:
same host, supervisor, sandbox, draws and baseline; only shapes and rounds are set here.
"""

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from figures import Figures

from inferproof.backends import grade
from inferproof.backends.base import Against, Work
from inferproof.backends.grade import GradeOrder
from inferproof.campaign.candidates import CandidateStore
from inferproof.campaign.contracts import load_contract
from inferproof.core.campaign import Limits
from inferproof.core.contract import KernelContract
from inferproof.core.evidence import GradeFacts, TimedWorkload
from inferproof.core.values import Purpose
from inferproof.gates.intervals import candidate_seconds, null_share
from inferproof.hosts.base import follow
from inferproof.hosts.local import Local

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / "contracts" / "kernels"
MATMUL = Path(__file__).parent / "kernels" / "matmul"
RMS_NORMS = {
    "streaming stores": ROOT / "mcp_server" / "inferproof" / "demo" / "candidates" / "honest",
    "plain loops": Path(__file__).parent / "kernels" / "rms_norm",
}
LIMITS = Limits(memory_mib=2048, tmp_mib=64, processes=64, call_s=10.0)
WALL_S = 240.0
RUNS = 10
NEEDED_SHARE = 0.9
TWICE, OFF_BY = 2.0, 0.15
NULL_SHARE = 0.02
BAR = "torch.compile"
SIDE, DEPTH = 256, 2048
HIDDEN = 4096
BURNER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.sched_setaffinity(0, {int(sys.argv[1])})
print(flush=True)
while True: pass
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What one job is to time: a candidate at these shapes."""

    candidate: Path
    contract: str
    shapes: Sequence[Mapping[str, int]]
    baselines: Sequence[str] = ("torch",)
    pairs: int = 20

    def against(self) -> Against:
        """Return the shipped contract with the case's shapes and baselines only."""
        folder = CONTRACTS / self.contract
        shipped = load_contract(folder)
        assert isinstance(shipped.contract, KernelContract)
        exact = [{name: [size, size] for name, size in dims.items()} for dims in self.shapes]
        raw = shipped.contract.model_dump(mode="json", by_alias=True)
        raw["workloads"]["timed"] = {"ranges": exact, "pairs": self.pairs}
        raw["baselines"] = [*self.baselines]
        names = self.shapes[0]
        return Against(
            sealed=shipped.model_copy(update={"contract": KernelContract.model_validate(raw)}),
            contents={name: (folder / name).read_bytes() for name in shipped.files},
            dims_fixed={"hidden": HIDDEN} if self.contract == "rms_norm" else {},
            dims_max={name: max(dims[name] for dims in self.shapes) for name in names},
        )


class Bench:
    """Grades cases on this machine, one after another."""

    def __init__(self, state_dir: Path) -> None:
        self._store = CandidateStore(state_dir)
        self._host = Local(state_dir)

    async def timed(self, case: Case) -> tuple[TimedWorkload, ...]:
        """Return what was timed of a candidate that has to be right and well-behaved."""
        candidate = self._store.add(case.candidate)
        work = Work(
            job_id=f"bench-{secrets.token_hex(6)}",
            wall_s=WALL_S,
            candidate=candidate,
            contents=self._store.contents(candidate.digest),
            limits=LIMITS,
        )
        order = GradeOrder(purpose=Purpose.GRADED, threads=1, arm=False, shapes_scale="zoo")
        facts = await self._graded(work, case.against(), order)
        if facts.incidents or len(facts.timed) != len(case.shapes):
            sys.exit(f"{case.candidate.name} was not timed: {facts.incidents or 'wrong values'}")
        return facts.timed

    async def _graded(self, work: Work, against: Against, order: GradeOrder) -> GradeFacts:
        await self._host.start(grade.request(work, against, order))
        states = [state async for state in follow(self._host, work.job_id, wait_s=WALL_S + 30)]
        if not states[-1].status.is_final or states[-1].failure:
            await self._host.cancel(work.job_id)
            sys.exit(f"the job ended without a result: {states[-1]}")
        folder = await self._host.result_dir(work.job_id)
        return grade.parse((folder / "result.json").read_bytes())


@contextlib.contextmanager
def burners() -> Generator[int]:
    """Keep every core busy with a process of its own that never sleeps."""
    with contextlib.ExitStack() as stack:
        cores = sorted(os.sched_getaffinity(0))
        for core in cores:
            command = [sys.executable, "-c", BURNER, str(core)]
            burner = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(burner.kill)
            assert burner.stdout is not None
            burner.stdout.readline()
        yield len(cores)


def twice_the_work(bench: Bench, figures: Figures, runs: int) -> None:
    """Time k against 2k in each of `runs` jobs while every core is wanted by somebody else."""
    shapes = [{"m": SIDE, "k": depth, "n": SIDE} for depth in (DEPTH, 2 * DEPTH)]
    case = Case(candidate=MATMUL, contract="matmul", shapes=shapes)
    ratios: list[float] = []
    with burners() as cores:
        for run in range(runs):
            once, twice = (
                candidate_seconds(workload.pairs) for workload in asyncio.run(bench.timed(case))
            )
            ratios.append(twice / once)
            print(f"  run {run + 1}: {twice * 1e3:.3f} ms / {once * 1e3:.3f} ms = {ratios[-1]:.3f}")
    within = sum(abs(ratio - TWICE) <= OFF_BY for ratio in ratios)
    figures.holds(
        f"matmul, k = {2 * DEPTH} against {DEPTH}, {cores} burners on {cores} cores: "
        f"{within} of {runs} runs within {TWICE} ± {OFF_BY} (limit {NEEDED_SHARE:.0%})",
        within >= NEEDED_SHARE * runs,
        f"ratios {min(ratios):.3f} to {max(ratios):.3f}, median {median(ratios):.3f}",
    )


def nothing(bench: Bench, figures: Figures) -> None:
    """Time a candidate that does nothing beside rms_norm: as the contract's bar computes it, which
    is what candidates must beat and has the limit, and as two kernels do that beat it by far."""
    for style, folder in RMS_NORMS.items():
        shapes = [{"tokens": HIDDEN}]
        baselines = ("torch", BAR)
        case = Case(candidate=folder, contract="rms_norm", shapes=shapes, baselines=baselines)
        (workload,) = asyncio.run(bench.timed(case))
        null_s = median(pair.null_s for pair in workload.pairs)
        bar_s = median(pair.baselines_s[BAR] for pair in workload.pairs)
        candidate_s = median(pair.candidate_s for pair in workload.pairs)
        figures.at_most(
            f"null candidate, share of rms_norm [{HIDDEN}, {HIDDEN}] ({BAR}, run {style})",
            100 * null_s / bar_s,
            100 * NULL_SHARE,
            "%",
            f"{null_s * 1e3:.3f} ms of {bar_s * 1e3:.3f} ms, 1 thread; "
            f"{100 * null_share(workload.pairs):.2f} % of the kernel with {style}, "
            f"{candidate_s * 1e3:.3f} ms",
        )


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        nothing(bench, figures)
        twice_the_work(bench, figures, runs)
    figures.finish()


if __name__ == "__main__":
    main()
