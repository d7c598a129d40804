"""The console command: exit codes, errors in two lines, jobs followed to their end."""

import asyncio
import json
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from inferproof import asking
from inferproof.cli import COMMANDS, main
from inferproof.tools import TOOLS
from inferproof.tools.spec import Tool
from small_campaign import sealed_keeper


def answer(**changes: Any) -> dict[str, Any]:
    return {"summary": "", "ok": True, "verdict": None, "code": "", "job": None, **changes}


def job(state: str) -> dict[str, str]:
    return {"job_id": "job-1", "state": state}


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (answer(), 0),
        (answer(verdict="pass"), 0),
        (answer(verdict="fail", ok=False), 3),
        (answer(verdict="inconclusive", ok=False), 4),
        (answer(verdict="approval_required", ok=False), 4),
        (answer(ok=False, code="infrastructure", job=job("lost")), 5),
        (answer(ok=False, verdict="inconclusive", code="infrastructure"), 5),
        (answer(ok=False, job=job("cancelled")), 4),
        (answer(ok=False, job=job("done")), 3),
    ],
)
def test_exit_codes_say_what_came_of_it(told: dict[str, Any], code: int) -> None:
    assert asking.exit_code(told) == code


class Script:
    """Answers calls in order and notes them."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)
        self.calls: list[str] = []

    async def ask(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.calls.append(tool)
        return self.answers.pop(0)


def test_call_follows_a_job_to_its_end() -> None:
    script = Script(answer(job=job("queued")), answer(job=job("running")), answer(job=job("done")))
    final = asyncio.run(asking.to_the_end(script.ask, "check_numerics", {}))
    assert script.calls == ["check_numerics", "job", "job"]
    assert final["job"]["state"] == "done"


def test_call_asks_promote_again_when_its_job_has_ended() -> None:
    script = Script(
        answer(job=job("running")),
        answer(job=job("done"), verdict="pass"),
        answer(job=job("done"), verdict="approval_required"),
    )
    final = asyncio.run(asking.to_the_end(script.ask, "promote", {}))
    assert script.calls == ["promote", "job", "promote"]
    assert final["verdict"] == "approval_required"


@pytest.mark.parametrize(
    "command", ["head", "verify", "seal", "note x", "approve x", "install codex"]
)
def test_a_folder_without_campaign_is_a_usage_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--campaign", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "inferproof init" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("text", ["{", "[]", "3", "", "[" * 3000])
def test_arguments_that_are_no_json_object_are_a_usage_error(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["call", "job", text, "--campaign", str(tmp_path)]) == 2
    assert "JSON" in capsys.readouterr().err


def test_json_errors_are_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["head", "--campaign", str(tmp_path), "--json"]) == 2
    told = json.loads(capsys.readouterr().err)
    assert (told["ok"], told["error_code"], told["retryable"]) == (False, "usage", False)


def test_init_writes_a_campaign_and_never_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    arguments = ["init", "--template", "cpu-tiny", "--campaign", str(folder), "--json"]
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert str(folder / "campaign.yaml") in told["files"]
    before = (folder / "campaign.yaml").read_bytes()
    assert main(arguments) == 2
    assert (folder / "campaign.yaml").read_bytes() == before


def test_init_into_a_file_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["init", "--campaign", str(tmp_path / "file")]) == 2
    assert "--campaign" in capsys.readouterr().err


def test_an_inventory_that_is_missing_is_told_with_its_least_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = ["--campaign", str(tmp_path)]
    assert main(["init", "--template", "cpu-tiny", *campaign]) == 0
    (tmp_path / "targets.yaml").unlink()
    assert main(["seal", "--demo-key", *campaign]) == 2
    assert "local: {host: local}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nothing"], [], ["submit"], ["serve", "--port", "1"]])
def test_wrong_usage_ends_in_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_every_command_has_a_function_and_takes_campaign_and_json() -> None:
    names = [command.name for command in COMMANDS]
    assert len(set(names)) == len(names)
    for command in COMMANDS:
        assert callable(command.load())


def test_call_without_a_tool_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["call"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{tool.name} " in listed for tool in TOOLS)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_help_on_a_tool_says_what_each_argument_is(
    tool: Tool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["call", tool.name, "--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"\n  {name}: " in told for name in list(signature(tool.function).parameters)[1:])


def test_help_on_no_tool_names_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["call", "guess", "--help"]) == 2
    assert "check_numerics" in capsys.readouterr().err


def test_a_shipped_contract_is_added_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = ["--campaign", str(tmp_path)]
    assert main(["contracts", "add", "softmax", *campaign]) == 2
    assert main(["init", "--template", "cpu-tiny", *campaign]) == 0
    assert main(["contracts", "list"]) == 0
    assert "softmax\n" in capsys.readouterr().out
    assert main(["contracts", "add", "fused_moe", *campaign]) == 0
    assert "components:" in capsys.readouterr().out
    assert (tmp_path / "contracts/kernels/fused_moe/contract.yaml").is_file()
    assert main(["contracts", "add", "fused_moe", *campaign]) == 2
    assert main(["contracts", "add", "nothing", *campaign]) == 2
    assert "softmax" in capsys.readouterr().err


def test_a_record_without_entries_is_not_called_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keeper, _ = sealed_keeper(tmp_path / "campaign")
    ledger = keeper.state_dir / "ledger.jsonl"
    ledger.write_bytes(b"")
    assert main(["verify", "--campaign", str(keeper.root)]) == 2
    assert "no entries" in capsys.readouterr().err
