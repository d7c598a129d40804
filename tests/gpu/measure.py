"""Run prepared jobs on the machine with the GPU; leave one JSON file. Standard library only.

python3 tests/gpu/measure.py JOBS RESULTS [--together N] [NAME ...]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

REMOTE = Path(__file__).parents[2] / "remote"
LIMIT_S = 240


def main() -> None:
    """Run every job below JOBS, or those named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("jobs", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--together", type=int, default=1)
    given = parser.parse_args()
    found = sorted(path.parent for path in given.jobs.glob("*/job.json"))
    jobs = [path for path in found if not given.names or path.name in given.names]
    timed = [job for job in jobs if is_timed(job)]
    results: dict[str, object] = {}
    with ThreadPoolExecutor(max_workers=given.together) as pool:
        together = pool.map(run, [job for job in jobs if job not in timed])
        for name, result in chain(together, map(run, timed)):  # what measures time runs alone
            results[name] = result  # kept at once: the machine may go back before the end
            given.results.write_text(json.dumps(results), encoding="utf-8")


def is_timed(job: Path) -> bool:
    """Return whether a job measures time."""
    return asked(job)["verb"] == "profile" or asked(job)["spec"]["timing"] is True


def asked(job: Path) -> dict[str, Any]:
    """Return what a job asks for."""
    return json.loads((job / "job.json").read_text(encoding="utf-8"))


def run(job: Path) -> tuple[str, dict[str, object]]:
    """Return a job's name with what it left and how long it took."""
    began = time.monotonic()
    command = [sys.executable, "-m", "inferproof_remote", asked(job)["verb"], str(job)]
    env = {**os.environ, "PYTHONPATH": str(REMOTE), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        said = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        said = f"ran longer than {LIMIT_S} s"
    seconds = time.monotonic() - began
    result = job / "out" / "result.json"
    facts = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else None
    sys.stdout.write(f"{job.name}: {seconds:.1f} s{'' if facts else ' FAILED ' + said[-1500:]}\n")
    sys.stdout.flush()
    return job.name, {"seconds": seconds, "facts": facts, "said": said[-4000:]}


if __name__ == "__main__":
    main()
