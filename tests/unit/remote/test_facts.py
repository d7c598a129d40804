import os
import sys
from pathlib import Path

from inferproof_remote import facts


def test_facts_name_the_processor_and_the_running_versions(tmp_path: Path):
    found = facts.facts(tmp_path)
    assert found["cpu_model"]
    assert found["cores"] == len(os.sched_getaffinity(0))
    versions = found["versions"]
    assert isinstance(versions, dict)
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert versions["kernel"] == os.uname().release


def test_versions_are_found_without_importing_torch():
    before = "torch" in sys.modules
    assert facts.versions()["numpy"]
    assert ("torch" in sys.modules) == before


def test_an_absent_command_has_no_version():
    assert facts.version_line("no-such-command-here") == ""
