"""A session with real sandboxes: honest kernels are called right, each misdeed has its name."""

import array
import dataclasses
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from inferproof_remote import cgroups
from inferproof_remote.arena import DTYPE_BYTES, CallLayout, TensorSpec, needed_bytes
from inferproof_remote.benches import BenchKind, FreezerName, describe, freezers
from inferproof_remote.incidents import BenchError
from inferproof_remote.mounts import SandboxPlan
from inferproof_remote.session import CallResult, Fill, Session
from inferproof_remote.targets import CppTarget, NullTarget, PythonTarget, Target

pytestmark = pytest.mark.integration

KERNELS = Path(__file__).parent / "kernels"
MARK = f"session-{os.getpid()}"
FACTOR = 3.0
LIMIT_MIB = 96


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CppTarget]:
    folder = tmp_path_factory.mktemp("kernels")

    @cache
    def build(name: str) -> CppTarget:
        output = folder / f"{name}.so"
        source = KERNELS / f"{name}.cpp"
        flags = ["-O1", "-std=c++17", "-fPIC", "-shared", "-pthread"]
        subprocess.run(["g++", *flags, str(source), "-o", str(output)], check=True)
        return CppTarget(library=output, entry="scale")

    return build


@pytest.fixture(params=freezers())
def kind(request: pytest.FixtureRequest) -> BenchKind:
    freezer: FreezerName = request.param
    return dataclasses.replace(describe(), freezer=freezer)


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    yield
    folders = cgroups.find().folders()
    assert not [path for folder in folders for path in folder.glob(f"*{MARK}*")]
    assert not [pid for pid in processes() if marked(pid)]


def processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def marked(pid: int) -> bool:
    try:
        return f"MARK={MARK}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def plan(**changes: int) -> SandboxPlan:
    base = SandboxPlan(memory_mib=1024, tmp_mib=32, processes=40, env={"MARK": MARK})
    return dataclasses.replace(base, **changes)


def layout(size: int, **changes: tuple[str, ...]) -> CallLayout:
    x, y = (TensorSpec(name, "f32", (size,)) for name in ("x", "y"))
    base = CallLayout(dims={"n": size}, inputs=(x,), outputs=(y,), params={"k": ("f32", FACTOR)})
    return dataclasses.replace(base, **changes)


def filled(value: float) -> Fill:
    def fill(views: Mapping[str, memoryview]) -> None:
        for view in views.values():
            view.cast("f")[:] = array.array("f", [value]) * (len(view) // 4)

    return fill


def session(target: Target, *, kind: BenchKind, call_s: float = 5.0, **limits: int) -> Session:
    return Session(
        target,
        plan=plan(**limits),
        name=f"{MARK}-{random.randrange(1 << 30)}",
        arena_bytes=4 * needed_bytes(layout(1 << 16).tensors),
        threads=1,
        call_s=call_s,
        rng=random.Random(7),
        kind=kind,
    )


def calls(running: Session, count: int = 4, size: int = 1 << 14) -> list[CallResult]:
    return [
        running.bind_and_call(
            layout(size + number % 2), fill=filled(number + 1.0), decoy=filled(-number - 1.0)
        )
        for number in range(count)
    ]


def codes(results: list[CallResult]) -> set[str]:
    return {incident.code for result in results for incident in result.incidents}


def is_right(result: CallResult, value: float) -> bool:
    output = array.array("f", bytes(result.outputs["y"]))
    return output == array.array("f", [FACTOR * value]) * len(output)


@pytest.mark.parametrize("name", ["honest", "threads_joined", "chatters", "daemons"])
def test_honest_kernel_is_right_and_without_incident(
    name: str, library: Callable[[str], CppTarget], kind: BenchKind
) -> None:
    with session(library(name), kind=kind) as running:
        results = calls(running, count=8)
    assert codes(results) == set()
    assert all(is_right(result, number + 1.0) for number, result in enumerate(results))
    assert all(result.seconds is not None and result.seconds > 0 for result in results)


def test_python_kernel_is_right_and_cannot_be_shadowed(tmp_path: Path, kind: BenchKind) -> None:
    (tmp_path / "kernel.py").write_text(
        "import torch, helper\ndef scale(x, y, *, k):\n    torch.mul(x, helper.same(k), out=y)\n"
    )
    (tmp_path / "helper.py").write_text("def same(k):\n    return k\n")
    (tmp_path / "torch.py").write_text("raise SystemExit('shadowed')\n")
    target = PythonTarget(folder=tmp_path, source="kernel.py", entry="scale")
    with session(target, kind=kind) as running:
        results = calls(running)
    assert codes(results) == set()
    assert all(is_right(result, number + 1.0) for number, result in enumerate(results))


def test_answer_before_the_work_is_caught(tmp_path: Path, kind: BenchKind) -> None:
    (tmp_path / "kernel.py").write_text(
        "import os, sys, torch\n"
        "def scale(x, y, *, k):\n"
        "    frame = sys._getframe(2)\n"
        "    os.write(frame.f_locals['answer_fd'], frame.f_locals['header'][1:])\n"
        "    deadline = os.times().elapsed + 0.3\n"
        "    while os.times().elapsed < deadline: pass\n"
        "    torch.mul(x, k, out=y)\n"
    )
    target = PythonTarget(folder=tmp_path, source="kernel.py", entry="scale")
    with session(target, kind=kind) as running:
        first, second = calls(running, count=2)
    assert first.seconds is not None
    assert first.seconds < 0.3, "the early answer was believed"
    assert not is_right(first, 1.0)
    assert "late_finish" in codes([first])
    assert "protocol_forged" in codes([second])


def test_prepared_object_follows_its_inputs(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(
        "def prepare(w, *, k):\n    return w * k\n"
        "def scale(x, w, y, *, k, prepared):\n    y.copy_(x * prepared)\n"
    )
    target = PythonTarget(folder=tmp_path, source="kernel.py", entry="scale", prepare="prepare")
    x, w, y = (TensorSpec(name, "f32", (64,)) for name in ("x", "w", "y"))
    form = CallLayout(
        dims={"n": 64},
        inputs=(x, w),
        outputs=(y,),
        params={"k": ("f32", FACTOR)},
        prepare=("w",),
    )

    def fill(views: Mapping[str, memoryview]) -> None:
        for name, value in (("x", 5.0), ("w", 2.0)):
            if name in views:
                filled(value)({name: views[name]})

    with session(target, kind=describe()) as running:
        result = running.bind_and_call(form, fill=fill, decoy=filled(-1.0), prepare=True)
        again = running.bind_and_call(form, fill=fill, decoy=filled(-1.0), prepare=False)
    assert codes([result, again]) == set()
    assert array.array("f", bytes(result.outputs["y"]))[0] == 5.0 * 2.0 * FACTOR
    assert result.outputs["y"] == again.outputs["y"]


def test_every_dtype_reaches_a_python_kernel(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("def copy(x, y):\n    y.copy_(x.reshape(3, 5))\n")
    target = PythonTarget(folder=tmp_path, source="kernel.py", entry="copy")
    with session(target, kind=describe()) as running:
        for dtype, size in DTYPE_BYTES.items():
            content = bytes(range(1, 1 + 15 * size))

            def fill(views: Mapping[str, memoryview], content: bytes = content) -> None:
                views["x"][:] = content

            x, y = TensorSpec("x", dtype, (3, 5)), TensorSpec("y", dtype, (3, 5))
            form = CallLayout(dims={}, inputs=(x,), outputs=(y,))
            result = running.bind_and_call(form, fill=fill)
            assert (result.incidents, bytes(result.outputs["y"])) == ((), content)


def test_prepared_pointer_reaches_a_c_kernel(library: Callable[[str], CppTarget]) -> None:
    target = dataclasses.replace(library("prepared"), prepare="prepare")
    with session(target, kind=describe()) as running:
        results = [
            running.bind_and_call(
                layout(64, prepare=("x",)), fill=filled(value), decoy=filled(-1.0), prepare=True
            )
            for value in (1.0, 2.0, 3.0)
        ]
    assert codes(results) == set()
    assert all(is_right(result, value) for result, value in zip(results, (1, 2, 3), strict=True))


def test_null_target_costs_only_thaw_and_freeze(kind: BenchKind) -> None:
    with session(NullTarget(), kind=kind) as running:
        results = calls(running)
    assert codes(results) == set()
    assert all(set(result.outputs["y"]) == {0xFF} for result in results)


def test_call_is_as_right_after_another_sandbox_went_its_way(
    library: Callable[[str], CppTarget], kind: BenchKind
) -> None:
    with (
        session(NullTarget(), kind=kind) as pilot,
        session(library("honest"), kind=kind) as running,
    ):
        results = [
            running.bind_and_call(
                layout(1 << 14), fill=filled(value), decoy=filled(-value), warm=pilot.wake
            )
            for value in (1.0, 2.0, 3.0)
        ]
    assert codes(results) == set()
    assert all(is_right(result, value) for result, value in zip(results, (1, 2, 3), strict=True))


def test_pilot_that_died_is_not_blamed_on_the_candidate(
    library: Callable[[str], CppTarget], kind: BenchKind
) -> None:
    with session(library("segfault"), kind=kind) as dead, session(NullTarget(), kind=kind) as idle:
        calls(dead, count=1)
        with pytest.raises(BenchError):
            idle.bind_and_call(layout(64), fill=filled(1.0), warm=dead.wake)


def test_half_written_output_is_seen(library: Callable[[str], CppTarget], kind: BenchKind) -> None:
    with session(library("half"), kind=kind) as running:
        result = calls(running, count=1)[0]
    output = array.array("f", bytes(result.outputs["y"]))
    assert output[0] == FACTOR
    assert output[-1] != output[-1], "what was not written must still be poison, which is NaN"
    assert codes([result]) == set()


CORE = [
    ("late_finish", "late_finish"),
    ("corrected_later", "late_finish"),
    ("forged", "protocol_forged"),
    ("overrun", "guard_overwritten"),
    ("mutates", "input_mutated"),
    ("segfault", "crashed"),
    ("kills_all", "crashed"),
    ("exits_zero", "crashed"),
    ("closes_pipes", "crashed"),
    ("fork_bomb", "process_limit"),
    ("eats_memory", "memory_exceeded"),
    ("eats_hidden_memory", "memory_exceeded"),
    ("fills_tmp", "disk_exceeded"),
    ("fills_shm", "disk_exceeded"),
    ("fails_to_load", "import_failed"),
]


@pytest.mark.parametrize(("name", "code"), CORE)
def test_misdeed_has_its_name(
    name: str, code: str, library: Callable[[str], CppTarget], kind: BenchKind
) -> None:
    with session(library(name), kind=kind, memory_mib=LIMIT_MIB) as running:
        results = calls(running)
    assert code in codes(results)


def test_kernel_that_starts_on_the_decoy_is_caught(
    library: Callable[[str], CppTarget], kind: BenchKind
) -> None:
    with session(library("early_start"), kind=kind) as running:
        results = [
            running.bind_and_call(layout(512), fill=filled(-value), decoy=filled(value))
            for value in map(float, range(1, 20))
        ]
    assert codes(results) == {"early_start"}


@pytest.mark.parametrize("name", ["hang", "spin"])
def test_kernel_that_never_answers_ends_in_time(
    name: str, library: Callable[[str], CppTarget], kind: BenchKind
) -> None:
    with session(library(name), kind=kind, call_s=0.3) as running:
        first, second = calls(running, count=2)
    assert codes([first]) == {"timed_out"}
    assert first.seconds is None
    assert second.incidents == first.incidents, "the reason stays the same"


@pytest.fixture
def their_core() -> Iterator[int]:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("needs a core for each side")
    os.sched_setaffinity(0, {min(cores)})
    yield max(cores)
    os.sched_setaffinity(0, cores)


@pytest.mark.parametrize("name", ["hang", "spin", "fork_bomb"])
def test_kernel_that_gives_way_to_nobody_still_ends_in_time(
    name: str, library: Callable[[str], CppTarget], kind: BenchKind, their_core: int
) -> None:
    with session(library(name), kind=kind, call_s=1.0) as running:
        running.run_on({their_core})
        results = calls(running, count=2)
    assert codes(results) <= {"timed_out", "process_limit"}
    assert results[-1].seconds is None


def test_kernel_on_cores_of_its_own_is_right_and_without_incident(
    library: Callable[[str], CppTarget], kind: BenchKind, their_core: int
) -> None:
    with session(library("threads_joined"), kind=kind) as running:
        running.run_on({their_core})
        results = calls(running)
    assert codes(results) == set()
    assert all(is_right(result, number + 1.0) for number, result in enumerate(results))
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_crash_names_the_signal(library: Callable[[str], CppTarget]) -> None:
    with session(library("segfault"), kind=describe()) as running:
        result = calls(running, count=1)[0]
    assert [incident.detail for incident in result.incidents] == ["killed by SIGSEGV"]


def test_python_exception_is_told(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("def scale(x, y, *, k):\n    raise ValueError('no luck')\n")
    target = PythonTarget(folder=tmp_path, source="kernel.py", entry="scale")
    with session(target, kind=describe()) as running:
        result = calls(running, count=1)[0]
    (incident,) = result.incidents
    assert (incident.code, incident.call) == ("crashed", 0)
    assert "ValueError: no luck" in incident.detail


def test_module_that_does_not_import_is_told(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("import nothing_of_that_name\n")
    target = PythonTarget(folder=tmp_path, source="kernel.py", entry="scale")
    with session(target, kind=describe()) as running:
        result = calls(running, count=1)[0]
    (incident,) = result.incidents
    assert incident.code == "import_failed"
    assert "nothing_of_that_name" in incident.detail


def test_mutation_that_the_contract_allows_is_returned(
    library: Callable[[str], CppTarget],
) -> None:
    with session(library("mutates"), kind=describe()) as running:
        form = layout(100, mutates=("x",))
        result = running.bind_and_call(form, fill=filled(1.0))
    assert result.incidents == ()
    assert array.array("f", bytes(result.outputs["x"]))[50] == 2.0


def test_kernel_that_wakes_itself_is_caught(
    library: Callable[[str], CppTarget], kind: BenchKind
) -> None:
    def slow(views: Mapping[str, memoryview]) -> None:
        filled(1.0)(views)
        threading.Event().wait(0.15)

    with session(library("self_wake"), kind=kind) as running:
        results = [running.bind_and_call(layout(1 << 10), fill=slow) for _ in range(3)]
    caught = codes(results) == {"ran_while_frozen"}
    assert caught if kind.freezer == "sigstop" else codes(results) == set()


def test_memory_put_over_the_output_reaches_nobody(library: Callable[[str], CppTarget]) -> None:
    with session(library("remaps"), kind=describe()) as running:
        result = calls(running, count=1)[0]
    assert set(result.outputs.get("y", b"\xff")) == {0xFF}


def test_cleanup_ends_what_a_dead_grader_left(library: Callable[[str], CppTarget]) -> None:
    for freezer in freezers():
        if freezer == "sigstop":
            continue
        name = f"{MARK}-orphan"
        groups = cgroups.make(name, freezer)
        orphan = subprocess.Popen(["/bin/sleep", "60"], env={"MARK": MARK})
        groups["freezer"].write("cgroup.procs", str(orphan.pid))
        frozen = ("cgroup.freeze", "1") if freezer == "cgroup-v2" else ("freezer.state", "FROZEN")
        groups["freezer"].write(*frozen)
        assert cgroups.cleanup(f"{MARK}-orph") == (name,)
        assert orphan.wait(timeout=5) == -9


ORPHANING = """
import random, signal, sys
from pathlib import Path
from inferproof_remote.arena import CallLayout, TensorSpec
from inferproof_remote.benches import BenchKind
from inferproof_remote.mounts import SandboxPlan
from inferproof_remote.session import Session
from inferproof_remote.targets import CppTarget
separation, freezer, library, name, mark = sys.argv[1:]
kind = BenchKind(separation=separation, sandbox="", freezer=freezer)
plan = SandboxPlan(memory_mib=256, tmp_mib=16, processes=40, env={"MARK": mark})
target = CppTarget(library=Path(library), entry="scale")
x, y = TensorSpec("x", "f32", (64,)), TensorSpec("y", "f32", (64,))
layout = CallLayout(dims={"n": 64}, inputs=(x,), outputs=(y,), params={"k": ("f32", 3.0)})
with Session(target, plan=plan, name=name, arena_bytes=1 << 20, threads=1, call_s=5,
             rng=random.Random(1), kind=kind) as session:
    session.bind_and_call(layout, fill=lambda views: None)
    print("frozen", flush=True)
    signal.pause()
"""


def test_killed_grader_leaves_nothing_after_cleanup(
    library: Callable[[str], CppTarget], kind: BenchKind
) -> None:
    kernel = library("daemons").library
    facts = [kind.separation, kind.freezer, str(kernel), f"{MARK}-dies", MARK]
    grader = subprocess.Popen(
        [sys.executable, "-c", ORPHANING, *facts], stdout=subprocess.PIPE, text=True
    )
    assert grader.stdout is not None
    with grader.stdout:
        assert grader.stdout.readline() == "frozen\n"
    grader.kill()
    grader.wait()
    cgroups.cleanup(f"{MARK}-dies")
    deadline = time.monotonic() + 5
    while any(map(marked, processes())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(marked, processes()))
