import sys
from pathlib import Path

import pytest

from inferproof_remote.diagnostics import Diagnostic
from inferproof_remote.incidents import Incident
from inferproof_remote.sandbox import Completed
from inferproof_remote.workshop import RecipeError, explained, homes, parse_recipe

ERROR = Diagnostic(file="a.cpp", line=1, severity="error", message="no")
LATE = Incident("timed_out", None, "too long")


def completed(rc: int | None, output: bytes, *incidents: Incident) -> Completed:
    return Completed(rc=rc, output=output, output_bytes=len(output), seconds=1, incidents=incidents)


def test_a_failure_without_an_error_quotes_the_last_line():
    found = explained(completed(4, b"first\nlast words\n"), (), "g++")
    assert [each.message for each in found] == ["g++ ended with exit code 4: last words"]


def test_errors_that_were_found_are_enough():
    assert explained(completed(1, b"..."), (ERROR,), "g++") == (ERROR,)
    assert explained(completed(0, b""), (), "g++") == ()


def test_an_incident_comes_first():
    found = explained(completed(None, b"", LATE), (ERROR,), "g++")
    assert [each.message for each in found] == ["g++: too long", "no"]


def test_a_compiler_outside_the_system_brings_its_folder(tmp_path: Path):
    real, linked = tmp_path / "cuda-1" / "bin" / "nvcc", tmp_path / "link" / "bin" / "nvcc"
    for path in (real, linked):
        path.parent.mkdir(parents=True)
    real.touch()
    linked.symlink_to(real)
    assert homes(linked) == (tmp_path / "cuda-1", tmp_path / "link")
    assert homes(Path("/usr/bin/g++")) == ()
    assert homes(Path(sys.executable)) == ()


@pytest.mark.parametrize(
    "change",
    [{"language": "fortran"}, {"entry": "a b"}, {"entry": None}, {"prepare": 3}, {"source": None}],
    ids=str,
)
def test_an_odd_manifest_is_refused(tmp_path: Path, change: dict[str, object]):
    (tmp_path / "k.cpp").touch()
    good: dict[str, object] = {"language": "cpp", "source": "k.cpp", "entry": "f"}
    assert parse_recipe(good, tmp_path).entry == "f"
    with pytest.raises(RecipeError):
        parse_recipe({**good, **change}, tmp_path)
