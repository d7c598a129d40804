"""Leases of a real GPU: `python tests/gpu/leases.py OUT` on a machine that has one; stdlib alone.

Prints one line for each claim and leaves them as OUT/leases.json; ends with 1 if one does not hold.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "remote"))
from inferproof_remote import cuda_nvml
from inferproof_remote.benches import describe

_PATIENCE_S = 60.0
_LAUNCH = (
    "import sys; sys.path.insert(0, sys.argv[3]); from pathlib import Path;"
    " from inferproof_remote import supervise;"
    " sys.exit(supervise.launch(Path(sys.argv[1]), Path(sys.argv[2]), secret=b'gpu'))"
)
_CONTEXT = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
codes = [cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)),
         cuda.cuDeviceGet(ctypes.byref(device), 0),
         cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)]
"""
_FOREIGN = _CONTEXT + 'print("ready", codes, flush=True); sys.stdin.read()\n'
_JOB = (
    _CONTEXT
    + """
import json, os
from pathlib import Path
out = {"codes": codes, "devices": count.value, "visible": os.environ["CUDA_VISIBLE_DEVICES"]}
(Path(sys.argv[2]) / "out" / "result.json").write_text(json.dumps(out))
"""
)


_BENCH = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2] / 'remote')!r})\n"
    "from inferproof_remote.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
)


def main(out: Path) -> int:
    """Return 0 if every claim holds."""
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    gpus = [line.split("UUID: ")[1].rstrip(")") for line in listed.splitlines() if "UUID: " in line]
    claims: dict[str, bool] = {}
    facts: dict[str, object] = {"gpus": gpus}
    gpu, minor = gpus[0], cuda_nvml.minor(gpus[0])
    facts["device file"] = f"/dev/nvidia{minor}"
    claims["its device file is known"] = Path(f"/dev/nvidia{minor}").exists()
    claims["nobody computes on it"] = cuda_nvml.compute_processes(gpu) == ()
    with tempfile.TemporaryDirectory(prefix="leases-") as name:
        folder = Path(name)
        foreign = subprocess.Popen(
            [sys.executable, "-c", _FOREIGN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert foreign.stdout is not None
        facts["foreign"] = foreign.stdout.readline().decode().strip()
        facts["foreign processes seen"] = len(cuda_nvml.compute_processes(gpu))
        claims["a process without a lease is seen"] = bool(facts["foreign processes seen"])
        job = launched(folder / "job-1", gpu)
        wait_until(lambda: b"GPU-" in account(job))
        time.sleep(2.0)  # long enough to begin, if it did not wait
        claims["timing waits for it to end"] = not (job / "out" / "result.json").exists()
        foreign.communicate()
        ended = time.monotonic()
        wait_until((job / "rc").exists)
        facts["seconds from its end to the job's"] = time.monotonic() - ended
        claims["then the job runs"] = (job / "rc").read_text().strip() == "0"
        result = json.loads((job / "out" / "result.json").read_text())
        claims["on that GPU alone"] = (result["devices"], result["visible"]) == (1, gpu)
        claims["and computes there"] = result["codes"] == [0, 0, 0, 0]
        claims |= sandboxed(folder, gpus[-1], facts)
        facts["account"] = json.loads(account(job).partition(b"\n")[2])
    for claim, holds in claims.items():
        print("holds " if holds else "BROKEN", claim)
    print(json.dumps(facts, indent=1))
    (out / "leases.json").write_text(json.dumps({"claims": claims, "facts": facts}))
    return 0 if all(claims.values()) else 1


def sandboxed(folder: Path, gpu: str, facts: dict[str, object]) -> dict[str, bool]:
    """Return what holds of a command in the sandbox that was given one GPU of this machine."""
    bench = describe()
    facts["sandbox"] = f"{bench.separation} ({bench.sandbox})"
    if bench.separation == "shared-account":
        return {}
    limits = {"memory_mib": 4096, "tmp_mib": 64, "processes": 64, "call_s": 20}
    argv = ["sh", "-c", "ls -d /dev/nvidia[0-9]*; echo $CUDA_VISIBLE_DEVICES"]
    more = {"argv": argv, "limits": limits, "timeout_s": 50}
    job = launched(folder / "job-2", gpu, program=_BENCH, more=more)
    wait_until((job / "rc").exists)
    said = str(json.loads((job / "out" / "result.json").read_text())["output_tail"])
    facts["in the sandbox"] = said
    wanted = f"/dev/nvidia{cuda_nvml.minor(gpu)}\n{gpu}\n"
    return {"a sandbox sees the device file of its own GPU alone": said == wanted}


def launched(
    job: Path, gpu: str, *, program: str = _JOB, more: Mapping[str, object] | None = None
) -> Path:
    """Return the folder of a job that wants the GPU alone."""
    job.mkdir()
    file = job.with_suffix(".py")
    file.write_text(program)
    folder = str(job.parent / "leases")
    lease = {"gpus": [gpu], "count": 1, "mode": "exclusive", "folder": folder}
    spec = {"lease": lease, **(more or {})}
    body = {"schema": 1, "job_id": job.name, "verb": "run", "wall_s": 60, "spec": spec}
    (job / "job.json").write_text(json.dumps(body))
    remote = str(Path(__file__).parents[2] / "remote")
    subprocess.run([sys.executable, "-c", _LAUNCH, str(job), str(file), remote], check=True)
    return job


def account(job: Path) -> bytes:
    """Return the job's account of its GPUs, empty while there is none."""
    path = job / "out" / "lease.signed"
    return path.read_bytes() if path.exists() else b""


def wait_until(seen: Callable[[], object]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + _PATIENCE_S
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
