"""What compute-sanitizer watches: our launcher making one call of a candidate on each shape.

Runs in the sandbox with the device. Each tensor is an allocation of exactly its size, so that what
is read or written beside it is found, and nothing is written to outputs and scratch memory before
the call, so that what is read of them is found too.
"""

import ctypes
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from inferproof_remote.cuda_driver import CudaError, Driver
from inferproof_remote.cuda_launch import LaunchError
from inferproof_remote.gpu_launcher import Binding
from inferproof_remote.job import as_table, as_texts


def main(folder: str) -> None:
    """Make every call that is laid out in the folder; say how many ended well."""
    place, done = Path(folder), 0
    asked = as_table(json.loads((place / "asked.json").read_bytes()), "asked")
    cubins = [(place / name).read_bytes() for name in as_texts(asked["cubins"], "cubins")]
    told: dict[str, object] = {}
    try:
        driver = Driver()
        for name, call in as_table(asked["calls"], "calls").items():
            _call(driver, cubins, as_table(call, name), place / name)
            done += 1
    except (CudaError, LaunchError) as error:
        told = {"failed": str(error)}
    sys.stdout.write("\n" + json.dumps(told | {"calls": done}) + "\n")


def _call(driver: Driver, cubins: list[bytes], asked: Mapping[str, object], place: Path) -> None:
    binding = Binding(driver, cubins, asked, fills=False)
    sizes = {each.name: each.size_bytes for each in (*binding.inputs, *binding.outputs)}
    addresses = {
        name: driver.allocate(size, exactly=True)
        for name, size in (sizes | binding.scratch).items()
    }
    for tensor in binding.inputs:
        data = (place / f"{tensor.name}.bin").read_bytes()
        buffer = ctypes.create_string_buffer(data, len(data))
        driver.write(addresses[tensor.name], ctypes.addressof(buffer), len(data))
    binding.prepare(addresses)
    driver.wait_all()
    binding.pack(addresses)(0)
    driver.wait_all()
    for address in addresses.values():
        driver.free(address)
    binding.release()
