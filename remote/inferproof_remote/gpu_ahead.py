"""What a timed check begins before the candidate is built: torch and its compiler take seconds.

Nothing here depends on the candidate or on the drawn bits, and torch is not imported here.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from inferproof_remote.baseline import COMPILED, cache_folder
from inferproof_remote.gpu_layout import shared_bytes
from inferproof_remote.gpu_process import DeviceProcess
from inferproof_remote.kernel import Kernel


def start_baselines(
    stack: ExitStack, kernel: Kernel, contract: Path, *, job_dir: Path, graded: bool
) -> DeviceProcess:
    """Start the process that runs the contract's baselines; it loads what it needs by itself."""
    cache = _cache(stack, contract, job_dir, graded=graded)
    cache.mkdir(parents=True, exist_ok=True)
    process = DeviceProcess("gpu_baseline", shared_bytes=shared_bytes(kernel))
    stack.enter_context(process)  # after its folder, so that it ends before it
    env = {
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TRITON_CACHE_DIR": str(cache / "triton"),
    }
    file = kernel.reference.partition(":")[0]
    compiles = ("compiles",) if COMPILED in kernel.baselines else ()
    process.start_trusted(str(contract / file), *compiles, env=env)
    return process


def _cache(stack: ExitStack, contract: Path, job_dir: Path, *, graded: bool) -> Path:
    """Return where baselines keep what they compile: what decides is compiled anew.

    Whoever has this account could slow a baseline in a folder that outlives the job.
    """
    if not graded:
        return cache_folder(contract)
    fresh = tempfile.TemporaryDirectory(prefix="compiled-", dir=job_dir, ignore_cleanup_errors=True)
    return Path(stack.enter_context(fresh))
