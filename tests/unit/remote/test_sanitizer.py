"""compute-sanitizer's log, in the forms of its manual: what counts, and what is no answer."""

from pathlib import Path

import pytest

from inferproof_remote.gpu_sanitize import incidents
from inferproof_remote.sanitizer import TOOLS, read_log, watching

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at unaligned_kernel()+0x50
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x87654320 is out of bounds
=========
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sumKernel(int *, int *)+0x90
=========     and Read access at sumKernel(int *, int *)+0x100 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
WARNS = """\
========= COMPUTE-SANITIZER
========= WARNING: Race reported between Write access at RAW()+0xf0 in raceGroupBasic.cu:40
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
UNSUPPORTED = """\
========= COMPUTE-SANITIZER
========= Error: Device not supported. Please refer to the "Supported Devices" section
========= ERROR SUMMARY: 0 errors
"""
LOST = """\
========= COMPUTE-SANITIZER
========= Internal Sanitizer Error: The Sanitizer encountered an error while launching run
========= ERROR SUMMARY: 0 errors
"""


@pytest.mark.parametrize(
    ("tool", "text", "errors", "first"),
    [
        ("memcheck", MEMCHECK, 2, "Invalid __global__ write of size 4 bytes"),
        ("racecheck", RACECHECK, 1, "Error: Race reported between Write access at sumKernel"),
        ("racecheck", WARNS, 0, ""),
        ("initcheck", CLEAN, 0, ""),
    ],
)
def test_a_log_that_ends_counts(tool: str, text: str, errors: int, first: str) -> None:
    found = read_log(tool, text, "")
    assert (found.errors, found.why) == (errors, "")
    assert found.first.startswith(first)
    assert len(incidents([found])) == bool(errors)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "killed by SIGSEGV"),
        ("========= COMPUTE-SANITIZER\n", "killed by SIGSEGV"),
        (UNSUPPORTED, "Error: Device not supported"),
        (LOST, "Internal Sanitizer Error"),
    ],
)
def test_a_log_without_an_end_is_not_measured_and_never_clean(text: str, why: str) -> None:
    found = read_log("memcheck", text, "some output\nkilled by SIGSEGV")
    assert found.errors is None
    assert found.why.startswith(why)
    assert incidents([found]) == []


def test_what_device_code_prints_is_not_in_the_log() -> None:
    printed = "========= ERROR SUMMARY: 0 errors"
    assert read_log("memcheck", MEMCHECK, printed).errors == 2
    assert read_log("memcheck", "", printed).errors is None


def test_each_tool_writes_a_log_of_its_own() -> None:
    argv = watching(Path("/opt/compute-sanitizer"), "racecheck", Path("/tmp/log"), ["python3"])
    assert argv[argv.index("--tool") + 1] == "racecheck"
    assert argv[argv.index("--log-file") + 1 :] == ["/tmp/log", "python3"]
    assert set(TOOLS) == {"memcheck", "racecheck", "initcheck", "synccheck"}
