"""The same device code before flashinfer-bench: how many cheats does it accept, and how fast?

python tests/gpu/beside_flashinfer.py prepare FOLDER --arch sm_90a   # here: cubins, with nvcc
python3 tests/gpu/beside_flashinfer.py run FOLDER                    # with a GPU and the wheels

It needs flashinfer-bench, apache-tvm-ffi, docstring-parser and pydantic (7 MB as wheels; it never
imports the 101 MB of flashinfer-python that it names as a dependency), and cupy, which launches our
cubins from a Python solution. What our own judge says of the same folders is docs/gpu.md's table.
"""

import argparse
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KERNELS = Path(__file__).parent / "kernels"
HIDDEN, TOKENS = 4096, (1, 7, 128, 1000)
HONEST = ("honest-rms-norm", "honest-rms-norm-vectors", "honest-rms-norm-fast")
CHEATS = (
    *("w1-zeros", "w1-mean", "w2-half-the-rows", "w2-tail-skipped", "w3-bf16-sums"),
    *("w3-wrong-eps", "w3-one-bit-less", "w3-truncates", "w4-subsampled-sum"),
    *("w5-practice-shapes-only", "w6-peek-fast-path", "w7-rounds-its-input", "w8-copies-input"),
    *("w14-nan-poison", "w16-one-row-in-many", "w16-one-element-a-row", "r1-pointer-cache"),
    *("r2-sampled-content", "r4-shape-cache", "t6-call-count"),
)
REFERENCE = """
import torch

def run(x, weight):
    wide = x.to(torch.float32)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    return (wide * scale * weight.to(torch.float32)).to(x.dtype)
"""
SOLUTION = """
import cupy
import torch

MODULE = cupy.RawModule(path={cubin!r})
LAUNCHES = {launches!r}
SMS = torch.cuda.get_device_properties(0).multi_processor_count

def run(x, weight, y):
    names = {{"tokens": x.shape[0], "hidden": x.shape[1], "sms": SMS, "min": min, "max": max}}
    def value(each):
        return int(eval(str(each), {{}}, names))
    room = max([value(each.get("workspace_bytes", 0)) for each in LAUNCHES])
    scratch = torch.empty(max(room, 1), dtype=torch.uint8, device=x.device)
    places = {{"x": x, "weight": weight, "y": y, "workspace": scratch}}
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    for each in LAUNCHES:
        args = []
        for name in each.get("args") or ["x", "weight", "y", "tokens", "hidden", "eps"]:
            if name in places:
                args.append(places[name].data_ptr())
            elif name == "eps":
                args.append(cupy.float32(1e-6))
            else:
                args.append(cupy.int64(value(name)))
        sizes = [tuple([value(size) for size in each[key]]) for key in ("grid", "block")]
        shared = value(each.get("shared_bytes", 0))
        with stream:
            MODULE.get_function(each["kernel"])(*sizes, tuple(args), shared_mem=shared)
"""


def prepare(folder: Path, arch: str) -> None:
    """Compile every candidate, and write down what it launches."""
    folder.mkdir(parents=True, exist_ok=True)
    launches: dict[str, Any] = {}
    sys.path.insert(0, str(KERNELS.parents[1]))
    overlay: Any = importlib.import_module("gpu.overlay")
    for name in (*HONEST, *CHEATS):
        manifest = importlib.import_module("yaml").safe_load(
            (KERNELS / name / "candidate.yaml").read_bytes()
        )
        target = folder / f"{name}.cubin"
        command = ["nvcc", "-cubin", f"-arch={arch}", "-O3", "-std=c++17", "-o", str(target)]
        whole: Path = overlay.laid_out(KERNELS / name, folder / "laid out")
        subprocess.run([*command, str(whole / manifest["source"])], check=True)
        launches[name] = manifest["launches"]
    (folder / "launches.json").write_text(json.dumps(launches), encoding="utf-8")


def run(folder: Path) -> None:
    """Print what flashinfer-bench says of every candidate, and the seconds it took."""
    theirs: Any = importlib.import_module("flashinfer_bench")
    definition = theirs.Definition.model_validate(_definition())
    workloads = [theirs.Trace.model_validate(_workload(tokens)) for tokens in TOKENS]
    launches = json.loads((folder / "launches.json").read_text(encoding="utf-8"))
    names = (*HONEST, *CHEATS)
    read: Callable[[object], Any] = theirs.Solution.model_validate
    solutions = [read(_solution(folder, name, launches[name])) for name in names]
    traces = theirs.TraceSet(
        definitions={definition.name: definition},
        solutions={definition.name: solutions},
        workloads={definition.name: workloads},
    )
    config = theirs.BenchmarkConfig(
        warmup_runs=2, iterations=10, num_trials=3, timeout_seconds=30, profile_baseline=False
    )
    began = time.monotonic()
    found = theirs.Benchmark(traces, config).run_all(dump_traces=False)
    seconds = time.monotonic() - began
    said: dict[str, list[str]] = {name: [] for name in names}
    for each in found.traces[definition.name]:
        said[str(each.solution)].append(str(each.evaluation.status.value))
    for name in names:
        sys.stdout.write(json.dumps({"candidate": name, "said": said[name]}) + "\n")
    passed = [name for name in names if said[name] == ["PASSED"] * len(TOKENS)]
    cheats = [name for name in CHEATS if name in passed]
    checked = sum(map(len, said.values()))
    sys.stdout.write(
        f"honest accepted: {len(passed) - len(cheats)} of {len(HONEST)}\n"
        f"cheats accepted: {len(cheats)} of {len(CHEATS)}: {', '.join(cheats)}\n"
        f"{seconds:.1f} s for {checked} workloads, {seconds / max(1, checked):.2f} s each\n"
    )


def _definition() -> dict[str, Any]:
    return {
        "name": "rms_norm_h4096",
        "op_type": "rmsnorm",
        "axes": {"tokens": {"type": "var"}, "hidden": {"type": "const", "value": HIDDEN}},
        "inputs": {
            "x": {"shape": ["tokens", "hidden"], "dtype": "bfloat16"},
            "weight": {"shape": ["hidden"], "dtype": "bfloat16"},
        },
        "outputs": {"y": {"shape": ["tokens", "hidden"], "dtype": "bfloat16"}},
        "reference": REFERENCE,
    }


def _workload(tokens: int) -> dict[str, Any]:
    inputs = {"x": {"type": "random"}, "weight": {"type": "random"}}
    workload = {"axes": {"tokens": tokens}, "inputs": inputs, "uuid": f"tokens-{tokens}"}
    return {"definition": "rms_norm_h4096", "workload": workload}


def _solution(folder: Path, name: str, launches: object) -> dict[str, Any]:
    text = SOLUTION.format(cubin=str((folder / f"{name}.cubin").resolve()), launches=launches)
    return {
        "name": name,
        "definition": "rms_norm_h4096",
        "author": "inferproof",
        "spec": {
            "language": "python",
            "target_hardware": ["cuda"],
            "entry_point": "main.py::run",
            "destination_passing_style": True,
        },
        "sources": [{"path": "main.py", "content": text}],
    }


def main() -> None:
    """Do what the command line asks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=("prepare", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    given = parser.parse_args()
    if given.verb == "prepare":
        prepare(given.folder, given.arch)
    else:
        run(given.folder)


if __name__ == "__main__":
    main()
