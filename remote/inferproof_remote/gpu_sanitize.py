"""A candidate's calls on small drawn shapes under each tool of compute-sanitizer, all at once."""

import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from inferproof_remote import job, sanitizer
from inferproof_remote.gpu_arms import Candidate
from inferproof_remote.gpu_process import device_plan, place_of, stage
from inferproof_remote.grade import Order
from inferproof_remote.incidents import Incident
from inferproof_remote.inputs import InputMaker
from inferproof_remote.mutants import small_dims
from inferproof_remote.numerics import copy_bytes
from inferproof_remote.sandbox import Sandbox
from inferproof_remote.sanitizer import TOOLS, Findings
from inferproof_remote.stream import Stream

Json: TypeAlias = dict[str, object]
SHAPES = 3
_MOST_ELEMENTS = 1 << 14
_LIMIT_S = 120.0
_RUN = (
    "import sys; sys.path.insert(0, {folder!r});"
    " from inferproof_remote.gpu_sanitized import main; main({folder!r})"
)


def drawn_shapes(bits: bytes, order: Order) -> list[dict[str, int]]:
    """Return the small shapes that `bits` ask for."""
    stream = Stream(bits, "sanitizer")
    return [small_dims(stream, order.kernel, _MOST_ELEMENTS) for _ in range(SHAPES)]


def sanitize(
    order: Order, bits: bytes, candidate: Candidate, shapes: Sequence[dict[str, int]]
) -> list[Findings]:
    """Return what every tool found; where there is none, why."""
    program = sanitizer.find_sanitizer()
    if program is None:
        return [Findings(tool=tool, errors=None, why=sanitizer.MISSING) for tool in TOOLS]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sanitizer-")))
        stage(folder, "gpu_sanitized")
        _lay_out(folder, order, bits, candidate, shapes)
        with ThreadPoolExecutor(max_workers=len(TOOLS)) as pool:
            watch = partial(_watch, program, folder, len(shapes))
            return list(pool.map(watch, TOOLS))


def incidents(found: Sequence[Findings]) -> list[Incident]:
    """Return an incident for each tool that found something."""
    return [
        Incident("sanitizer", None, f"{each.tool}: {each.errors} errors, the first: {each.first}")
        for each in found
        if each.errors
    ]


def _lay_out(
    folder: Path,
    order: Order,
    bits: bytes,
    candidate: Candidate,
    shapes: Sequence[dict[str, int]],
) -> None:
    maker = InputMaker(bits, order.kernel)
    calls: Json = {}
    cubins: list[bytes] = []
    for number, dims in enumerate(shapes):
        calls[f"call-{number}"], cubins = candidate.laid_out(dims)
        (folder / f"call-{number}").mkdir(mode=0o755)
        for name, value in maker.make(f"sanitizer {number}", dims, "normal").items():
            data = bytearray(value.numel() * value.element_size())
            copy_bytes(value, memoryview(data))
            _put(folder / f"call-{number}" / f"{name}.bin", data)
    names = [f"{place}.cubin" for place in range(len(cubins))]
    for name, cubin in zip(names, cubins, strict=True):
        _put(folder / name, cubin)
    _put(folder / "asked.json", json.dumps({"cubins": names, "calls": calls}).encode())


def _watch(program: Path, folder: Path, calls: int, tool: str) -> Findings:
    with tempfile.TemporaryDirectory(prefix="findings-") as name:
        log = Path(name) / "log"
        plan = replace(
            device_plan(folder), read_only=sanitizer.homes(program), writable=(Path(name),)
        )
        code = _RUN.format(folder=place_of(folder))
        argv = sanitizer.watching(program, tool, log, [sys.executable, "-I", "-B", "-c", code])
        with Sandbox(plan, name=job.sandbox_name(tool)) as box:
            completed = box.run(argv, timeout_s=_LIMIT_S)
        said = completed.output.decode(errors="replace")
        said += "".join(f"\n{each.code}: {each.detail}" for each in completed.incidents)
        text = ""
        if log.is_file() and not log.is_symlink():
            text = log.read_text(encoding="utf-8", errors="replace")
    found = sanitizer.read_log(tool, text, said)
    if found.errors == 0 and f'"calls": {calls}}}' not in said:
        last = said.strip().splitlines()[-1:] or ["nothing was said"]
        return replace(found, errors=None, why=f"not every call was made: {last[0]}"[:200])
    return found


def _put(path: Path, data: bytes | bytearray) -> None:
    path.write_bytes(data)
    path.chmod(0o644)
