"""Priority reaches every session of a measurement, where the system lets it."""

import os
import subprocess
from pathlib import Path

import pytest

from inferproof_remote.fairness import prefer_sessions


def test_a_session_of_its_own_goes_before_ordinary_ones():
    if os.getuid() != 0 or not Path("/proc/self/autogroup").exists():
        pytest.skip("needs root and a kernel that shares the processor out by session")
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, start_new_session=True) as other:
        prefer_sessions([other.pid])
        said = Path(f"/proc/{other.pid}/autogroup").read_text(encoding="ascii")
        other.communicate()
    assert said.split()[-1] == "-15"


def test_a_process_that_is_gone_is_passed_over():
    with subprocess.Popen(["/bin/true"]) as gone:
        gone.wait()
    prefer_sessions([gone.pid])
