import json
from pathlib import Path

import pytest

from inferproof.core.canonical import Json, digest_json
from inferproof_remote import job

GOOD: dict[str, object] = {
    "schema": 1,
    "job_id": "a-1",
    "verb": "run",
    "wall_s": 5,
    "spec": {"argv": ["true"]},
}


def test_a_good_job_parses():
    asked = job.parse_job(GOOD)
    assert (asked.job_id, asked.verb, asked.wall_s) == ("a-1", "run", 5.0)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"schema": True, "extra": 1},
        {"job_id": "../up"},
        {"job_id": "A"},
        {"verb": "supervise"},
        {"verb": ["run"]},
        {"wall_s": 0},
        {"wall_s": True},
        {"wall_s": "5"},
        {"wall_s": float("nan")},
        {"wall_s": 1e9},
        {"spec": []},
    ],
    ids=json.dumps,
)
def test_any_other_form_is_refused(change: dict[str, object]):
    with pytest.raises(job.JobFormatError):
        job.parse_job({**GOOD, **change})


def test_a_missing_key_is_named():
    with pytest.raises(job.JobFormatError, match="wall_s"):
        job.parse_job({key: value for key, value in GOOD.items() if key != "wall_s"})


def test_a_job_file_that_is_no_json_is_named(tmp_path: Path):
    (tmp_path / "job.json").write_text("{")
    with pytest.raises(job.JobFormatError, match=r"job\.json"):
        job.read_job(tmp_path)


def test_a_job_is_named_as_the_server_names_it():
    spec: Json = {"b": [1, 2.5, None], "a": "ü"}
    asked: Json = {"schema": 1, "job_id": "a-1", "verb": "run", "wall_s": 5.0, "spec": spec}
    assert job.parse_job(json.loads(json.dumps(asked))).digest == digest_json(asked)


def test_a_job_exchanged_after_its_supervisor_read_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "job.json").write_text(json.dumps(GOOD))
    monkeypatch.setenv(job.ASKED, job.read_job(tmp_path).digest)
    assert job.read_job(tmp_path).verb == "run"
    (tmp_path / "job.json").write_text(json.dumps({**GOOD, "spec": {"argv": ["false"]}}))
    with pytest.raises(job.JobFormatError, match="was exchanged"):
        job.read_job(tmp_path)


def test_results_hold_only_finite_numbers(tmp_path: Path):
    with pytest.raises(ValueError, match="Out of range"):
        job.write_result(tmp_path, {"x": float("inf")})
    assert not (tmp_path / "out" / "result.json").exists()


def test_the_first_failure_stays_and_is_one_line(tmp_path: Path):
    job.write_failure(tmp_path, "first\nline")
    job.write_failure(tmp_path, "second")
    assert (tmp_path / "failure").read_text() == "first line\n"
