"""The `run` verb: one command of the agent's, in the sandbox; practice only."""

import shutil
from dataclasses import asdict
from pathlib import Path, PurePosixPath

from inferproof_remote import job
from inferproof_remote.mounts import SandboxPlan, gpu_devices, leased_environment
from inferproof_remote.sandbox import Sandbox

MOST_OUTPUT_BYTES = 4096


def run(job_dir: Path) -> dict[str, object]:
    """Return how the command ended.

    It starts in the snapshot (read-only), or in an empty folder if the job has none; `$SCRATCH`
    names a folder that it may write to, gone afterwards.
    """
    spec = job.read_job(job_dir).spec
    argv = job.as_texts(spec["argv"], "argv")
    limits = job.as_table(spec["limits"], "limits")
    snapshot, scratch = job_dir / "in" / "candidate", job_dir / "scratch"
    scratch.mkdir()
    plan = SandboxPlan(
        read_only=(snapshot,) if snapshot.is_dir() else (),
        writable=(scratch,),
        memory_mib=int(job.as_number(limits["memory_mib"], "memory_mib")),
        tmp_mib=int(job.as_number(limits["tmp_mib"], "tmp_mib")),
        processes=int(job.as_number(limits["processes"], "processes")),
        devices=gpu_devices(),
        env={"SCRATCH": str(scratch), **leased_environment()},
    )
    with Sandbox(plan, name=job.sandbox_name("run")) as box:
        completed = box.run(
            argv,
            timeout_s=job.as_number(spec["timeout_s"], "timeout_s"),
            output_limit_bytes=MOST_OUTPUT_BYTES,
            cwd=PurePosixPath(snapshot if snapshot.is_dir() else scratch),
        )
    shutil.rmtree(scratch, ignore_errors=True)
    return {
        "argv": list(argv),
        "rc": completed.rc,
        "seconds": completed.seconds,
        "output_tail": completed.output.decode(errors="replace"),
        "output_bytes": completed.output_bytes,
        "incidents": [asdict(incident) for incident in completed.incidents],
    }
