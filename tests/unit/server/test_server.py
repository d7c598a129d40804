"""The server as a client sees it, in both protocol eras."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import CallToolResult, TextContent

from inferproof.core.deploy_facts import DeployFacts
from inferproof.core.errors import InfrastructureError, SealBroken
from inferproof.core.evidence import RunFacts
from inferproof.core.serving_facts import DeploymentFacts
from inferproof.core.values import Incident, JobStatus, Outcome, Reason
from inferproof.server import INSTRUCTIONS, build_server
from inferproof.tools import TOOLS
from unit.server.fake_keeper import (
    CANDIDATE,
    EVIDENCE,
    HEAD,
    FakeKeeper,
    FakeRollout,
    build_facts,
    evidence,
    job_report,
    verdict,
)

ERAS = ("legacy", "auto")
ARGUMENTS: dict[str, dict[str, Any]] = {
    "campaign_status": {},
    "submit_candidate": {"folder": "/"},
    "compile_kernel": {"candidate": CANDIDATE},
    "check_numerics": {"candidate": CANDIDATE, "purpose": "graded", "request_key": "first"},
    "deploy": {"candidate": CANDIDATE, "replicas": 2},
    "search_config": {"contract": "completions"},
    "run_aiperf": {"candidate": CANDIDATE},
    "profile": {"candidate": CANDIDATE, "wait_s": 10},
    "promote": {"candidate": CANDIDATE},
    "run": {"argv": ["nproc"]},
    "job": {"job_id": "job-1"},
    "job_cancel": {"job_id": "job-1"},
    "evidence": {"ref": EVIDENCE, "section": "diagnostics"},
}


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


def call(era: str, keeper: FakeKeeper, name: str, arguments: dict[str, Any]) -> CallToolResult:
    async def main() -> CallToolResult:
        async with Client(build_server(Path("/nowhere"), lambda: keeper), mode=era) as client:
            return await client.call_tool(name, arguments)

    return asyncio.run(main())


def structured(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


def failure(result: CallToolResult) -> dict[str, Any]:
    assert result.is_error
    (content,) = result.content
    assert isinstance(content, TextContent)
    return json.loads(content.text)


@pytest.mark.parametrize("name", [tool.name for tool in TOOLS])
def test_each_tool_answers_with_summary_next_steps_and_head(era: str, name: str) -> None:
    keeper = FakeKeeper(ends_with=job_report(evidence=EVIDENCE))
    answer = structured(call(era, keeper, name, ARGUMENTS[name]))
    assert answer["summary"]
    assert "next_steps" in answer
    assert answer["head"] == HEAD


def test_a_search_that_is_done_tells_its_gain_and_what_was_invalid(era: str) -> None:
    answer = structured(call(era, FakeKeeper(), "search_config", {}))
    assert "done: tuned is 2x default, 95 % interval 1.5 to 2.5: dtype=float32" in answer["summary"]
    facts = {fact["name"]: fact["value"] for fact in answer["facts"]}
    assert facts["tpot_ms single"] == "2x (1.5 to 2.5); 1 against 2"
    assert facts["invalid dtype=int1"].startswith("numerics crashed")
    assert answer["rows"] == [
        "confirm dtype=float32: 2x (1.5 to 2.5)",
        "confirm dtype=int1: crashed",
    ]
    assert answer["ok"] is True
    assert "run_aiperf" in answer["next_steps"][0]


def deployed(*, healthy: int) -> DeployFacts:
    one = DeploymentFacts(
        arm="candidate",
        restart=0,
        engine="command",
        supervised=True,
        replicas=2,
        healthy=healthy,
        ready_s=1.5,
        features={},
        incidents=(Incident(code=Reason.CRASHED, call=None, detail="replica r1 ended"),),
    )
    return DeployFacts(
        candidate_seen=CANDIDATE, endpoint="http://127.0.0.1:4711", deployments=(one,)
    )


@pytest.mark.parametrize(("healthy", "ok"), [(2, True), (1, False)])
def test_a_running_deployment_tells_its_endpoint(era: str, healthy: int, ok: bool) -> None:
    report = job_report(status=JobStatus.RUNNING).model_copy(update={"tool": "deploy"})
    keeper = FakeKeeper(ends_with=report, rollout=FakeRollout(stands=deployed(healthy=healthy)))
    for name, arguments in (("deploy", {"candidate": CANDIDATE}), ("job", {"job_id": "job-1"})):
        answer = structured(call(era, keeper, name, arguments))
        facts = {fact["name"]: fact["value"] for fact in answer["facts"]}
        assert facts["endpoint"] == "http://127.0.0.1:4711"
        assert facts["healthy"] == healthy
        assert facts["incident"] == "crashed: replica r1 ended"
        assert answer["ok"] is ok
        assert any("job_cancel" in step for step in answer["next_steps"])


def test_deploying_what_runs_scales_it_and_starts_nothing(era: str) -> None:
    keeper = FakeKeeper(rollout=FakeRollout(job_id="job-1"))
    structured(call(era, keeper, "deploy", {"candidate": CANDIDATE, "replicas": 3}))
    assert keeper.rollout.asked == [3]
    assert keeper.started == []


def test_deploying_what_does_not_run_starts_it(era: str) -> None:
    keeper = FakeKeeper()
    structured(call(era, keeper, "deploy", {"candidate": CANDIDATE}))
    assert keeper.started == [("deploy", CANDIDATE)]


def test_a_check_that_ends_in_time_returns_its_verdict(era: str) -> None:
    answer = structured(call(era, FakeKeeper(), "check_numerics", {"candidate": CANDIDATE}))
    assert (answer["ok"], answer["verdict"], answer["code"]) == (True, "pass", "accepted")
    assert answer["entry"] == "f" * 64
    assert answer["gates"][0]["gate"] == "numerics"


def test_a_check_that_does_not_end_returns_a_job_to_poll(era: str) -> None:
    keeper = FakeKeeper(ends_with=job_report(status=JobStatus.RUNNING))
    answer = structured(call(era, keeper, "check_numerics", {"candidate": CANDIDATE}))
    assert answer["verdict"] is None
    assert answer["ok"] is False
    assert answer["job"] == {
        "job_id": "job-1",
        "tool": "check_numerics",
        "state": "running",
        "poll_after_s": 5.0,
        "progress": "3 of 12: timing",
    }
    assert "job-1" in answer["next_steps"][0]


def test_a_failed_check_says_why_and_what_to_do(era: str) -> None:
    failed = verdict(Outcome.FAIL, Reason.PRECISION_LOST, "2.7x the yardstick")
    keeper = FakeKeeper(ends_with=job_report(verdicts=(failed,)))
    answer = structured(call(era, keeper, "check_numerics", {"candidate": CANDIDATE}))
    assert (answer["ok"], answer["verdict"], answer["code"]) == (False, "fail", "precision_lost")
    assert "2.7x the yardstick" in answer["summary"]
    assert answer["next_steps"] == ["do the next thing"]


def test_a_lost_job_blames_the_bench(era: str) -> None:
    keeper = FakeKeeper(ends_with=job_report(status=JobStatus.LOST, failure="rebooted"))
    answer = structured(call(era, keeper, "check_numerics", {"candidate": CANDIDATE}))
    assert (answer["ok"], answer["code"], answer["verdict"]) == (False, "infrastructure", None)
    assert "not blamed" in answer["summary"]


def test_promotion_without_approval_names_the_command_a_person_runs(era: str) -> None:
    answer = structured(call(era, FakeKeeper(), "promote", {"candidate": CANDIDATE}))
    assert (answer["ok"], answer["verdict"]) == (False, "approval_required")
    assert answer["approval_id"] == "ap-1"
    assert "inferproof approve ap-1" in answer["next_steps"][0]


def test_progress_reaches_the_client_and_only_grows(era: str) -> None:
    seen: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

    async def main() -> None:
        async with Client(build_server(Path("/nowhere"), FakeKeeper), mode=era) as client:
            await client.call_tool(
                "check_numerics", {"candidate": CANDIDATE}, progress_callback=note
            )

    asyncio.run(main())
    assert seen == [(1, 12), (3, 12)]


@pytest.mark.parametrize("name", ["check_numerics", "profile", "compile_kernel", "run"])
def test_cancelling_a_call_cancels_the_job_it_started(era: str, name: str) -> None:
    keeper = FakeKeeper(never_ends=True)
    arguments = {k: v for k, v in ARGUMENTS[name].items() if k != "request_key"}
    asyncio.run(_cancel(era, keeper, name, arguments))
    assert keeper.cancelled == ["job-1"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("job", {"job_id": "job-1"}),
        ("compile_kernel", {"candidate": CANDIDATE, "request_key": "k"}),
    ],
)
def test_cancelling_a_call_spares_a_job_that_it_only_found(
    era: str, name: str, arguments: dict[str, Any]
) -> None:
    keeper = FakeKeeper(never_ends=True, known=(job_report(status=JobStatus.RUNNING),))
    asyncio.run(_cancel(era, keeper, name, arguments))
    assert keeper.cancelled == []


async def _cancel(era: str, keeper: FakeKeeper, name: str, arguments: dict[str, Any]) -> None:
    async with Client(build_server(Path("/nowhere"), lambda: keeper), mode=era) as client:
        task = asyncio.create_task(client.call_tool(name, arguments))
        await keeper.following.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.call_tool("campaign_status", {})


def test_an_error_is_one_json_object_with_code_hint_and_retryable(era: str) -> None:
    keeper = FakeKeeper(error=SealBroken("contract.yaml changed", hint="restore it"))
    assert failure(call(era, keeper, "campaign_status", {})) == {
        "ok": False,
        "what": "contract.yaml changed",
        "hint": "restore it",
        "error_code": "seal_broken",
        "retryable": False,
    }


def test_an_infrastructure_error_may_be_retried(era: str) -> None:
    keeper = FakeKeeper(error=InfrastructureError("disk is full"))
    told = failure(call(era, keeper, "campaign_status", {}))
    assert (told["error_code"], told["retryable"]) == ("infrastructure", True)


def test_a_defect_shows_no_trace_and_no_text_of_the_exception(era: str) -> None:
    keeper = FakeKeeper(error=RuntimeError("secret /home/me/key"))
    told = failure(call(era, keeper, "campaign_status", {}))
    assert "RuntimeError" in told["what"]
    assert "secret" not in json.dumps(told)
    assert "Traceback" not in json.dumps(told)


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("check_numerics", {"candidate": "short"}, "candidate"),
        ("check_numerics", {"candidate": CANDIDATE, "wait_s": 51}, "wait_s"),
        ("check_numerics", {"candidate": CANDIDATE, "tolerance": 10}, "tolerance"),
        ("check_numerics", {"candidate": CANDIDATE, "sed": 1}, "sed"),
        ("check_numerics", {"candidate": CANDIDATE, "purpose": "final"}, "purpose"),
        ("job", {"job_id": "../../etc"}, "job_id"),
        ("run", {"argv": []}, "argv"),
        ("no_such_tool", {}, "no_such_tool"),
    ],
)
def test_wrong_arguments_are_named(
    era: str, name: str, arguments: dict[str, Any], named: str
) -> None:
    keeper = FakeKeeper()
    told = failure(call(era, keeper, name, arguments))
    assert told["error_code"] == "usage"
    assert named in told["what"]
    assert told["hint"]
    assert keeper.started == []


def test_a_misspelt_argument_gets_the_nearest_name(era: str) -> None:
    told = failure(call(era, FakeKeeper(), "job", {"jobid": "job-1"}))
    assert told["hint"] == "did you mean job_id?"


def test_every_result_is_within_8_kb_on_large_evidence(era: str) -> None:
    wide = evidence(build=build_facts(1000, "é" * 4000))
    loud = evidence("run", run=_loud_run())
    many = tuple(job_report(f"job-{n:060d}") for n in range(500))
    reasons = tuple(verdict(Outcome.FAIL, Reason.WRONG_VALUES, "r" * 5000) for _ in range(60))
    report = job_report(verdicts=reasons, evidence=EVIDENCE)
    for stored in (wide, loud):
        keeper = FakeKeeper(ends_with=report, stored=stored, known=many)
        for name, arguments in (*ARGUMENTS.items(), ("job", {}), ("evidence", {"ref": EVIDENCE})):
            answer = structured(call(era, keeper, name, arguments))
            assert len(json.dumps(answer, ensure_ascii=False).encode()) <= 8192, name
            assert answer["summary"]


def test_evidence_pages_reach_every_row_once(era: str) -> None:
    keeper = FakeKeeper(stored=evidence(build=build_facts(300, "m" * 200)))
    rows: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = structured(
            call(
                era,
                keeper,
                "evidence",
                {"ref": "job-1", "section": "diagnostics", "offset": offset},
            )
        )
        rows += page["rows"]
        offset = page["next_offset"]
    assert len(rows) == 300
    assert [row.split(":")[1] for row in rows] == [str(n) for n in range(300)]


def test_control_codes_of_the_candidate_are_stripped(era: str) -> None:
    keeper = FakeKeeper(
        ends_with=job_report(evidence=EVIDENCE), stored=evidence("run", run=_loud_run())
    )
    answer = structured(call(era, keeper, "run", {"argv": ["nproc"]}))
    assert "\x1b" not in "".join(answer["rows"])


def _loud_run() -> RunFacts:
    return RunFacts(
        argv=("yes",),
        rc=0,
        seconds=1.0,
        output_tail="\x1b[31mred\x1b[0m line\n" * 3000,
        output_bytes=10**9,
    )


def test_annotations_are_complete_and_run_unattended_in_codex(era: str) -> None:
    async def main() -> None:
        async with Client(build_server(Path("/nowhere"), FakeKeeper), mode=era) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == [tool.name for tool in TOOLS]
            for tool in tools:
                hints = tool.annotations
                assert hints is not None
                four = (
                    hints.read_only_hint,
                    hints.destructive_hint,
                    hints.idempotent_hint,
                    hints.open_world_hint,
                )
                assert None not in four, tool.name
                assert four[0] or (four[1] is False and four[3] is False), tool.name
                assert tool.description
                assert len(tool.description) <= 2000
                assert all(
                    "description" in argument
                    for argument in tool.input_schema["properties"].values()
                ), tool.name

    asyncio.run(main())


def test_there_are_at_most_14_tools_with_unique_names() -> None:
    names = [tool.name for tool in TOOLS]
    assert len(set(names)) == len(names) <= 14


def test_instructions_fit_500_characters() -> None:
    assert 0 < len(INSTRUCTIONS) <= 500


def test_arguments_are_flat(era: str) -> None:
    async def main() -> None:
        async with Client(build_server(Path("/nowhere"), FakeKeeper), mode=era) as client:
            for tool in (await client.list_tools()).tools:
                assert "$defs" not in tool.input_schema, tool.name
                assert "call" not in tool.input_schema["properties"], tool.name

    asyncio.run(main())
