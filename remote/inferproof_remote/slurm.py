"""Jobs in Slurm's queue: hand one over, ask where it stands, take it back.

The supervisor is the batch job itself, so it is Slurm that says whether it lives. Its node and this
one share the work folder.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from inferproof_remote import job

NUMBER, SECRET, SEEN = "slurm", "secret", "slurm-seen.json"
_ANSWERS_S = 30.0
_FRESH_S = 1.0
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "RESV_DEL_HOLD")
_LIVING = ("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED")
_FAULTS = ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED")


class SlurmError(Exception):
    """Slurm does not do what it was asked; its own words say why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where Slurm says a job stands. `alive` is None while it waits; `said` is Slurm's reason.

    `is_fault`: the machine ended it.
    """

    alive: bool | None
    said: str
    is_fault: bool = False


def submit(folder: Path, program: Path, options: Sequence[str]) -> None:
    """Put a job into the queue; its number is in the folder when this returns.

    Raises:
        SlurmError: Slurm refuses it.
    """
    supervisor = shlex.join([sys.executable, "-I", str(program), "stay", str(folder)])
    script = f"#!/bin/sh\nexport {job.MARK}={shlex.quote(folder.name)}\nexec {supervisor}\n"
    asked = [
        *("sbatch", "--parsable", "--no-requeue", f"--job-name={folder.name}", "--chdir=/"),
        *(f"--output={folder / 'log'}", "--open-mode=append", *options),
    ]
    number = _said(asked, told=script).partition(";")[0].strip()
    if not number.isdecimal():
        raise SlurmError(f"sbatch answered {number[:200]!r}")
    job.write_atomically(folder / NUMBER, number)


def standing(folder: Path) -> Standing | None:
    """Return where a job in the queue stands, asked at most once a second; None if it is in none.

    Raises:
        SlurmError: Slurm does not answer; where the job stands is not known.
    """
    number = _number(folder)
    if number is None:
        return None
    seen = folder / SEEN
    try:
        if time.time() - seen.stat().st_mtime < _FRESH_S:
            known = json.loads(seen.read_bytes())
            return Standing(**known)
    except (OSError, ValueError, TypeError):
        pass  # nobody asked lately
    try:
        fresh = read(_said(["scontrol", "--oneliner", "show", "job", number]))
    except SlurmError as error:
        if "Invalid job id" not in str(error):
            raise
        fresh = Standing(alive=False, said="Slurm does not know it any more")
    job.write_atomically(seen, json.dumps(asdict(fresh)))
    return fresh


def read(text: str) -> Standing:
    """Return what a line of `scontrol show job` says."""
    fields: Mapping[str, str] = {
        key: value for key, _, value in (word.partition("=") for word in text.split())
    }
    state = fields.get("JobState", "UNKNOWN")
    reason = fields.get("Reason", "None")
    if state in _WAITING:
        return Standing(alive=None, said=f"waits in Slurm's queue: {reason}")
    if state in _LIVING:
        return Standing(alive=True, said=f"on {fields.get('NodeList', 'a node')}")
    nodes = fields.get("NodeList", "(null)")
    where = f" on {nodes}" if nodes != "(null)" else ""
    is_fault = state in _FAULTS
    blame = "the machine failed, not the job" if is_fault else f"reason {reason}"
    said = f"Slurm ended it{where}: {state}, {blame}"
    return Standing(alive=False, said=said, is_fault=is_fault)


def partitions() -> str:
    """Return each partition with its nodes, their state and what they have.

    Raises:
        SlurmError: Slurm does not answer.
    """
    lines = _said(["sinfo", "--noheader", "--format=%P: %D %t, %G"]).splitlines()
    return "; ".join(line.strip() for line in lines)


def cancel(folder: Path) -> None:
    """Take a job out of the queue or off its node; the supervisor there ends the rest."""
    number = _number(folder)
    if number is not None:
        _said(["scancel", number])


def _number(folder: Path) -> str | None:
    try:
        number = (folder / NUMBER).read_text(encoding="ascii").strip()
    except OSError:
        return None
    return number if number.isdecimal() else None


def _said(argv: Sequence[str], *, told: str = "") -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SBATCH_")}
    try:
        done = subprocess.run(
            argv,
            env=environment,
            input=told,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWERS_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{argv[0]} does not answer: {error}") from error
    if done.returncode != 0:
        raise SlurmError(f"{argv[0]}: {' '.join(done.stderr.split())[:500]}")
    return done.stdout
