"""The launcher's order of things, with a driver that only takes note of what it is asked."""

import ctypes
import random
from collections.abc import Sequence

import pytest

from inferproof_remote.cuda_launch import LaunchError, Packed, Scalar, Shape
from inferproof_remote.gpu_launcher import Binding, Bound
from inferproof_remote.gpu_layout import tensor_rows
from inferproof_remote.gpu_memory import GUARD_BYTE
from inferproof_remote.kernel import parse_kernel
from inferproof_remote.launches import parse_asked, resolve
from inferproof_remote.tensor_maps import TensorMap
from shipped_kernels import read_contract

SIZES = {"pack": [8, 8], "main": [128, 8, 8]}
DIMS = {"m": 64, "k": 128, "n": 96}


class NotingDriver:
    """Stands for the driver; `notes` are the calls that touch the device."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def load(self, cubin: bytes) -> int:
        return len(cubin)

    def function(self, module: int, name: str) -> "NotingFunction":
        assert module
        return NotingFunction(self, name)

    def map_apart(self, size_bytes: int, rng: random.Random) -> tuple[int, int]:
        whole = -(-size_bytes // 4096) * 4096
        return rng.randrange(1 << 40) * 4096, whole

    def fill(self, address: int, byte: int, size_bytes: int) -> None:
        assert size_bytes
        if byte != GUARD_BYTE:
            self.notes.append(f"fill {byte:x}")

    def encode(self, tiles: TensorMap, address: int) -> bytes:
        assert address
        return bytes([len(tiles.extents)]) * 128


class NotingFunction:
    def __init__(self, driver: NotingDriver, name: str) -> None:
        self._driver = driver
        self.name = name
        self.needs: dict[str, int] = {}

    def prepare(self, shape: Shape) -> None:
        self.shape = shape

    def pack(self, values: Sequence[Scalar]) -> Packed:
        return Packed(values, SIZES[self.name], name=self.name)

    def launch(self, shape: Shape, stream: int, packed: Packed) -> None:
        assert stream == 0
        first = ctypes.c_char.from_address(packed.pointers[0] or 0).value[0]
        self._driver.notes.append(f"{self.name} {first if len(SIZES[self.name]) == 3 else ''}")


def binding(driver: NotingDriver, *, fills: bool = True) -> Binding:
    manifest: dict[str, object] = {
        "launches": [
            {"kernel": "main", "grid": [2], "block": [64], "args": ["l", "prepared", "y"]}
        ],
        "prepare_launches": [
            {"kernel": "pack", "grid": [1], "block": [32], "args": ["b", "prepared"]}
        ],
        "prepared_bytes": "2*k*n",
        "tensor_maps": {"l": {"tensor": "a", "box": [64, 64]}},
    }
    raw = read_contract("matmul").model_dump(mode="json", by_alias=True)
    kernel = parse_kernel(raw, fixed={}, most={})
    plan = resolve(parse_asked(manifest), kernel, DIMS, sms=4)
    spec = plan.to_json() | tensor_rows(kernel, DIMS)
    return Binding(driver, [b"cubin"], spec, fills=fills)  # pyright: ignore[reportArgumentType]


def test_prepared_memory_is_poisoned_filled_once_and_read_by_every_call() -> None:
    driver = NotingDriver()
    bound = Bound(driver, binding(driver), random.Random(1))  # pyright: ignore[reportArgumentType]
    assert set(bound.addresses) == {"a", "b", "y", "prepared"}
    bound.binding.prepare(bound.addresses)
    bound.launch(0)
    bound.launch(0)
    assert driver.notes == ["fill ff", "pack ", "main 2", "main 2"]


def test_nothing_is_written_before_a_call_that_a_sanitizer_watches() -> None:
    driver = NotingDriver()
    watched = binding(driver, fills=False)
    watched.prepare({"b": 4096, "prepared": 8192})
    assert driver.notes == ["pack "]


def test_a_call_without_one_of_its_kernels_launches_the_others() -> None:
    driver = NotingDriver()
    left = binding(driver).pack({"a": 1, "y": 2, "prepared": 3}, without="main")
    left(0)
    assert driver.notes == []


def test_an_argument_without_memory_is_refused() -> None:
    with pytest.raises(LaunchError, match="there is no prepared"):
        binding(NotingDriver()).pack({"a": 1, "y": 2})
