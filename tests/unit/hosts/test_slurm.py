"""What Slurm is told and what its words mean."""

import json

import pytest

from inferproof.core.campaign import Target
from inferproof.hosts.base import JobRequest, Verb
from inferproof.hosts.slurm import options
from inferproof_remote.slurm import Standing, read


def told(verb: Verb, **queue: object) -> list[str]:
    entry = {"host": "slurm", "work": "/w", "threads": 4, "slurm": queue}
    target = Target.model_validate_json(json.dumps(entry))
    return list(options(target, JobRequest(job_id="j", verb=verb, wall_s=90, spec={})))


def test_builds_need_no_gpu_and_what_is_timed_has_its_node_alone():
    queue = {"partition": "gpu", "compile_partition": "cpu", "account": "lab", "gres": "gpu:1"}
    common = ["--account=lab", "--cpus-per-task=4", "--time=3"]
    assert set(told("compile", **queue)) == {"--partition=cpu", *common}
    assert set(told("run", **queue)) == {"--partition=gpu", "--gres=gpu:1", *common}
    for verb in ("grade", "profile", "serve"):
        asked = told(verb, **queue)
        assert set(asked) == {"--partition=gpu", "--gres=gpu:1", "--exclusive", *common}
    assert "--exclusive" not in told("grade", exclusive=False)


@pytest.mark.parametrize(
    ("line", "standing"),
    [
        (
            "JobId=7 JobState=PENDING Reason=Resources NodeList=(null)",
            Standing(alive=None, said="waits in Slurm's queue: Resources"),
        ),
        ("JobId=7 JobState=RUNNING NodeList=gpu1", Standing(alive=True, said="on gpu1")),
        ("JobId=7 JobState=COMPLETING NodeList=gpu1", Standing(alive=True, said="on gpu1")),
        (
            "JobId=7 JobState=NODE_FAIL Reason=NodeDown NodeList=gpu2",
            Standing(
                alive=False,
                said="Slurm ended it on gpu2: NODE_FAIL, the machine failed, not the job",
                is_fault=True,
                ill="gpu2",
            ),
        ),
        (
            "JobId=7 JobState=PREEMPTED NodeList=gpu2",
            Standing(
                alive=False,
                said="Slurm ended it on gpu2: PREEMPTED, the machine failed, not the job",
                is_fault=True,
            ),
        ),
        (
            "JobId=7 JobState=CANCELLED Reason=None NodeList=(null)",
            Standing(alive=False, said="Slurm ended it: CANCELLED, reason None"),
        ),
        ("nonsense", Standing(alive=False, said="Slurm ended it: UNKNOWN, reason None")),
    ],
)
def test_a_line_of_scontrol_says_where_a_job_stands(line: str, standing: Standing):
    assert read(line) == standing
