"""The tool `deploy` on a sealed campaign: starts, scales, is found by another server, is ended."""

import asyncio
import http.client
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferproof.campaign.templates import init
from inferproof.core.values import JobStatus
from inferproof.ledger.signing import ApproverKey
from inferproof.pipeline import Keeper
from inferproof.tools.deploy import deploy
from inferproof.tools.job import job
from inferproof.tools.job_cancel import job_cancel
from inferproof.tools.results import JobResult
from inferproof.tools.spec import Call
from inferproof_remote import cgroups, processes

pytestmark = pytest.mark.integration
PLAIN = Path(__file__).parent / "engines" / "plain" / "serve.py"
COMMAND = """\
contract: completions
engine: command
start: [python, serve.py, "{port}"]
"""
EMBEDDED = """\
contract: completions
engine: transformers
options: {dtype: bfloat16}
"""


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    folder = tmp_path / "campaign"
    init(folder, "engine-tiny")
    found = Keeper.open(folder)
    found.seal(ApproverKey.create_demo(folder / ".inferproof/demo-approver.pem"), "demo")
    yield found
    for report in asyncio.run(found.jobs()):
        asyncio.run(found.cancel(report.job_id))
        assert processes.with_environment("INFERPROOF_JOB", report.job_id) == []
        assert cgroups.cleanup(f"{report.job_id}.") == ()


def submitted(keeper: Keeper, folder: Path, manifest: str) -> str:
    folder.mkdir()
    (folder / "candidate.yaml").write_text(manifest)
    shutil.copy(PLAIN, folder)
    return keeper.submit_candidate(folder).digest


def call(keeper: Keeper) -> Call:
    return Call(keeper=keeper, on_progress=None, server_is_ending=lambda: False)


def facts(result: JobResult) -> dict[str, object]:
    return {fact.name: fact.value for fact in result.facts}


def job_id(result: JobResult) -> str:
    assert result.job is not None
    return result.job.job_id


def answer(endpoint: object, body: dict[str, object]) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection(str(endpoint).removeprefix("http://"), timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body))
    found = connection.getresponse()
    told = json.loads(found.read())
    connection.close()
    return found.status, told


def test_a_deployment_is_started_scaled_found_again_and_ended(keeper: Keeper, tmp_path: Path):
    candidate = submitted(keeper, tmp_path / "engine", COMMAND)

    async def scenario() -> None:
        started = await deploy(call(keeper), candidate, replicas=2)
        assert started.ok, started
        assert (facts(started)["healthy"], facts(started)["replicas"]) == (2, 2)
        endpoint = facts(started)["endpoint"]
        other = Keeper.open(keeper.root)
        scaled = await deploy(call(other), candidate, replicas=3)
        assert job_id(scaled) == job_id(started)
        assert (facts(scaled)["endpoint"], facts(scaled)["healthy"]) == (endpoint, 3)
        looked = await job(call(other), job_id(started), wait_s=0)
        assert (looked.ok, facts(looked)["endpoint"]) == (True, endpoint)
        ended = await job_cancel(call(other), job_id(started))
        assert ended.job is not None
        assert ended.job.state is JobStatus.CANCELLED
        assert ended.verdict is None
        again = await deploy(call(keeper), candidate)
        assert job_id(again) != job_id(started)
        assert again.ok

    asyncio.run(scenario())


def test_the_embedded_engine_answers_from_its_sandbox_through_the_balancer(
    keeper: Keeper, tmp_path: Path
):
    candidate = submitted(keeper, tmp_path / "engine", EMBEDDED)

    async def scenario() -> JobResult:
        return await deploy(call(keeper), candidate, wait_s=50)

    started = asyncio.run(scenario())
    assert started.ok, started
    status, told = answer(facts(started)["endpoint"], {"prompt": "The", "max_tokens": 5})
    assert status == 200
    usage = told["usage"]
    assert isinstance(usage, dict)
    assert usage["completion_tokens"] == 5
    assert answer(facts(started)["endpoint"], {"prompt": ""})[0] == 400


def test_an_engine_that_crashes_at_once_is_named_and_not_judged(keeper: Keeper, tmp_path: Path):
    broken = COMMAND.replace("serve.py", "no_such_file.py")
    candidate = submitted(keeper, tmp_path / "engine", broken)
    result = asyncio.run(deploy(call(keeper), candidate))
    assert result.job is not None
    assert result.job.state is JobStatus.DONE
    assert result.verdict is None
    assert "no_such_file.py" in str(facts(result)["incident"])
    evidence = keeper.evidence(result.job.job_id)
    assert evidence.kind == "deploy"
    assert evidence.deploy is not None
    assert evidence.deploy.deployments[0].healthy == 0
    assert keeper.verify(None).ok
