"""Clocks, heat and throttling of the accelerator as its management library tells them."""

import contextlib
import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from inferproof_remote.incidents import BenchError

_LIBRARY = "libnvidia-ml.so.1"
_SM, _MEMORY = 1, 2
_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
    0x2: "application clocks",
    0x10: "sync boost",
    0x100: "display clocks",
}


_MOST_PROCESSES = 256


class _ProcessInfo(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at the clocks; `None` is not told."""

    sm_mhz: int | None
    memory_mhz: int | None
    celsius: int | None
    milliwatts: int | None
    throttle: tuple[str, ...]


class Meter:
    """Reads one device again and again; says nothing where the library is missing."""

    def __init__(self, ordinal: int = 0, *, uuid: str = "") -> None:
        self._handle = ctypes.c_void_p()
        self._library: ctypes.CDLL | None = None
        self._readings: list[Reading] = []
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(_LIBRARY)
            place = ctypes.byref(self._handle)
            ready = library.nvmlInit_v2() == 0
            if ready and uuid:
                found = library.nvmlDeviceGetHandleByUUID(uuid.encode(), place)
            else:
                found = library.nvmlDeviceGetHandleByIndex_v2(ordinal, place)
            if ready and found == 0:
                self._library = library

    def read(self) -> Reading:
        """Return the present state."""
        reasons = ctypes.c_ulonglong()
        known = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.byref(reasons))
        return Reading(
            sm_mhz=self._number("nvmlDeviceGetClockInfo", _SM),
            memory_mhz=self._number("nvmlDeviceGetClockInfo", _MEMORY),
            celsius=self._number("nvmlDeviceGetTemperature", 0),
            milliwatts=self._number("nvmlDeviceGetPowerUsage"),
            throttle=tuple(name for bit, name in _REASONS.items() if known and reasons.value & bit),
        )

    def take(self) -> None:
        """Remember the present state."""
        self._readings.append(self.read())

    def facts(self) -> dict[str, object]:
        """Return least and greatest of what was remembered, in the form of the evidence."""
        return {
            "sm_mhz": _span([each.sm_mhz for each in self._readings]),
            "memory_mhz": _span([each.memory_mhz for each in self._readings]),
            "celsius": _span([each.celsius for each in self._readings]),
            "milliwatts": _span([each.milliwatts for each in self._readings]),
            "throttle": sorted({reason for each in self._readings for reason in each.throttle}),
            "samples": len(self._readings),
        }

    def minor(self) -> int | None:
        """Return the number in the name of its device file."""
        return self._number("nvmlDeviceGetMinorNumber")

    def processes(self) -> tuple[int, ...]:
        """Return the processes that compute on it.

        Raises:
            BenchError: the library does not say.
        """
        count = ctypes.c_uint(_MOST_PROCESSES)
        rows = (_ProcessInfo * _MOST_PROCESSES)()
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        if not self._ask(name, ctypes.byref(count), rows):
            raise BenchError("the GPU's driver does not tell which processes use it")
        return tuple(row.pid for row in rows[: count.value])

    def driver(self) -> str:
        """Return the driver's version; empty if it is not told."""
        text = ctypes.create_string_buffer(96)
        if self._library is None or self._library.nvmlSystemGetDriverVersion(text, 96) != 0:
            return ""
        return text.value.decode(errors="replace")

    def _number(self, name: str, *which: int) -> int | None:
        value = ctypes.c_uint()
        return value.value if self._ask(name, *which, ctypes.byref(value)) else None

    def _ask(self, name: str, *arguments: object) -> bool:
        if self._library is None:
            return False
        return getattr(self._library, name)(self._handle, *arguments) == 0


def compute_processes(uuid: str) -> tuple[int, ...]:
    """Return the processes that compute on a GPU. Raises as `Meter.processes`."""
    return Meter(uuid=uuid).processes()


def minor(uuid: str) -> int | None:
    """Return the number in the name of a GPU's device file; None if there is no such GPU."""
    return Meter(uuid=uuid).minor()


def _span(values: Sequence[int | None]) -> list[int] | None:
    known = [each for each in values if each is not None]
    return [min(known), max(known)] if known else None
