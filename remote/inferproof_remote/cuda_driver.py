"""The part of CUDA's driver API that judging device code needs, bound with ctypes; no torch.

Every call that fails raises `CudaError` with the driver's own name for it.
"""

import ctypes
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from inferproof_remote.cuda_launch import LaunchError, Packed, Scalar, Shape, launch_config
from inferproof_remote.tensor_maps import MAP_BYTES, TensorMap

_LIBRARY = "libcuda.so.1"
_RELAXED, _NOT_READY = 2, 600
_MAX_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTER = 8, 14
_PERSISTING_L2_LIMIT = 6
_READ_WRITE = 3
_MAP_ALIGNMENT, _L2_PROMOTION_128 = 64, 2
_LOWEST_ADDRESS, _ADDRESS_SPAN = 1 << 36, 1 << 45
_TRIES = 32
_ATTRIBUTES: Mapping[str, int] = {
    "multiprocessors": 16,
    "l2_bytes": 38,
    "threads_per_multiprocessor": 39,
    "major": 75,
    "minor": 76,
    "shared_per_multiprocessor": 81,
    "registers_per_multiprocessor": 82,
    "shared_per_block": 97,
}
_FUNCTION_ATTRIBUTES: Mapping[str, int] = {"shared_bytes": 1, "local_bytes": 3, "registers": 4}

Handle: TypeAlias = int


class CudaError(Exception):
    """A call of the driver failed; `name` is the driver's name for the error."""

    def __init__(self, call: str, name: str) -> None:
        super().__init__(f"{call}: {name}")
        self.name = name


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _AllocationProperties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What the driver says of the accelerator."""

    name: str
    uuid: str
    driver: str
    memory_bytes: int
    attributes: Mapping[str, int]

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability."""
        return self.attributes["major"], self.attributes["minor"]


class Driver:
    """One context on one device; everything is freed when the process ends."""

    def __init__(self, ordinal: int = 0) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise CudaError("load", f"no {_LIBRARY} here") from error
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._device = device.value
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def describe(self) -> Device:
        """Return what this device is."""
        name, uuid = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
        version, total = ctypes.c_int(), ctypes.c_size_t()
        self._call("cuDeviceGetName", name, 256, self._device)
        self._call("cuDeviceGetUuid", uuid, self._device)
        self._call("cuDriverGetVersion", ctypes.byref(version))
        self._call("cuDeviceTotalMem_v2", ctypes.byref(total), self._device)
        return Device(
            name=name.value.decode(errors="replace"),
            uuid=bytes(uuid).hex(),
            driver=f"CUDA {version.value // 1000}.{version.value % 1000 // 10}",
            memory_bytes=total.value,
            attributes={key: self._attribute(number) for key, number in _ATTRIBUTES.items()},
        )

    def forget_persisting_lines(self) -> None:
        """Let nothing stay in the L2 cache over a flush."""
        self._call("cuCtxSetLimit", _PERSISTING_L2_LIMIT, ctypes.c_size_t(0))
        self._call("cuCtxResetPersistingL2Cache")

    def load(self, cubin: bytes) -> Handle:
        """Return a fresh module: its global variables are as in the file."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        return module.value or 0

    def unload(self, module: Handle) -> None:
        """Let go of a module."""
        self._call("cuModuleUnload", ctypes.c_void_p(module))

    def function(self, module: Handle, name: str) -> "Function":
        """Return a kernel of a module.

        Raises:
            LaunchError: the module has no such kernel.
        """
        found = ctypes.c_void_p()
        try:
            self._call(
                "cuModuleGetFunction", ctypes.byref(found), ctypes.c_void_p(module), name.encode()
            )
        except CudaError as error:
            raise LaunchError(f"the module has no kernel {name!r} ({error.name})") from error
        return Function(self, found.value or 0, name)

    def allocate(self, size_bytes: int, *, exactly: bool = False) -> int:
        """Return the address of plain device memory."""
        address = ctypes.c_uint64()
        size = size_bytes if exactly else max(size_bytes, 256)
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        """Give plain device memory back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address: int, source: int, size_bytes: int) -> None:
        """Copy from the host address `source`."""
        if size_bytes:
            self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), *_host(source, size_bytes))

    def read(self, target: int, address: int, size_bytes: int) -> None:
        """Copy to the host address `target`."""
        if size_bytes:
            place, size = _host(target, size_bytes)
            self._call("cuMemcpyDtoH_v2", place, ctypes.c_uint64(address), size)

    def fill(self, address: int, byte: int, size_bytes: int, stream: Handle | None = None) -> None:
        """Set device memory to one byte; in `stream`'s order if given."""
        if size_bytes:
            where = (ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(size_bytes))
            if stream is None:
                self._call("cuMemsetD8_v2", *where)
            else:
                self._call("cuMemsetD8Async", *where, ctypes.c_void_p(stream))

    def stream(self) -> Handle:
        """Return a new stream that waits for no other."""
        made = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(made), 1)
        return made.value or 0

    def wait(self, stream: Handle) -> None:
        """Return when everything in `stream` is done; an error of a kernel shows here."""
        self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def wait_all(self) -> None:
        """Return when the context is idle."""
        self._call("cuCtxSynchronize")

    def begin_capture(self, stream: Handle) -> None:
        """Record what is put into `stream` instead of running it."""
        self._call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), _RELAXED)

    def end_capture(self, stream: Handle) -> Handle:
        """Return what was recorded, ready to be run again and again."""
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_uint64(0))
        self._call("cuGraphDestroy", graph)
        return ready.value or 0

    def replay(self, graph: Handle, stream: Handle) -> None:
        """Run a recorded graph."""
        self._call("cuGraphLaunch", ctypes.c_void_p(graph), ctypes.c_void_p(stream))

    def destroy(self, graph: Handle) -> None:
        """Let go of a recorded graph."""
        self._call("cuGraphExecDestroy", ctypes.c_void_p(graph))

    def event(self) -> Handle:
        """Return a new event with a time."""
        made = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(made), 0)
        return made.value or 0

    def record(self, event: Handle, stream: Handle) -> None:
        """Mark the present place in `stream`."""
        self._call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def has_happened(self, event: Handle) -> bool:
        """Return whether all that was put before a mark is done, or has failed."""
        return self._library.cuEventQuery(ctypes.c_void_p(event)) != _NOT_READY

    def seconds_between(self, first: Handle, second: Handle) -> float:
        """Return the time between two events that have happened."""
        elapsed_ms = ctypes.c_float()
        marks = ctypes.c_void_p(first), ctypes.c_void_p(second)
        self._call("cuEventElapsedTime", ctypes.byref(elapsed_ms), *marks)
        return elapsed_ms.value * 1e-3

    def map_apart(self, size_bytes: int, rng: random.Random) -> tuple[int, int]:
        """Return address and size of memory at a random address with nothing mapped beside it."""
        properties = _AllocationProperties(type=1, location=_Location(type=1, id=self._device))
        granule, handle = ctypes.c_size_t(), ctypes.c_uint64()
        self._call(
            "cuMemGetAllocationGranularity", ctypes.byref(granule), ctypes.byref(properties), 0
        )
        whole = -(-size_bytes // granule.value) * granule.value
        size = ctypes.c_size_t(whole)
        self._call(
            *("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(properties)),
            ctypes.c_uint64(0),
        )
        address = self._reserve(whole, granule.value, rng)
        self._call("cuMemMap", address, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        access = _Access(location=_Location(type=1, id=self._device), flags=_READ_WRITE)
        self._call("cuMemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1))
        self._call("cuMemRelease", handle)  # it lives as long as it is mapped
        return address.value, whole

    def unmap(self, address: int, size_bytes: int) -> None:
        """Give memory of `map_apart` back."""
        place, size = ctypes.c_uint64(address), ctypes.c_size_t(size_bytes)
        self._call("cuMemUnmap", place, size)
        self._call("cuMemAddressFree", place, size)

    def _reserve(self, size_bytes: int, granule: int, rng: random.Random) -> ctypes.c_uint64:
        """Return a random free range; the driver only takes the address as a hint."""
        address = ctypes.c_uint64()
        drawn = (_LOWEST_ADDRESS + rng.randrange(_ADDRESS_SPAN) for _ in range(_TRIES))
        for hint in (
            *(each // granule * granule for each in drawn),
            0,
        ):  # 0: wherever there is room
            self._call(
                *("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size_bytes)),
                *(ctypes.c_size_t(0), ctypes.c_uint64(hint), ctypes.c_uint64(0)),
            )
            if hint in (0, address.value):
                break
            self._call("cuMemAddressFree", address, ctypes.c_size_t(size_bytes))
        return address

    def encode(self, tiles: TensorMap, address: int) -> bytes:
        """Return a tensor map of what lies at `address`, as kernels take it.

        Raises:
            LaunchError: this device takes no such map.
        """
        rank = len(tiles.extents)
        room = ctypes.create_string_buffer(MAP_BYTES + _MAP_ALIGNMENT)
        skip = -ctypes.addressof(room) % _MAP_ALIGNMENT
        numbers = (
            (ctypes.c_uint64 * rank)(*tiles.extents),
            (ctypes.c_uint64 * max(1, rank - 1))(*tiles.strides_bytes),
            (ctypes.c_uint32 * rank)(*tiles.box),
            (ctypes.c_uint32 * rank)(*(1 for _ in tiles.extents)),
        )
        place, whole = ctypes.byref(room, skip), ctypes.c_uint64(address)
        try:
            self._call(
                *("cuTensorMapEncodeTiled", place, tiles.item_type, rank, whole, *numbers),
                *(0, tiles.swizzle, _L2_PROMOTION_128, 0),
            )
        except CudaError as error:
            raise LaunchError(f"tensor map of {tiles.tensor}: {error}") from error
        return room.raw[skip : skip + MAP_BYTES]

    def launch(self, function: Handle, shape: Shape, stream: Handle, packed: Packed) -> None:
        """Put one kernel into `stream`."""
        config = launch_config(shape, stream)
        handle = ctypes.c_void_p(function)
        self._call("cuLaunchKernelEx", ctypes.byref(config), handle, packed.pointers, None)

    def set_function(self, function: Handle, *, dynamic_shared_bytes: int, cluster: bool) -> None:
        """Allow a kernel more than the default of shared memory and cluster size."""
        handle = ctypes.c_void_p(function)
        if dynamic_shared_bytes:
            self._call("cuFuncSetAttribute", handle, _MAX_DYNAMIC_SHARED, dynamic_shared_bytes)
        if cluster:
            self._call("cuFuncSetAttribute", handle, _NON_PORTABLE_CLUSTER, 1)

    def parameter_sizes(self, function: Handle) -> tuple[int, ...]:
        """Return the size of each parameter of a kernel."""
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        places = ctypes.byref(offset), ctypes.byref(size)
        asked = self._library.cuFuncGetParamInfo
        while asked(ctypes.c_void_p(function), ctypes.c_size_t(len(sizes)), *places) == 0:
            sizes.append(size.value)
        return tuple(sizes)

    def function_attributes(self, function: Handle) -> dict[str, int]:
        """Return what a loaded kernel needs."""
        found: dict[str, int] = {}
        for name, number in _FUNCTION_ATTRIBUTES.items():
            value = ctypes.c_int()
            handle = ctypes.c_void_p(function)
            self._call("cuFuncGetAttribute", ctypes.byref(value), number, handle)
            found[name] = value.value
        return found

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise CudaError(name, (text.value or str(code).encode()).decode())


def find_attributes(ordinal: int = 0) -> Mapping[str, int] | None:
    """Return what a device is like, without taking it into use; None if there is none."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    device, value = ctypes.c_int(), ctypes.c_int()
    if library.cuInit(0) != 0 or library.cuDeviceGet(ctypes.byref(device), ordinal) != 0:
        return None
    found: dict[str, int] = {}
    for name, number in _ATTRIBUTES.items():
        if library.cuDeviceGetAttribute(ctypes.byref(value), number, device) != 0:
            return None
        found[name] = value.value
    return found


class Function:
    """A kernel, launched with values that fit its parameters."""

    def __init__(self, driver: Driver, handle: Handle, name: str) -> None:
        self._driver = driver
        self._handle = handle
        self._sizes = driver.parameter_sizes(handle)
        self.name = name
        self.needs = driver.function_attributes(handle)

    def prepare(self, shape: Shape) -> None:
        """Raise this kernel's limits to what `shape` needs.

        Raises:
            LaunchError: the device cannot.
        """
        try:
            self._driver.set_function(
                self._handle,
                dynamic_shared_bytes=shape.shared_bytes,
                cluster=shape.cluster is not None,
            )
        except CudaError as error:
            raise LaunchError(f"kernel {self.name}: {error}") from error

    def pack(self, values: Sequence[Scalar]) -> Packed:
        """Return `values` in the form of this kernel's parameters.

        Raises:
            LaunchError: their number, a kind or a size does not fit.
        """
        return Packed(values, self._sizes, name=self.name)

    def launch(self, shape: Shape, stream: Handle, packed: Packed) -> None:
        """Put this kernel into `stream`."""
        self._driver.launch(self._handle, shape, stream, packed)


def _host(address: int, size_bytes: int) -> tuple[ctypes.c_void_p, ctypes.c_size_t]:
    return ctypes.c_void_p(address), ctypes.c_size_t(size_bytes)
