"""How a candidate's files reach the sandbox."""

import stat
from pathlib import Path, PurePosixPath

import pytest

from inferproof_remote.incidents import BenchError
from inferproof_remote.targets import CppTarget, NullTarget, PythonTarget, runner_spec, stage


def test_python_folder_is_copied_readable_and_without_links(tmp_path: Path) -> None:
    source, staged, secret = tmp_path / "source", tmp_path / "staged", tmp_path / "secret"
    (source / "sub").mkdir(parents=True)
    staged.mkdir()
    secret.mkdir()
    (secret / "reference.py").write_text("expected")
    (source / "kernel.py").write_text("a")
    (source / "sub" / "part.py").write_text("b")
    (source / "kernel.py").chmod(0o600)
    (source / "link.py").symlink_to(secret / "reference.py")
    (source / "linked").symlink_to(secret)
    stage(PythonTarget(folder=source, source="kernel.py", entry="f"), staged)
    names = {str(path.relative_to(staged)) for path in staged.rglob("*")}
    assert names == {"kernel.py", "sub", "sub/part.py"}
    assert stat.S_IMODE((staged / "kernel.py").stat().st_mode) == 0o644
    assert stat.S_IMODE((staged / "sub").stat().st_mode) == 0o755


def test_library_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("expected")
    link = tmp_path / "kernel.so"
    link.symlink_to(tmp_path / "secret")
    (tmp_path / "staged").mkdir()
    with pytest.raises(BenchError, match=r"kernel\.so is a link"):
        stage(CppTarget(library=link, entry="f"), tmp_path / "staged")


def test_missing_library_is_a_bench_error(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="cannot stage"):
        stage(CppTarget(library=tmp_path / "none.so", entry="f"), tmp_path)


def test_runner_is_told_paths_inside_the_sandbox() -> None:
    inside = PurePosixPath("/candidate")
    cpp = CppTarget(library=Path("/somewhere/else/k.so"), entry="f", prepare="p")
    python = PythonTarget(folder=Path("/somewhere"), source="a/k.py", entry="f")
    assert runner_spec(cpp, inside)["library"] == "/candidate/k.so"
    assert runner_spec(python, inside)["folder"] == "/candidate"
    assert runner_spec(NullTarget(), inside) == {"kind": "null"}
