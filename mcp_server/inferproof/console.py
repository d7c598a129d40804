"""The one place that writes to the terminal: results to stdout, everything else to stderr."""

import json
import sys
from collections.abc import Mapping

from inferproof.core.canonical import Json
from inferproof.core.errors import InferproofError, InfrastructureError, UsageError


def show(text: str, facts: Mapping[str, Json], *, as_json: bool) -> None:
    """Write a command's result: the text for a person, or the facts as one JSON object."""
    sys.stdout.write((json.dumps(facts, ensure_ascii=False) if as_json else text) + "\n")
    sys.stdout.flush()


def warn(text: str) -> None:
    """Write progress, a warning or a question's context; never part of the result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def show_error(error: InferproofError, *, as_json: bool) -> None:
    """Write what happened and what to do about it."""
    if as_json:
        warn(json.dumps(told(error), ensure_ascii=False))
        return
    warn(f"inferproof: {error.what}")
    if error.hint:
        warn(f"  {error.hint}")


def error_of(text: str) -> InferproofError:
    """Return the error that somebody told as JSON."""
    try:
        said = json.loads(text)
    except json.JSONDecodeError:
        return UsageError(text)
    kind = InfrastructureError if said["error_code"] == "infrastructure" else UsageError
    error = kind(said["what"], hint=said["hint"])
    error.error_code = said["error_code"]
    error.retryable = said["retryable"]
    return error


def told(error: InferproofError) -> dict[str, Json]:
    """Return an error as the JSON object that tools and --json show."""
    return {
        "ok": False,
        "what": error.what,
        "hint": error.hint,
        "error_code": error.error_code,
        "retryable": error.retryable,
    }
