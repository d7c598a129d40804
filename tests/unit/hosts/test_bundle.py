import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from inferproof.hosts.bundle import build_zipapp


def test_the_digest_is_that_of_the_bytes_and_is_the_same_everywhere(tmp_path: Path):
    first, second = build_zipapp(tmp_path / "a"), build_zipapp(tmp_path / "b")
    assert first.digest == second.digest == hashlib.sha256(first.path.read_bytes()).hexdigest()
    assert first.path.read_bytes() == second.path.read_bytes()


def test_it_is_written_once(tmp_path: Path):
    first = build_zipapp(tmp_path).path.stat()
    assert build_zipapp(tmp_path).path.stat() == first


def test_an_altered_bundle_is_replaced(tmp_path: Path):
    bundle = build_zipapp(tmp_path)
    honest = bundle.path.read_bytes()
    bundle.path.write_bytes(honest + b"\0")
    assert build_zipapp(tmp_path).path.read_bytes() == honest


def test_it_holds_sources_only(tmp_path: Path):
    names = zipfile.ZipFile(build_zipapp(tmp_path).path).namelist()
    assert "__main__.py" in names
    assert "inferproof_remote/supervise.py" in names
    assert all(name.endswith(".py") for name in names)


def test_it_runs_without_inferproof_installed(tmp_path: Path):
    bundle = build_zipapp(tmp_path)
    argv = [sys.executable, "-I", "-S", str(bundle.path), "nonsense"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: inferproof_remote {supervise,")
