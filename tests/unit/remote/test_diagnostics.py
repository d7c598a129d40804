import json
from pathlib import Path, PurePosixPath

import pytest

from inferproof_remote import diagnostics

GOLDEN = Path(__file__).parents[2] / "golden" / "build"
SNAPSHOT = PurePosixPath("/snapshot")
CAPTURED = sorted(GOLDEN.glob("*.txt"))


@pytest.mark.parametrize("captured", CAPTURED, ids=lambda path: path.stem)
def test_captured_compiler_output_parses_as_reviewed(captured: Path):
    text = captured.read_text()
    found = diagnostics.parse_diagnostics(text, snapshot=SNAPSHOT)
    resources = diagnostics.parse_resources(text)
    assert {
        "diagnostics": [diagnostics.as_json(value) for value in found],
        "resources": [diagnostics.as_json(value) for value in resources],
    } == json.loads(captured.with_suffix(".json").read_text())


def test_there_are_captures_of_both_compilers():
    assert {path.stem.partition("_")[0] for path in CAPTURED} == {"gcc", "nvcc", "ptxas"}


def test_paths_inside_the_snapshot_become_relative():
    text = "/snapshot/sub/a.cpp:3:1: error: no\n/usr/include/b.h:4:2: error: there\n"
    found = diagnostics.parse_diagnostics(text, snapshot=SNAPSHOT)
    assert [value.file for value in found] == ["sub/a.cpp", "/usr/include/b.h"]


def test_warnings_about_system_headers_are_left_out():
    text = "/usr/include/b.h:4:2: warning: odd\na.cpp:1:2: warning: yours\n"
    found = diagnostics.parse_diagnostics(text, snapshot=SNAPSHOT)
    assert [value.message for value in found] == ["yours"]


def test_errors_come_before_warnings_and_the_list_is_bounded():
    lines = [f"a.cpp:{n}:1: warning: w{n}" for n in range(80)] + ["a.cpp:99:1: error: e"]
    found = diagnostics.parse_diagnostics("\n".join(lines), snapshot=SNAPSHOT)
    assert found[0].message == "e"
    assert len(found) == diagnostics.MOST_DIAGNOSTICS


def test_text_that_is_no_diagnostic_gives_none():
    text = "In file included from err.cpp:2:\ncompilation terminated.\n   1 | int x\n"
    assert diagnostics.parse_diagnostics(text, snapshot=SNAPSHOT) == ()


def test_what_is_not_seen_does_not_reach_the_result():
    text = "a.cpp:1:2: error: #error \u202eetomorp\u2066\u200b \x1b[2J now\n"
    (found,) = diagnostics.parse_diagnostics(text, snapshot=SNAPSHOT)
    message = diagnostics.as_json(found)["message"]
    assert isinstance(message, str)
    assert message.isprintable()
    assert "etomorp" in message
