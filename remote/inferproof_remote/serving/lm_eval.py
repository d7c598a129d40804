"""lm-eval against an endpoint, where the user has it: what it reports, told and never judged."""

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inferproof_remote.serving.wire import parsed, table

Facts = dict[str, object]
MISSING = (
    "lm_eval is not on this target: python3 -m venv /opt/lm-eval && /opt/lm-eval/bin/pip install "
    "'lm-eval[api]' transformers, then `lm_eval: /opt/lm-eval/bin/lm_eval` in targets.yaml"
)
_TOLD = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOrder:
    """One run: which endpoint and tasks, where it may write.

    `folder` has tasks of the user's; their files are named relative to it.
    """

    endpoint: str
    model_name: str
    tokenizer: Path
    tasks: tuple[str, ...]
    limit: int
    folder: Path | None
    at_once: int
    wall_s: float
    work: Path


def find_lm_eval() -> Path | None:
    """Return the program beside this interpreter, else the one in PATH."""
    beside = Path(sys.prefix) / "bin" / "lm_eval"
    found = str(beside) if beside.is_file() else shutil.which("lm_eval")
    return None if found is None else Path(found)


def evaluate(order: EvalOrder, program: Path | None) -> Facts:
    """Return what lm-eval reports of one endpoint, as `LmEvalFacts` without the arm."""
    if program is None:
        return _facts(0.0, failure=MISSING)
    order.work.mkdir(parents=True, exist_ok=True)
    began_s, log = time.monotonic(), order.work / "log"
    try:
        with log.open("wb") as output:
            code = subprocess.run(
                command(order, program),
                cwd=order.folder or order.work,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=order.wall_s,
            ).returncode
    except subprocess.TimeoutExpired:
        return _facts(order.wall_s, failure=f"not done after {order.wall_s:g} s")
    except OSError as error:
        return _facts(0.0, failure=f"cannot start {program}: {error.strerror}")
    seconds = time.monotonic() - began_s
    reports = sorted(order.work.rglob("results_*.json"))
    report = parsed(reports[-1].read_bytes()) if reports else None
    if report is None:
        said = log.read_text(encoding="utf-8", errors="replace").strip()[-_TOLD:]
        return _facts(seconds, failure=f"no report, exit code {code}: {said}")
    return _facts(seconds, version=str(report.get("lm_eval_version", "")), results=metrics(report))


def command(order: EvalOrder, program: Path) -> list[str]:
    """Return the command line of a run."""
    arguments = {
        "model": order.model_name,
        "base_url": f"{order.endpoint}/v1/completions",
        "num_concurrent": order.at_once,
        "tokenizer": order.tokenizer,
        "tokenizer_backend": "huggingface" if _has_transformers(program) else "none",
    }
    own = ["--include_path", str(order.folder)] if order.folder else []
    return [
        *(str(program), "run", "--model", "local-completions"),
        *("--model_args", ",".join(f"{name}={value}" for name, value in arguments.items())),
        *("--tasks", ",".join(order.tasks), "--limit", str(order.limit)),
        *("--output_path", str(order.work), *own),
    ]


def metrics(report: Mapping[str, object]) -> dict[str, dict[str, float]]:
    """Return {task: {metric: value}} of a report; what is no finite number is left out."""
    return {
        task: {
            name.removesuffix(",none"): float(value)
            for name, value in table(told).items()
            if isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
        }
        for task, told in table(report.get("results")).items()
    }


def _has_transformers(program: Path) -> bool:
    """Return whether lm-eval can read the model's tokenizer, without which it scores no options."""
    return any(program.parents[1].glob("lib/python3*/site-packages/transformers/__init__.py"))


def _facts(
    seconds: float,
    *,
    version: str = "",
    results: Mapping[str, Mapping[str, float]] | None = None,
    failure: str = "",
) -> Facts:
    return {
        "version": version,
        "results": {task: dict(told) for task, told in (results or {}).items()},
        "seconds": seconds,
        "failure": failure,
    }
