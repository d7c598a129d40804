"""The program inside the sandbox: loads one candidate and answers one command at a time.

Self-contained: its source text is all that the sandbox gets of this package. It shares a process
with the candidate, so nothing it says is evidence; an answer only tells the grader when to look.

    command: letter + 8-byte nonce (+ 4-byte length + JSON for `b`)   answer: the nonce
    b bind    where the tensors of the next call lie       p prepare   transform the prepare inputs
    l look    nothing (a window for the grader)            c call      run the entry
"""

import ctypes
import importlib.util
import json
import mmap
import os
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

_HEADER_BYTES = 9
_PYTHON_DTYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "ue4m3": "float8_e4m3fn",
    "ue8m0": "float8_e8m0fnu",
    "f4e2m1x2": "uint8",
}


class Target(Protocol):
    """What is run: `bind` is told where the tensors are, `prepare` and `call` act on them."""

    def bind(self, layout: Mapping[str, Any]) -> None:
        """Take note of where the next call's tensors lie."""
        ...

    def prepare(self) -> None:
        """Transform the prepare inputs, if the candidate wants to."""
        ...

    def call(self) -> None:
        """Run the entry once."""
        ...


class NullTarget:
    """Does nothing: what its calls cost is the cost of the harness."""

    def __init__(self, arena: mmap.mmap, spec: Mapping[str, Any]) -> None:
        del arena, spec

    def bind(self, layout: Mapping[str, Any]) -> None:
        """Take note of where the next call's tensors lie."""
        del layout

    def prepare(self) -> None:
        """Transform the prepare inputs, if the candidate wants to."""

    def call(self) -> None:
        """Run the entry once."""


class LibraryTarget:
    """A C function in a shared library."""

    def __init__(self, arena: mmap.mmap, spec: Mapping[str, Any]) -> None:
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(arena))
        library = ctypes.CDLL(spec["library"], mode=ctypes.RTLD_LOCAL)
        self._entry = library[spec["entry"]]
        self._entry.restype = None
        self._prepare = library[spec["prepare"]] if spec["prepare"] else None
        if self._prepare is not None:
            self._prepare.restype = ctypes.c_void_p
        self._arguments: list[Any] = []
        self._prepare_arguments: list[Any] = []
        self._prepared: list[ctypes.c_void_p] = []

    def bind(self, layout: Mapping[str, Any]) -> None:
        """Take note of where the next call's tensors lie."""
        pointers = {
            name: ctypes.c_void_p(self._base + tensor["offset"])
            for name, tensor in layout["tensors"].items()
        }
        scalars: list[Any] = [ctypes.c_int64(extent) for extent in layout["dims"].values()]
        for dtype, value in layout["params"].values():
            as_float = dtype == "f32"
            scalars.append(ctypes.c_float(value) if as_float else ctypes.c_int64(int(value)))
        self._arguments = [*pointers.values(), *scalars]
        self._prepare_arguments = [*(pointers[name] for name in layout["prepare"]), *scalars]

    def prepare(self) -> None:
        """Transform the prepare inputs, if the candidate wants to."""
        if self._prepare is not None:
            self._prepared = [ctypes.c_void_p(self._prepare(*self._prepare_arguments))]

    def call(self) -> None:
        """Run the entry once."""
        self._entry(*self._arguments, *self._prepared)


class ModuleTarget:
    """A Python function in a source file, on torch tensors."""

    def __init__(self, arena: mmap.mmap, spec: Mapping[str, Any]) -> None:
        import torch

        torch.set_num_threads(spec["threads"])
        self._torch = torch
        self._arena = arena
        module = _load(spec["folder"], spec["source"])
        self._entry: Callable[..., object] = getattr(module, spec["entry"])
        name = spec["prepare"]
        self._prepare: Callable[..., object] | None = getattr(module, name) if name else None
        self._arguments: dict[str, Any] = {}
        self._keywords: dict[str, Any] = {}
        self._prepared: dict[str, object] = {}
        self._prepare_inputs: Sequence[str] = ()

    def bind(self, layout: Mapping[str, Any]) -> None:
        """Take note of where the next call's tensors lie."""
        tensors = layout["tensors"].items()
        self._arguments = {name: self._tensor(tensor) for name, tensor in tensors}
        self._keywords = {
            name: value if dtype == "f32" else int(value)
            for name, (dtype, value) in layout["params"].items()
        }
        self._prepare_inputs = layout["prepare"]

    def prepare(self) -> None:
        """Transform the prepare inputs, if the candidate wants to."""
        if self._prepare is not None:
            inputs = [self._arguments[name] for name in self._prepare_inputs]
            self._prepared = {"prepared": self._prepare(*inputs, **self._keywords)}

    def call(self) -> None:
        """Run the entry once."""
        self._entry(*self._arguments.values(), **self._keywords, **self._prepared)

    def _tensor(self, tensor: Mapping[str, Any]) -> object:
        dtype = getattr(self._torch, _PYTHON_DTYPES[tensor["dtype"]])
        shape = tensor["shape"]
        count = 1
        for extent in shape:
            count *= extent
        if count == 0:
            return self._torch.empty(shape, dtype=dtype)
        offset = tensor["offset"]
        flat = self._torch.frombuffer(self._arena, dtype=dtype, count=count, offset=offset)
        return flat.view(shape)


TARGETS: dict[str, Callable[[mmap.mmap, Mapping[str, Any]], Target]] = {
    "null": NullTarget,
    "library": LibraryTarget,
    "module": ModuleTarget,
}


def main() -> None:
    """Load the candidate, say so, then serve until told to stop."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    info = int(spec["info_fd"])
    try:
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        arena = mmap.mmap(spec["arena_fd"], spec["arena_bytes"], flags=flags)
        os.close(spec["arena_fd"])
        target = TARGETS[spec["kind"]](arena, spec)
    except BaseException as error:
        os.write(info, _last_line(error))
        raise
    os.write(spec["answer_fd"], bytes.fromhex(spec["ready"]))
    try:
        _serve(target, command_fd=spec["command_fd"], answer_fd=spec["answer_fd"])
    except BaseException as error:
        os.write(info, _last_line(error))
        raise


def _serve(target: Target, *, command_fd: int, answer_fd: int) -> None:
    while header := os.read(command_fd, _HEADER_BYTES):
        match header[:1]:
            case b"c":
                target.call()
            case b"b":
                (length,) = struct.unpack("=I", _exactly(command_fd, 4))
                target.bind(json.loads(_exactly(command_fd, length)))
            case b"p":
                target.prepare()
            case _:
                pass
        os.write(answer_fd, header[1:])


def _exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = os.read(fd, size - len(data))
        if not chunk:
            raise EOFError("the grader went away")
        data += chunk
    return data


def _load(folder: str, source: str) -> object:
    """Return the candidate's module; its folder comes last, so that it can shadow nothing."""
    sys.path.append(folder)
    path = os.path.join(folder, source)  # noqa: PTH118 (pathlib would cost start-up time)
    name = source.removesuffix(".py").replace("/", ".")
    found = importlib.util.spec_from_file_location(f"candidate.{name}", path)
    if found is None or found.loader is None:
        raise ImportError(f"{source} is not a Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return cast("object", module)


def _last_line(error: BaseException) -> bytes:
    return f"{type(error).__name__}: {error}".encode(errors="replace")[:1000]


if __name__ == "__main__":
    main()
