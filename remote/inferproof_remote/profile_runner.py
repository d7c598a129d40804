"""Runs inside the sandbox: calls one candidate on made-up inputs under the torch profiler.

Prints one JSON line. Read as text and run by `python -I -c`; it uses nothing of this package.
What it says is practice: it shares a process with the candidate.
"""

import ctypes
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch.autograd.profiler import record_function
from torch.profiler import ProfilerActivity, profile

DTYPES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "ue4m3": torch.float8_e4m3fn,
    "ue8m0": torch.float8_e8m0fnu,
    "f4e2m1x2": torch.uint8,
}
WARM_UPS = 3
MOST_ROWS = 12
LONGEST_S = 10.0


class Row(Protocol):
    """One operator of a profile, all its calls together."""

    key: str
    self_cpu_time_total: float
    count: int


def tensor(spec: Mapping[str, Any], generator: torch.Generator) -> torch.Tensor:
    """Return random values of the asked form; an output starts as zeros."""
    dtype, shape = DTYPES[spec["dtype"]], tuple(spec["shape"])
    if spec["span"] is not None:
        low, high = spec["span"]
        if dtype.is_floating_point:
            return torch.rand(shape, generator=generator).mul_(high - low).add_(low)
        return torch.randint(low, max(high, low + 1), shape, dtype=dtype, generator=generator)
    if dtype.is_floating_point:
        values = torch.randn(shape, generator=generator)
        return (values.abs() if spec["dtype"].startswith("ue") else values).to(dtype)
    return torch.zeros(shape, dtype=dtype)


def python_call(spec: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Callable[[], None]:
    """Return one call of a Python candidate, prepared if it asks for that."""
    sys.path.insert(0, str(Path.cwd()))
    found = importlib.util.spec_from_file_location("candidate", spec["source"])
    if found is None or found.loader is None:
        raise ImportError(spec["source"])
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    keywords = {name: value for name, _, value in spec["params"]}
    if spec["prepare"]:
        early = {name: tensors[name] for name in spec["prepare_inputs"]}
        keywords["prepared"] = getattr(module, spec["prepare"])(**early, **keywords)
    entry = getattr(module, spec["entry"])
    return lambda: entry(**tensors, **keywords)


def library_call(
    spec: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> Callable[[], None]:
    """Return one call of a C function, prepared if it asks for that."""
    library = ctypes.CDLL(spec["library"])
    pointers = {name: ctypes.c_void_p(value.data_ptr()) for name, value in tensors.items()}
    scalars: list[Any] = [ctypes.c_int64(extent) for extent in spec["dims"].values()]
    for _, dtype, value in spec["params"]:
        scalars.append(ctypes.c_float(value) if dtype == "f32" else ctypes.c_int64(int(value)))
    arguments = [*pointers.values(), *scalars]
    if spec["prepare"]:
        prepare = library[spec["prepare"]]
        prepare.restype = ctypes.c_void_p
        early = [pointers[name] for name in spec["prepare_inputs"]]
        arguments.append(ctypes.c_void_p(prepare(*early, *scalars)))
    entry = library[spec["entry"]]
    entry.restype = None
    return lambda: entry(*arguments)


def measured(call: Callable[[], None], label: str, calls: int) -> dict[str, object]:
    """Return the median seconds of a call, and the operators by their own CPU time."""
    for _ in range(WARM_UPS):
        call()
    seconds: list[float] = []
    began = time.perf_counter()
    while len(seconds) < calls and time.perf_counter() - began < LONGEST_S:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    profiled_calls(call, label, 1)
    profiled = profiled_calls(call, label, len(seconds))
    averages = cast("list[Row]", profiled.key_averages())
    rows = sorted(averages, key=lambda row: -row.self_cpu_time_total)
    return {
        "seconds_per_call": sorted(seconds)[len(seconds) // 2],
        "total_s": sum(row.self_cpu_time_total for row in rows) / 1e6,
        "rows": [[row.key, row.self_cpu_time_total / 1e6, row.count] for row in rows[:MOST_ROWS]],
    }


def profiled_calls(call: Callable[[], None], label: str, calls: int) -> profile:
    """Return the profile of some calls; the first profile of a process pays for its set-up."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(calls):
            with record_function(label):
                call()
    return profiled


def main() -> None:
    """Do what the first argument asks and print the outcome."""
    spec = json.loads(sys.argv[1])
    torch.set_num_threads(spec["threads"])
    generator = torch.Generator()
    tensors = {each["name"]: tensor(each, generator) for each in spec["tensors"]}
    made = (library_call if spec["library"] else python_call)(spec, tensors)
    sys.stdout.write("\n" + json.dumps(measured(made, spec["label"], spec["calls"])) + "\n")


if __name__ == "__main__":
    main()
