"""A Docker daemon of the tests' own, and a base image made of this machine's Debian Python."""

import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from socket import AF_UNIX, socket

import docker
import pytest

BASE_IMAGE = "inferproof-test/python"
_PACKAGES = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libc-bin"),
    *("zlib1g", "libexpat1", "libssl3", "libbz2-1.0", "liblzma5", "libffi8", "libuuid1"),
    *("libgcc-s1", "libsqlite3-0", "libnsl2", "libtirpc3", "base-files", "dash", "media-types"),
)
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_START_S = 60.0


@contextmanager
def running_daemon() -> Generator[str]:
    """Yield the address of a daemon that ends with the block; skip where it cannot run."""
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("dockerd is not installed or we are not root: apt-get install docker.io")
    folder = Path(tempfile.mkdtemp(prefix="ip-docker-"))
    url = f"unix://{folder}/docker.sock"
    argv = ["dockerd", "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")]
    argv += ["--host", url, "--pidfile", str(folder / "pid"), "--iptables=false", "--bridge=none"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _await(folder, url, process)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=60)
        _unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)


def import_base(url: str) -> None:
    """Make the base image: Python and its libraries, nothing else."""
    client = docker.DockerClient(base_url=url, timeout=120)
    try:
        client.api.import_image_from_data(  # pyright: ignore[reportUnknownMemberType]
            _root_files(), repository=BASE_IMAGE, tag="latest"
        )
    finally:
        client.close()


def _await(folder: Path, url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while not _answers(url):
        text = (folder / "log").read_text(errors="replace")[-1500:]
        assert process.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


def _answers(url: str) -> bool:
    with socket(AF_UNIX) as channel:
        try:
            channel.connect(url.removeprefix("unix://"))
        except OSError:
            return False
        channel.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        return b"200 OK" in channel.recv(1000)


def _root_files() -> bytes:
    listed = subprocess.run(
        ["dpkg", "-L", *_PACKAGES], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, target in _LINKS.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name in ("usr", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "tmp", "proc", "sys"):
            place = tarfile.TarInfo(name)
            place.type, place.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(place)
        for path in sorted(set(listed)):
            is_ours = Path(path).is_file() or Path(path).is_symlink()
            if is_ours and path.lstrip("/") not in _LINKS and "/doc/" not in path:
                archive.add(path, arcname=_merged(path.lstrip("/")), recursive=False)
        python = tarfile.TarInfo("usr/bin/python3")
        python.type, python.linkname = tarfile.SYMTYPE, "python3.11"
        archive.addfile(python)
    return buffer.getvalue()


def _merged(name: str) -> str:
    """Return a path as it is where /lib and the like are links into /usr."""
    top, slash, rest = name.partition("/")
    return f"{_LINKS[top]}{slash}{rest}" if top in _LINKS else name


def _unmount(folder: Path) -> None:
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    for place in sorted((line.split()[4] for line in lines), reverse=True):
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", place], check=False, capture_output=True)
