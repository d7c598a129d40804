"""lm-eval itself, in a job, on an engine in its sandbox: own tasks, and no network."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from adversarial.engine_zoo import CONTRACT, EngineBench

LM_EVAL = Path(__file__).parents[2] / ".venv/lm-eval/bin"
COMMON = {
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "letters.jsonl"}},
    "test_split": "test",
    "doc_to_text": "{{before}}",
}
CHOOSES = {
    "task": "letters_choice",
    "output_type": "multiple_choice",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "{{answer}}",
    "metric_list": [{"metric": "acc"}],
}
WRITES = {
    "task": "letters_written",
    "output_type": "generate_until",
    "doc_to_target": "{{choices[answer]}}",
    "generation_kwargs": {"until": ["\n"], "max_gen_toks": 4, "do_sample": False},
    "metric_list": [{"metric": "exact_match", "ignore_case": True}],
}
pytestmark = [
    pytest.mark.integration,
    pytest.mark.zoo,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),
]


def with_tasks(work: Path) -> Path:
    """Return the shipped contract with two tasks of lm-eval beside its own."""
    contract = work / "services" / "completions"
    shutil.copytree(CONTRACT, contract)
    folder = contract / "lm-eval"
    folder.mkdir()
    rows = [
        {"before": " ".join("abab" * 4), "choices": [" a", " %"], "answer": number % 2}
        for number in range(4)
    ]
    (folder / "letters.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for task in (CHOOSES, WRITES):
        (folder / f"{task['task']}.yaml").write_text(yaml.safe_dump({**COMMON, **task}))
    told = yaml.safe_load((contract / "contract.yaml").read_text(encoding="utf-8"))
    names = [CHOOSES["task"], WRITES["task"]]
    told["tasks"]["lm_eval"] = {"tasks": names, "folder": "lm-eval", "limit": 4, "wall_s": 400}
    (contract / "contract.yaml").write_text(yaml.safe_dump(told), encoding="utf-8")
    return contract


def test_tasks_of_ones_own_are_run_on_the_candidate_and_their_metrics_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (LM_EVAL / "lm_eval").is_file(), "run: make zoo, which installs lm-eval"
    tmp_path.chmod(0o755)
    monkeypatch.setenv("PATH", str(LM_EVAL), prepend=":")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    bench = EngineBench(tmp_path, with_tasks(tmp_path))
    case = bench.measure(bench.manifest("engine: transformers\n"), ("lm_eval",))
    assert case.evidence.serve
    (told,) = case.evidence.serve.lm_eval
    assert (told.arm, told.failure) == ("candidate", "")
    assert told.version.startswith("0.4")
    # Of four rows two have the likelier choice as their answer; none of two is what is written.
    assert told.results["letters_choice"]["acc"] == 0.5
    assert 0 <= told.results["letters_written"]["exact_match"] <= 0.5
