"""What a manifest asks to launch, resolved for one shape of a shipped contract."""

import json

import pytest

from inferproof_remote.job import JobFormatError
from inferproof_remote.launches import Asked, UnfitLaunch, parse_launches, parse_resolved, resolve
from shipped_kernels import load

DIMS = {"tokens": 100, "hidden": 256}


def launch(**changes: object) -> object:
    return {"kernel": "rms_norm", "grid": ["tokens"], "block": [128], **changes}


def resolved(*raw: object, sms: int = 132):
    kernel, _ = load("rms_norm")
    return resolve(Asked(launches=parse_launches(list(raw))), kernel, DIMS, sms=sms)


def test_sizes_are_expressions_over_dims_and_multiprocessors() -> None:
    (found,) = resolved(
        launch(grid=["min(tokens, 4*sms)", "hidden//64"], shared_bytes="4*hidden")
    ).launches
    assert found.grid == (100, 4, 1)
    assert found.shared_bytes == 1024


def test_without_args_a_kernel_gets_those_of_the_c_abi() -> None:
    (found,) = resolved(launch()).launches
    assert found.args == (
        *(("tensor", "x"), ("tensor", "weight"), ("tensor", "y")),
        *(("integer", 100), ("integer", 256), ("float", pytest.approx(1e-6))),
    )


def test_no_args_are_not_the_default_args() -> None:
    assert resolved(launch(args=[])).launches[0].args == ()


def test_the_launches_of_a_call_share_the_largest_workspace() -> None:
    plan = resolved(launch(workspace_bytes="4*tokens"), launch(workspace_bytes=16))
    assert plan.workspace_bytes == 400
    assert plan.launches[0].args[-1] == ("tensor", "workspace")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"grid": [0]}, "grid"),
        ({"block": [32, 64]}, "more than 1024 threads"),
        ({"block": [2048]}, "block"),
        ({"cluster": [17]}, "cluster"),
        ({"shared_bytes": 1 << 20}, "shared_bytes"),
        ({"workspace_bytes": "tokens*hidden*hidden*hidden*hidden"}, "workspace_bytes"),
        ({"grid": ["rows"]}, "unknown name 'rows'"),
        ({"args": ["z"]}, "unknown name 'z'"),
    ],
)
def test_what_no_device_can_launch_is_refused_by_name(
    changes: dict[str, object], said: str
) -> None:
    with pytest.raises(UnfitLaunch, match=said):
        resolved(launch(**changes))


@pytest.mark.parametrize("changes", [{"grid": []}, {"grid": [1, 1, 1, 1]}, {"block": 32}])
def test_launches_of_another_form_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(JobFormatError):
        parse_launches([launch(**changes)])


def test_a_resolved_launch_survives_the_wire() -> None:
    (found,) = resolved(launch(cluster=[2], cooperative=True)).launches
    assert parse_resolved(json.loads(json.dumps(found.to_json()))) == found
