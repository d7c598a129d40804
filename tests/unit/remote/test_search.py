"""A round of search on the bench: every configuration is told, unless its time was up."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Self, cast

import pytest

from inferproof.core.service import EngineSpec
from inferproof.serving.engines import baseline_plan
from inferproof_remote import facts
from inferproof_remote.serving import search

START_S = 10.0
BENCH: dict[str, object] = {
    "separation": "container",
    "sandbox": "s",
    "cpu_model": "c",
    "cores": 2,
    "versions": {},
}


def bench(threads: int) -> dict[str, object]:
    del threads
    return BENCH


class Clock:
    """A clock that only a start moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of what was started; nothing of it serves, and each takes ten seconds."""
    clock, names = Clock(), list[str]()

    class Deployment:
        ready_s = None
        endpoint = ""

        def __init__(self, *_: object, name: str, **__: object) -> None:
            names.append(name)

        def __enter__(self) -> Self:
            clock.now += START_S
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def facts(self, **_: object) -> dict[str, object]:
            return {"arm": "candidate"}

    examiner = SimpleNamespace(
        Examiner=lambda _order, bits: SimpleNamespace(bits=bits, model_digest="d" * 64)  # pyright: ignore[reportUnknownLambdaType]
    )
    monkeypatch.setitem(sys.modules, "inferproof_remote.serving.examiner", examiner)
    monkeypatch.setattr(search, "Deployment", Deployment)
    monkeypatch.setattr(search, "time", clock)
    monkeypatch.setattr(facts, "bench", bench)
    return names


def job(folder: Path, *, until_s: float | None, restarts: int = 1) -> Path:
    plan = baseline_plan(EngineSpec(engine="transformers")).as_json()
    trials = [{"number": n, "options": {"max_batch": n}, "plan": plan} for n in range(4)]
    spec = {
        "stage": "explore",
        "until_s": until_s,
        "trials": trials,
        "plans": {},
        "model": {"name": "tiny", "path": "/models/tiny"},
        "contract": {},
        "contract_files": {},
        "limits": {},
        "threads": 1,
        "tools": {"aiperf": None, "haproxy": None},
        "replicas": 1,
        "restarts": restarts,
        "traffic": [],
    }
    asked = {"schema": 1, "job_id": "search-1", "verb": "search", "wall_s": 60.0, "spec": spec}
    (folder / "in/contract").mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps(asked))
    return folder


def numbers(told: dict[str, object]) -> list[int]:
    return [trial["number"] for trial in cast("list[dict[str, int]]", told["trials"])]


def test_what_does_not_serve_is_told_like_all_others(started: list[str], tmp_path: Path):
    told = search.search(job(tmp_path, until_s=None, restarts=2))
    assert numbers(told) == [0, 1, 2, 3]
    assert sorted(started) == sorted(f"trial-{n}-{r}" for n in range(4) for r in range(2))
    assert told["seconds"] == 80.0


@pytest.mark.parametrize(("until_s", "most"), [(35.0, 3), (15.0, 1), (5.0, 1)])
def test_when_the_time_is_up_none_is_started_but_the_contracts_own(
    started: list[str], tmp_path: Path, until_s: float, most: int
):
    told = search.search(job(tmp_path, until_s=until_s))
    assert 0 in numbers(told)
    assert len(numbers(told)) in (most, most + 1)
    assert len(started) == len(numbers(told))
