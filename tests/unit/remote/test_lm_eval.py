"""What lm-eval reports is read as numbers; what it cannot report is told with what to do."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from inferproof_remote.serving.lm_eval import EvalOrder, command, evaluate, metrics

REPORT = {
    "results": {
        "sums": {"alias": "sums", "exact_match,none": 0.25, "exact_match_stderr,none": "N/A"},
        "odd": {"acc,none": float("nan"), "acc_norm,none": 1, "acc_bool,none": True},
    },
    "lm_eval_version": "0.4.13",
}
SCRIPT = """#!/usr/bin/env python3
import pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--output_path") + 1])
(out / "model").mkdir(parents=True)
(out / "model" / "results_2026.json").write_text({report!r})
"""


def order(work: Path) -> EvalOrder:
    return EvalOrder(
        endpoint="http://127.0.0.1:8000",
        model_name="model",
        tokenizer=Path("/models/tiny"),
        tasks=("sums", "odd"),
        limit=8,
        folder=None,
        at_once=2,
        wall_s=20.0,
        work=work,
    )


def program(folder: Path, text: str) -> Path:
    path = folder / "bin" / "lm_eval"
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_only_finite_numbers_are_metrics() -> None:
    assert metrics(REPORT) == {"sums": {"exact_match": 0.25}, "odd": {"acc_norm": 1.0}}


def test_a_report_becomes_facts(tmp_path: Path) -> None:
    sums = {"exact_match,none": 0.25}
    text = json.dumps({"results": {"sums": sums}, "lm_eval_version": "0.4.13"})
    told = evaluate(order(tmp_path / "work"), program(tmp_path, SCRIPT.format(report=text)))
    assert (told["failure"], told["version"]) == ("", "0.4.13")
    assert told["results"] == {"sums": {"exact_match": 0.25}}


def test_files_of_own_tasks_are_named_relative_to_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    report = json.dumps({"results": {}, "lm_eval_version": "0.4.13"})
    (folder / "rows.jsonl").write_text(report)
    text = SCRIPT.replace("{report!r}", "open('rows.jsonl').read()")
    own = replace(order(tmp_path / "work"), folder=folder)
    assert evaluate(own, program(tmp_path, text))["version"] == "0.4.13"
    assert [path.name for path in folder.iterdir()] == ["rows.jsonl"]


def test_a_missing_program_says_how_to_get_it(tmp_path: Path) -> None:
    told = evaluate(order(tmp_path), None)
    assert "pip install" in str(told["failure"])
    assert told["results"] == {}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("#!/bin/sh\necho no such task; exit 3\n", "exit code 3: no such task"),
        ("#!/nowhere\n", "cannot start"),
    ],
)
def test_a_run_without_a_report_is_a_failure(tmp_path: Path, text: str, what: str) -> None:
    told = evaluate(order(tmp_path / "work"), program(tmp_path, text))
    assert what in str(told["failure"])
    assert told["results"] == {}


def test_the_tokenizer_is_named_where_it_can_be_read(tmp_path: Path) -> None:
    path = program(tmp_path, "")
    assert "tokenizer_backend=none" in " ".join(command(order(tmp_path), path))
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    assert "tokenizer_backend=huggingface" in " ".join(command(order(tmp_path), path))
