import json

import pytest

from inferproof_remote.incidents import Incident
from inferproof_remote.profile import Sampled, read_sample
from inferproof_remote.sandbox import Completed

GOOD = {"seconds_per_call": 0.5, "total_s": 1.0, "rows": [["aten::mm", 0.75, 2]]}


def completed(output: object, rc: int | None = 0, *incidents: Incident) -> Completed:
    text = output if isinstance(output, str) else json.dumps(output)
    data = text.encode()
    return Completed(
        rc=rc, output=data, output_bytes=len(data), seconds=1.0, incidents=tuple(incidents)
    )


def test_the_last_line_is_the_sample():
    found = read_sample(completed("noise\n" + json.dumps(GOOD)))
    assert found == Sampled(seconds_per_call=0.5, total_s=1.0, rows=(("aten::mm", 0.75, 2),))


@pytest.mark.parametrize(
    "change",
    [
        {"seconds_per_call": 0},
        {"seconds_per_call": -1},
        {"seconds_per_call": float("nan")},
        {"seconds_per_call": "fast"},
        {"total_s": float("inf")},
        {"rows": None},
        {"rows": [["a", "b", 1]]},
        {"rows": [["a", 1.0]]},
    ],
    ids=json.dumps,
)
def test_a_sample_of_another_form_is_not_measured(change: dict[str, object]):
    found = read_sample(completed({**GOOD, **change}))
    assert isinstance(found, Incident)
    assert found.code == "not_measured"


def test_an_incident_and_a_crash_are_told():
    limit = Incident("memory_exceeded", None, "used more than 1 MiB of memory")
    assert read_sample(completed("", None, limit)) == limit
    crashed = read_sample(completed("Traceback\nValueError: shapes", 1))
    assert isinstance(crashed, Incident)
    assert crashed.code == "crashed"
    assert crashed.detail == "ended with exit code 1: ValueError: shapes"
