"""The bench's command line: `python -I inferproof_remote.pyz VERB JOBDIR`."""

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import cast

from inferproof_remote import door, job, supervise
from inferproof_remote.fairness import take_priority

_USAGE = 2
_VERB_MODULES: Mapping[str, tuple[str, str]] = {
    "compile": ("compile", "compile_job"),
    "grade": ("grade", "grade"),
    "profile": ("profile", "profile"),
    "run": ("run", "run"),
    "facts": ("facts", "facts"),
    "deploy": ("serving.deploy", "deploy"),
    "serve": ("serving.serve", "serve"),
    "search": ("serving.search", "search"),
}
_ENGINES: Mapping[str, str] = {
    "engine": "serving.engine_transformers",
    "engine-llama": "serving.engine_llama",
}


class _FailureTold:
    """Turn an exception inside the block into a one-line `failure` file and exit code 70."""

    def __init__(self, job_dir: Path) -> None:
        self._job_dir = job_dir

    def __enter__(self) -> None:
        """Start watching."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            traceback.print_exception(error, file=sys.stderr)
            job.write_failure(self._job_dir, f"{type(error).__name__}: {error}")
            raise SystemExit(supervise.FAILED)


def main(arguments: list[str]) -> int:
    """Do what `VERB JOBDIR` asks, or be one of our own engines; return the exit code."""
    if arguments and arguments[0] in _ENGINES:
        engine = importlib.import_module(f"inferproof_remote.{_ENGINES[arguments[0]]}")
        return cast("Callable[[list[str]], int]", engine.main)(arguments[1:])
    verbs = ("supervise", *_OWN_VERBS, *_VERB_MODULES)
    if len(arguments) != 2 or arguments[0] not in verbs:
        sys.stderr.write(f"usage: inferproof_remote {{{','.join(verbs)}}} JOBDIR\n")
        return _USAGE
    verb, job_dir = arguments[0], Path(arguments[1]).resolve()
    if verb == "supervise":
        secret = sys.stdin.buffer.read()
        code = supervise.launch(job_dir, Path(sys.argv[0]).resolve(), secret=secret)
        os._exit(code)  # at once: whoever cancels finds nothing of the job but its supervisor
    if verb in _OWN_VERBS:
        return _OWN_VERBS[verb](job_dir)
    with _FailureTold(job_dir):
        _perform(verb, job_dir)
    return supervise.DONE


def _sweep(job_dir: Path) -> int:
    supervise.sweep(job_dir)
    return supervise.DONE


def _stay(job_dir: Path) -> int:
    return supervise.stay(job_dir, Path(sys.argv[0]).resolve())


def _machine(work: Path) -> int:
    module = importlib.import_module("inferproof_remote.machine")
    facts = cast("Callable[[Path], dict[str, object]]", module.machine)(work)
    sys.stdout.write(json.dumps(facts, allow_nan=False))
    return supervise.DONE


_OWN_VERBS: Mapping[str, Callable[[Path], int]] = {
    "stay": _stay,
    "sweep": _sweep,
    "door": door.open_door,
    "machine": _machine,
}


def _perform(verb: str, job_dir: Path) -> None:
    if os.environ.get(job.MARK):
        supervise.die_with_parent()
    asked = job.read_job(job_dir)
    if asked.verb != verb:
        raise job.JobFormatError(f"the job asks for {asked.verb!r}, not {verb!r}")
    if verb in ("grade", "profile"):
        take_priority()
    module, name = _VERB_MODULES[verb]
    loaded = importlib.import_module(f"inferproof_remote.{module}")
    function = cast("Callable[[Path], dict[str, object]]", getattr(loaded, name))
    job.write_result(job_dir, function(job_dir))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
