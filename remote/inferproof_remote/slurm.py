"""Slurm's own commands: hand jobs over, ask where one stands, take one back."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_ANSWERS_S = 30.0
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED", "RESV_DEL_HOLD")
_LIVING = ("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED")
_ILL_NODES = ("NODE_FAIL", "BOOT_FAIL")
_FAULTS = (*_ILL_NODES, "PREEMPTED", "REVOKED")
_ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "SLURM_CONF")
_FORGOTTEN = re.compile(r"Invalid job id|Job [0-9_]+ not found")  # the latter of an array


class SlurmError(Exception):
    """Slurm does not do what it was asked; its own words say why."""


class SlurmRefused(SlurmError):
    """Slurm does not take a job."""


class SlurmSilent(SlurmError):
    """Slurm gave no answer: what it was asked may be done or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where Slurm says a job stands. `alive` is None while it waits; `said` is Slurm's reason.

    `is_fault`: the machine ended it; `ill` names the nodes that should not have it again.
    """

    alive: bool | None
    said: str
    is_fault: bool = False
    ill: str = ""


def submit(name: str, script: str, options: Sequence[str], *, count: int, lock: int) -> str:
    """Put `script` into the queue, `count` times in one array if more than once; return its number.

    Who is asked holds `lock`, an open file, until it has answered, also when we are killed.

    Raises:
        SlurmError: Slurm refuses it.
        SlurmSilent: it may be in the queue, under its name.
    """
    array = [f"--array=0-{count - 1}"] if count > 1 else []
    asked = [
        *("sbatch", "--parsable", "--no-requeue", f"--job-name={name}", "--chdir=/"),
        *("--output=/dev/null", *array, *options),
    ]
    number = _said(asked, told=script, lock=lock).partition(";")[0].strip()
    if not number.isdecimal():
        raise SlurmSilent(f"sbatch answered {number[:200]!r}")
    return number


def number_of(name: str) -> str | None:
    """Return the number of our newest job or array of that name; None if Slurm knows none.

    Raises:
        SlurmError: Slurm does not answer.
    """
    asked = ["squeue", "--noheader", "--states=all", "--format=%F", f"--name={name}"]
    numbers = _said([*asked, f"--user={os.getuid()}"]).split()
    return max(filter(str.isdecimal, numbers), key=int, default=None)


def standing(number: str) -> Standing:
    """Return where a job stands.

    Raises:
        SlurmError: Slurm does not answer; where the job stands is not known.
    """
    try:
        return read(_said(["scontrol", "--oneliner", "show", "job", number]))
    except SlurmError as error:
        if not _FORGOTTEN.search(str(error)):
            raise
    return Standing(alive=False, said="Slurm does not know it any more")


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
    nodes = fields.get("NodeList", "").replace("(null)", "")
    where = f" on {nodes}" if nodes else ""
    is_fault = state in _FAULTS
    blame = "the machine failed, not the job" if is_fault else f"reason {reason}"
    said = f"Slurm ended it{where}: {state}, {blame}"
    ill = nodes if state in _ILL_NODES else ""
    return Standing(alive=False, said=said, is_fault=is_fault, ill=ill)


def partitions() -> str:
    """Return each partition with its nodes, their state and what they have.

    Raises:
        SlurmError: Slurm does not answer.
    """
    lines = _said(["sinfo", "--noheader", "--format=%P: %D %t, %G"]).splitlines()
    return "; ".join(line.strip() for line in lines)


def cancel(number: str) -> None:
    """Take a job out of the queue or off its node; one that is over already is no error.

    Raises:
        SlurmError: Slurm does not do it.
    """
    try:
        _said(["scancel", number])
    except SlurmError as error:
        if not _FORGOTTEN.search(str(error)):
            raise


def _said(argv: Sequence[str], *, told: str = "", lock: int | None = None) -> str:
    """Return what a command says; it, and so the job, inherits nothing of our environment."""
    try:
        done = subprocess.run(
            argv,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            pass_fds=() if lock is None else (lock,),
            input=told,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWERS_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SlurmSilent(f"{argv[0]} does not answer within {_ANSWERS_S:g} s") from error
    except OSError as error:
        raise SlurmError(f"{argv[0]} cannot be run: {error}") from error
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout).split()
        raise SlurmError(f"{argv[0]}: {' '.join(words)[:500]}")
    return done.stdout
