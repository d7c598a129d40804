"""The sandbox against code that tries to leave it, and against commands that do not end well."""

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from inferproof_remote import cgroups
from inferproof_remote.benches import describe
from inferproof_remote.mounts import SandboxPlan
from inferproof_remote.sandbox import Completed, Sandbox

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
MARK = f"sandbox-{os.getpid()}"
PLAN = SandboxPlan(memory_mib=128, tmp_mib=16, processes=24)


@pytest.fixture(autouse=True)
def leaves_no_group_behind() -> Iterator[None]:
    yield
    folders = cgroups.find().folders()
    assert not [path for folder in folders for path in folder.glob(f"*{MARK}*")]


def run(plan: SandboxPlan, *argv: str, timeout_s: float = 5.0) -> Completed:
    with Sandbox(plan, name=MARK) as sandbox:
        return sandbox.run(argv, timeout_s=timeout_s)


def shell(script: str, plan: SandboxPlan = PLAN, *, timeout_s: float = 5.0) -> Completed:
    return run(plan, "/bin/sh", "-c", script, timeout_s=timeout_s)


@pytest.mark.skipif(describe().separation == "shared-account", reason="no namespaces here")
def test_every_way_out_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_SECRET", "42")
    secret = tmp_path / "expected.bin"
    secret.write_text("expected")
    shown = tmp_path / "shown"
    shown.mkdir()
    masked = shown / "masked"
    masked.write_text("hidden")
    abstract = f"\0{MARK}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(abstract)
        local.listen()
        targets = {
            "secrets": [
                str(secret),
                str(masked),
                str(Path(__file__).parents[2] / "pyproject.toml"),
                __file__,
            ],
            "read_only": ["/", "/usr", "/etc", "/dev", "/sys", sys.prefix, str(shown)],
            "campaign": str(tmp_path),
            "port": server.getsockname()[1],
            "abstract": abstract,
        }
        plan = replace(
            PLAN,
            read_only=(shown,),
            masked=(masked,),
            placed={PurePosixPath("/probe.py"): HERE / "kernels" / "probe.py"},
        )
        done = run(plan, sys.executable, "-I", "/probe.py", json.dumps(targets))
    said = json.loads(done.output)
    allowed = {"list the campaign's folder"}  # holds nothing but the folder that is shown
    assert set(said["worked"]) <= allowed
    assert "GRADER_SECRET" not in said["environment"]


TRIES = """
import ctypes, json, os, resource
libc = ctypes.CDLL(None, use_errno=True)
def refused(number, *arguments):
    return libc.syscall(number, *arguments) < 0 and ctypes.get_errno() == 1
print(json.dumps({
    "timerfd": refused(NUMBERS[0], 1, 0),
    "timer": refused(NUMBERS[1], 1, None, ctypes.byref(ctypes.c_int())),
    "affinity": refused(NUMBERS[2], 0, 8, (ctypes.c_uint64 * 1)(1)),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= 256,
}))
"""
NUMBERS = {"x86_64": (283, 222, 203), "aarch64": (85, 107, 122)}


@pytest.mark.skipif(describe().separation == "shared-account", reason="no filter here")
@pytest.mark.parametrize("bound", [True, False])
def test_only_what_is_timed_has_no_timers_few_files_and_no_choice_of_processors(
    bound: bool,
) -> None:
    script = TRIES.replace("NUMBERS", repr(NUMBERS[platform.machine()]))
    told = run(replace(PLAN, bound=bound), sys.executable, "-I", "-c", script)
    found = json.loads(told.output)
    assert {found[name] for name in ("timerfd", "timer", "affinity")} == {bound}
    assert found["files"] or not bound


def test_other_files_of_a_shown_folder_s_parent_stay_hidden(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    done = shell(f"ls {tmp_path}", replace(PLAN, read_only=(tmp_path / "a",)))
    assert done.output.split() == [b"a"]


def test_writable_folder_gets_files_and_comes_back_to_us(tmp_path: Path) -> None:
    done = shell(f"echo made > {tmp_path}/new", replace(PLAN, writable=(tmp_path,)))
    assert (done.rc, done.incidents) == (0, ())
    assert (tmp_path / "new").read_text() == "made\n"
    assert (tmp_path / "new").stat().st_uid == os.getuid()


def test_output_is_kept_as_a_tail() -> None:
    with Sandbox(PLAN, name=MARK) as sandbox:
        done = sandbox.run(
            ["/bin/sh", "-c", "yes | head -c 1000000; echo end"],
            timeout_s=5,
            output_limit_bytes=100,
        )
    assert (done.rc, done.output_bytes, len(done.output)) == (0, 1_000_004, 100)
    assert done.output.endswith(b"end\n")


def test_exit_code_of_the_command_is_returned() -> None:
    assert shell("exit 7").rc == 7


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("sleep 60", "timed_out"),
        ("exec >/dev/null 2>&1; sleep 60", "timed_out"),
        ("while true; do :; done", "timed_out"),
        ("head -c 300000000 /dev/zero > /dev/shm/big; sleep 60", "disk_exceeded"),
        ("head -c 15000000 /dev/zero > /tmp/a; cat /tmp/a > /tmp/b; sleep 60", "disk_exceeded"),
        ("f() { f | f & }; f; sleep 60", "process_limit"),
    ],
)
def test_overuse_has_its_name(script: str, code: str) -> None:
    done = shell(script, timeout_s=1.5)
    assert [incident.code for incident in done.incidents] == [code]
    assert done.rc is None
    assert done.seconds < 8


def test_too_much_memory_has_its_name() -> None:
    done = run(PLAN, sys.executable, "-I", "-c", "b'1' * (1 << 29)", timeout_s=8)
    assert [incident.code for incident in done.incidents] == ["memory_exceeded"]


def test_filled_writable_folder_is_disk_exceeded(tmp_path: Path) -> None:
    script = f"for i in 1 2 3 4; do head -c 9000000 /dev/zero > {tmp_path}/$i; done; sleep 60"
    done = shell(script, replace(PLAN, writable=(tmp_path,)), timeout_s=3)
    assert [incident.code for incident in done.incidents] == ["disk_exceeded"]


def test_daemon_dies_with_the_command() -> None:
    done = shell("setsid sleep 4711 </dev/null >/dev/null 2>&1 & exit 0")
    assert done.rc == 0
    names = [path / "cmdline" for path in Path("/proc").iterdir() if path.name.isdecimal()]
    assert not [name for name in names if name.exists() and b"4711" in name.read_bytes()]


USER_SCRIPT = """
import json, random, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from inferproof_remote.benches import describe
from inferproof_remote.arena import CallLayout, TensorSpec
from inferproof_remote.mounts import SandboxPlan
from inferproof_remote.session import Session
from inferproof_remote.targets import CppTarget
plan = SandboxPlan(memory_mib=256, tmp_mib=16, processes=40)
x, y = TensorSpec("x", "f32", (4096,)), TensorSpec("y", "f32", (4096,))
layout = CallLayout(dims={"n": 4096}, inputs=(x,), outputs=(y,), params={"k": ("f32", 3.0)})
def fill(views):
    for view in views.values():
        view[:] = bytes(len(view))
answers = {}
for name in sys.argv[3:]:
    target = CppTarget(library=Path(sys.argv[2]) / (name + ".so"), entry="scale")
    with Session(target, plan=plan, name="user-" + name, arena_bytes=1 << 20, threads=1,
                 call_s=0.5, rng=random.Random(1)) as session:
        codes = []
        for _ in range(3):
            result = session.bind_and_call(layout, fill=fill, decoy=fill)
            codes += [incident.code for incident in result.incidents]
    answers[name] = codes
print(json.dumps({"separation": describe().separation, "answers": answers}))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become an ordinary user")
def test_ordinary_user_gets_a_container_with_the_same_names(tmp_path: Path) -> None:
    names = ["honest", "late_finish", "segfault", "hang", "fork_bomb", "eats_memory"]
    names += ["fills_tmp", "fills_pipe"]
    kernels = Path("/tmp") / MARK
    remote = kernels / "remote"
    shutil.copytree(REPOSITORY / "remote" / "inferproof_remote", remote / "inferproof_remote")
    try:
        for name in names:
            source = str(HERE / "kernels" / f"{name}.cpp")
            output = str(kernels / f"{name}.so")
            flags = ["-O1", "-std=c++17", "-fPIC", "-shared", "-pthread"]
            subprocess.run(["g++", *flags, source, "-o", output], check=True)
        user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        done = subprocess.run(
            [*user, "/usr/bin/python3", "-c", USER_SCRIPT, str(remote), str(kernels), *names],
            capture_output=True,
            check=False,
            timeout=60,
            cwd="/",
        )
    finally:
        shutil.rmtree(kernels)
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    assert said["separation"] == "container"
    answers = {name: set(codes) for name, codes in said["answers"].items()}
    assert answers["honest"] == set()
    assert answers["late_finish"] == {"late_finish"}
    assert answers["segfault"] == {"crashed"}
    assert answers["hang"] == {"timed_out"}
    assert answers["fork_bomb"] == {"process_limit"}
    assert answers["eats_memory"] & {"memory_exceeded", "timed_out", "crashed"}
    assert answers["fills_pipe"] == {"protocol_forged"}
    assert answers["fills_tmp"] == {"disk_exceeded"}


def test_two_sandboxes_do_not_see_each_other() -> None:
    barrier = threading.Barrier(2)
    seen: dict[int, bytes] = {}

    def look(number: int) -> None:
        with Sandbox(PLAN, name=f"{MARK}-{number}") as sandbox:
            barrier.wait(timeout=5)
            script = f"touch /tmp/of-{number}; sleep 0.3; ls /tmp; ls /proc | grep -c '^[0-9]'"
            seen[number] = sandbox.run(["/bin/sh", "-c", script], timeout_s=5).output

    both = [threading.Thread(target=look, args=(number,)) for number in (1, 2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert set(seen) == {1, 2}
    for number, output in seen.items():
        *files, count = output.split()
        ours = [name for name in files if name.startswith(b"of-")]
        assert ours == [f"of-{number}".encode()], output
        assert int(count) <= 6
