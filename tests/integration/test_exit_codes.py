"""The real commands end with the code that the README promises."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from inferproof.ledger.signing import ApproverKey
from inferproof.pipeline import Keeper
from small_campaign import (
    CONTRACT_FILE,
    RIGHT,
    WRONG,
    cpp_candidate,
    edit,
    python_candidate,
    small_campaign,
)

INFERPROOF = str(Path(sys.executable).with_name("inferproof"))
PASS, ALTERED, USAGE, FAIL, UNDECIDED, INFRASTRUCTURE = range(6)
NO_BENCH = "local: {host: local, sandbox: auto, deployer: process, python: /nowhere, threads: 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended, and what it printed."""

    rc: int
    out: str
    err: str


def run(*words: str, campaign: Path) -> Ended:
    argv = [INFERPROOF, *words, "--campaign", str(campaign), "--json"]
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    return Ended(rc=done.returncode, out=done.stdout, err=done.stderr)


def call(tool: str, arguments: Mapping[str, object], *, campaign: Path) -> Ended:
    return run("call", tool, json.dumps(arguments), campaign=campaign)


def sealed(folder: Path) -> Path:
    Keeper.open(folder).seal(ApproverKey.create_demo(folder.with_suffix(".pem")), "demo")
    return folder


def submitted(campaign: Path, folder: Path) -> str:
    return str(json.loads(run("submit", str(folder), campaign=campaign).out)["candidate"])


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    return sealed(small_campaign(tmp_path / "campaign"))


def test_a_pass_ends_in_0_and_the_record_is_good(campaign: Path, tmp_path: Path):
    candidate = submitted(campaign, cpp_candidate(tmp_path / "kernel"))
    ended = call("compile_kernel", {"candidate": candidate}, campaign=campaign)
    assert (ended.rc, json.loads(ended.out)["verdict"]) == (PASS, "pass"), ended
    assert run("verify", campaign=campaign).rc == PASS


def test_a_fail_ends_in_3(campaign: Path, tmp_path: Path):
    candidate = submitted(campaign, python_candidate(tmp_path / "kernel", WRONG))
    ended = call("check_numerics", {"candidate": candidate}, campaign=campaign)
    told = json.loads(ended.out)
    assert (ended.rc, told["verdict"]) == (FAIL, "fail"), ended
    assert told["code"] in ("precision_lost", "wrong_values")


def test_an_inconclusive_verdict_ends_in_4(tmp_path: Path):
    folder = small_campaign(tmp_path / "campaign")
    loose = {
        "rms_over_yardstick: 2.0": "rms_over_yardstick: 50.0",
        "p999_over_yardstick: 4.0": "p999_over_yardstick: 50.0",
        ", cut_share: 0.5, mean_over_yardstick: 1.7": "",
        "[zeros, half]": "[one_bit_less]",
    }
    edit(folder / CONTRACT_FILE, loose)
    candidate = submitted(sealed(folder), python_candidate(tmp_path / "kernel", RIGHT))
    ended = call("check_numerics", {"candidate": candidate}, campaign=folder)
    assert (ended.rc, json.loads(ended.out)["code"]) == (UNDECIDED, "not_armed"), ended


def test_a_bench_that_fails_ends_in_5(tmp_path: Path):
    folder = small_campaign(tmp_path / "campaign")
    (folder / "targets.yaml").write_text(NO_BENCH + "\n")
    ended = call("run", {"argv": ["true"]}, campaign=sealed(folder))
    assert (ended.rc, json.loads(ended.out)["code"]) == (INFRASTRUCTURE, "infrastructure"), ended


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("guess", "{}", "guess"),
        ("job", '{"job_id": "none"}', "no job 'none'"),
        ("check_numerics", "{}", "candidate"),
        ("check_numerics", "not json", "not JSON"),
    ],
)
def test_a_call_that_cannot_be_ends_in_2(tool: str, arguments: str, why: str, campaign: Path):
    ended = run("call", tool, arguments, campaign=campaign)
    assert (ended.rc, ended.out) == (USAGE, "")
    assert why in json.loads(ended.err)["what"]


def test_a_changed_sealed_file_ends_a_call_in_2_and_verify_in_1(campaign: Path):
    edit(campaign / CONTRACT_FILE, {"rms_over_yardstick: 2.0": "rms_over_yardstick: 9.0"})
    ended = call("run", {"argv": ["true"]}, campaign=campaign)
    told = json.loads(ended.err)
    assert (ended.rc, ended.out, told["error_code"]) == (USAGE, "", "seal_broken")
    assert f"{CONTRACT_FILE} (changed)" in told["what"]
    assert "inferproof seal" in told["hint"]
    assert run("verify", campaign=campaign).rc == ALTERED


def test_an_altered_record_ends_verify_in_1(campaign: Path):
    ledger = campaign / ".inferproof/ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"mode":"demo"', '"mode":"memo"'))
    assert run("verify", campaign=campaign).rc == ALTERED


def test_a_head_that_the_record_lacks_ends_verify_in_1_and_no_head_at_all_in_2(campaign: Path):
    assert run("verify", "--head", "ab" * 32, campaign=campaign).rc == ALTERED
    assert run("verify", "--head", "abc", campaign=campaign).rc == USAGE
    assert run("verify", campaign=campaign.parent).rc == USAGE
