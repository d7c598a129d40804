import json
from pathlib import Path

import pytest

from inferproof_remote.__main__ import main


def ask(job_dir: Path, verb: str, **spec: object) -> None:
    body = {"schema": 1, "job_id": "j1", "verb": verb, "wall_s": 5, "spec": spec}
    (job_dir / "job.json").write_text(json.dumps(body))


@pytest.mark.parametrize("arguments", [[], ["run"], ["nonsense", "."], ["run", ".", "x"]])
def test_other_arguments_are_a_usage_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_a_verb_leaves_its_result(tmp_path: Path):
    ask(tmp_path, "facts")
    assert main(["facts", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "out" / "result.json").read_text())["versions"]["python"]


@pytest.mark.parametrize(
    ("asked", "verb", "failure"),
    [
        ("run", "facts", "the job asks for 'run', not 'facts'"),
        ("run", "run", "KeyError: 'argv'"),
    ],
)
def test_an_error_is_one_line_and_code_70(
    tmp_path: Path, asked: str, verb: str, failure: str, capsys: pytest.CaptureFixture[str]
):
    ask(tmp_path, asked)
    with pytest.raises(SystemExit) as ended:
        main([verb, str(tmp_path)])
    assert ended.value.code == 70
    text = (tmp_path / "failure").read_text()
    assert failure in text
    assert text.count("\n") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" in said.err
    assert not (tmp_path / "out" / "result.json").exists()
