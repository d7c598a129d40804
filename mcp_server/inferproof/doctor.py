"""What a machine lacks to be a bench, and the command that brings it."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from inferproof.core.campaign import Target
from inferproof.core.errors import InfrastructureError
from inferproof.core.machine import Machine, Tool
from inferproof.core.values import Value

PROBE_TIMEOUT_S = 60.0
MOST_SKEW_S = 2.0
LEAST_DISK_BYTES = 10 << 30
_PROBE = """
import importlib.metadata as m, importlib.util as u, json, pathlib, sysconfig
found = {n: (m.version(n) if u.find_spec(n) else None) for n in ("torch", "numpy")}
header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
print(json.dumps({**found, "Python.h": str(header) if header.is_file() else None}))
"""
_NO_SANDBOX = (
    "let programs make user namespaces (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0; in Docker --security-opt seccomp=unconfined; "
    "inside a chroot nothing helps)"
)


class Check(Value):
    """One thing looked for: found, absent (work goes on without it, worse) or missing."""

    name: str
    state: Literal["found", "absent", "missing"]
    detail: str
    fix: str = ""


def examine(targets: Mapping[str, Target]) -> tuple[Check, ...]:
    """Return what was looked for here, for these targets; none is a target as it comes."""
    from inferproof_remote.machine import machine  # tries things out; only when asked
    from inferproof_remote.model_folder import fault

    targets = targets or {"local": Target(host="local")}
    models = [(name, path) for target in targets.values() for name, path in target.models.items()]
    here = Machine.model_validate_json(json.dumps(machine(Path.cwd())))
    return (
        *_tools(here),
        *sandboxes(here),
        *accelerators(here),
        *disk(here),
        *(check for name, target in targets.items() for check in _python(name, target.python)),
        *(_model(name, path, fault(Path(path))) for name, path in models),
    )


def examine_target(
    name: str, target: Target, state_dir: Path, *, pin: str | None = None
) -> tuple[Check, ...]:
    """Return what was looked for on a target elsewhere, from reach to sandbox.

    With `pin`, its host key is accepted for good if it has that fingerprint.
    """
    from inferproof.hosts.ssh import connect

    reached: tuple[Check, ...] = ()
    if target.address is not None:
        try:
            connect(name, target, state_dir, pin=pin).close()
        except InfrastructureError as error:
            return (_broken("connection", error),)
        detail = f"{target.address}, host key known"
        reached = (Check(name="connection", state="found", detail=detail),)
    return (*reached, *_worked_on(name, target, state_dir))


def _worked_on(name: str, target: Target, state_dir: Path) -> tuple[Check, ...]:
    from inferproof.hosts.slurm import slurm
    from inferproof.hosts.ssh import Ssh

    is_cluster = target.host == "slurm"
    host = slurm(name, target, state_dir) if is_cluster else Ssh(name, target, state_dir)
    try:
        there = host.machine()
        faults = host.model_faults(target.models)
        queue = host.queue_says() if is_cluster else ""
    except InfrastructureError as error:
        what = "Slurm" if error.error_code == "unreachable" and is_cluster else "Python"
        return (_broken(f"work folder {target.work} and {what}", error),)
    finally:
        host.close()
    return (
        *((Check(name="Slurm", state="found", detail=queue),) if is_cluster else ()),
        clock(there),
        *_packages(name, there),
        *_tools(there),
        *sandboxes(there),
        *accelerators(there),
        *disk(there),
        *(_model(name, path, faults[name]) for name, path in target.models.items()),
    )


def _broken(what: str, error: InfrastructureError) -> Check:
    return Check(name=what, state="missing", detail=error.what, fix=error.hint)


def clock(there: Machine) -> Check:
    """Return how far a machine's clock is from ours."""
    skew_s = there.skew_s or 0.0
    if abs(skew_s) <= MOST_SKEW_S:
        return Check(name="clock", state="found", detail=f"{skew_s:+.3f} s from ours")
    return Check(
        name="clock",
        state="absent",
        detail=f"{skew_s:+.1f} s from ours; times of files there will mislead people",
        fix="as root there: apt-get install chrony",
    )


def _tools(machine: Machine) -> Iterator[Check]:
    own_aiperf = Path(machine.executable).parent.parent / "aiperf"  # where the bench looks for it
    yield _tool(
        machine.tools.get("c++"),
        Check(
            name="C++ compiler",
            state="missing",
            detail="neither cpp candidates nor torch.compile, a baseline, can be built",
            fix="as root: apt-get install g++",
        ),
    )
    yield _tool(
        machine.tools.get("nvcc"),
        Check(
            name="nvcc",
            state="absent",
            detail="cuda candidates cannot be compiled; nothing else needs it",
            fix="as root: apt-get install nvidia-cuda-toolkit; or for newer architectures: "
            "pip install nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime "
            "nvidia-cuda-cccl",
        ),
    )
    yield _tool(
        machine.tools.get("haproxy"),
        Check(
            name="HAProxy",
            state="absent",
            detail="an engine cannot be deployed as more than one replica",
            fix="as root: apt-get install haproxy",
        ),
    )
    yield _tool(
        machine.tools.get("aiperf"),
        Check(
            name="AIPerf",
            state="absent",
            detail="engines cannot be put under load; it wants an environment of its own",
            fix=f"{machine.executable} -m venv {own_aiperf}; {own_aiperf}/bin/pip install aiperf",
        ),
    )


def _tool(tool: Tool | None, without: Check) -> Check:
    if tool is None:
        return without
    return Check(name=without.name, state="found", detail=f"{tool.path}: {tool.version}")


def sandboxes(machine: Machine) -> tuple[Check, Check]:
    """Return how well a candidate is kept apart and stopped there."""
    sandbox = Check(
        name="sandbox", state="found", detail=f"{machine.sandbox}, {machine.separation}"
    )
    if machine.separation == "shared-account":
        sandbox = Check(
            name="sandbox",
            state="absent",
            detail=f"{machine.sandbox}. Candidates share your account and could read the grader's "
            "memory; every result says shared-account",
            fix=_NO_SANDBOX if machine.has_bubblewrap else "as root: apt-get install bubblewrap",
        )
    freezer = Check(name="freezer", state="found", detail=machine.freezer)
    if machine.freezer == "sigstop":
        freezer = Check(
            name="freezer",
            state="absent",
            detail="no control group may be made here, so sandboxes are stopped by signals: "
            "half a millisecond a call instead of 20 µs, too coarse for small kernels",
            fix="run as root, or in a group of your own: "
            "systemd-run --user --scope -p Delegate=yes AGENT_HOST",
        )
    return sandbox, freezer


def accelerators(machine: Machine) -> Iterator[Check]:
    """Yield each GPU with its clocks, and whether its counters may be read."""
    for gpu in machine.gpus:
        clocks = f"SM clock {gpu.sm_mhz} of {gpu.most_sm_mhz} MHz"
        detail = f"{gpu.uuid}, driver {gpu.driver}, {gpu.memory_mib} MiB, {clocks}"
        yield Check(name=gpu.name, state="found", detail=detail)
    if machine.reads_counters is None:
        return
    profiler = machine.tools.get("ncu")
    if profiler is None:
        yield Check(
            name="Nsight Compute",
            state="absent",
            detail="profile cannot say what bounds device code",
            fix="install nsight-compute of your CUDA version",
        )
    elif not machine.reads_counters:
        yield Check(
            name="Nsight Compute",
            state="absent",
            detail=f"{profiler.path}: this account may not read the GPU's counters",
            fix="as root: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > "
            "/etc/modprobe.d/profiling.conf, then restart the machine",
        )
    else:
        yield Check(name="Nsight Compute", state="found", detail=profiler.version)


def disk(machine: Machine) -> Iterator[Check]:
    """Yield the room for jobs, and whether the processor keeps its clock."""
    free = f"{machine.disk_free_bytes / (1 << 30):.0f} GiB free where jobs are kept"
    if machine.disk_free_bytes >= LEAST_DISK_BYTES:
        yield Check(name="disk", state="found", detail=free)
    else:
        fix = "make room, or name another `work` folder in targets.yaml"
        yield Check(name="disk", state="absent", detail=free, fix=fix)
    if machine.governor not in (None, "performance"):
        yield Check(
            name="processor clocks",
            state="absent",
            detail=f"governor {machine.governor}: the clock follows the load, times scatter",
            fix="as root: cpupower frequency-set -g performance",
        )


def _model(name: str, path: str, wrong: str) -> Check:
    if not wrong:
        return Check(name=f"model {name}", state="found", detail=path)
    return Check(
        name=f"model {name}",
        state="missing",
        detail=f"{path}: {wrong}",
        fix="bring it there whole, or correct `models` in targets.yaml, then seal again",
    )


def _packages(target: str, there: Machine) -> Iterator[Check]:
    found = {**there.packages, "Python.h": there.headers}
    yield from _contents(f"python of target {target}", there.executable, found)


def _python(target: str, python: str | None) -> Iterator[Check]:
    interpreter = python or sys.executable
    name = f"python of target {target}"
    if not Path(interpreter).is_file():
        yield Check(
            name=name,
            state="missing",
            detail=f"{interpreter} does not exist",
            fix="correct `python` in targets.yaml, then seal again",
        )
        return
    yield from _contents(name, interpreter, _probed(interpreter))


def _contents(name: str, interpreter: str, found: Mapping[str, str | None]) -> Iterator[Check]:
    fixes = {
        "torch": f"{interpreter} -m pip install torch (the build for CPUs is enough here)",
        "numpy": f"{interpreter} -m pip install numpy",
        "Python.h": "as root: apt-get install python3-dev (torch.compile builds against it)",
    }
    for what, fix in fixes.items():
        value = found.get(what)
        without = Check(
            name=f"{what} in {name}",
            state="missing",
            detail=f"{interpreter} has none; checks need it",
            fix=fix,
        )
        yield without if value is None else Check(name=without.name, state="found", detail=value)


def _probed(interpreter: str) -> Mapping[str, str | None]:
    try:
        done = subprocess.run(
            [interpreter, "-I", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
        return json.loads(done.stdout.strip() or "{}")
    except (OSError, subprocess.TimeoutExpired, json.JSONDecodeError):
        return {}
