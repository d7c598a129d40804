"""Device memory that a candidate may touch: at a random address, between guard zones."""

import random
from dataclasses import dataclass

from inferproof_remote.cuda_driver import Driver
from inferproof_remote.cuda_kernels import VECTOR_BYTES

GUARD_BYTE = 0xA7
_GUARD_BYTES = 4096
_ALIGNMENT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """`size_bytes` at `address` for a candidate; the rest of the mapping is guarded."""

    base: int
    whole_bytes: int
    address: int
    size_bytes: int

    def guards(self, *, padded: bool) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return address and size of the guard before and the guard after.

        `padded` leaves out what our own kernels write beyond the last element.
        """
        end = self.address + self.size_bytes
        if padded:
            end = self.address + -(-self.size_bytes // VECTOR_BYTES) * VECTOR_BYTES
        before = (self.base, self.address - self.base)
        return before, (end, self.base + self.whole_bytes - end)


def make_zone(driver: Driver, size_bytes: int, rng: random.Random) -> Zone:
    """Return guarded memory at a place that `rng` draws."""
    least = size_bytes + 2 * _GUARD_BYTES + _ALIGNMENT
    base, whole = driver.map_apart(least, rng)
    spare = (whole - least) // _ALIGNMENT
    address = base + _GUARD_BYTES + _ALIGNMENT * rng.randint(0, spare)
    driver.fill(base, GUARD_BYTE, whole)
    return Zone(base=base, whole_bytes=whole, address=address, size_bytes=size_bytes)


def free_zone(driver: Driver, zone: Zone) -> None:
    """Give guarded memory back."""
    driver.unmap(zone.base, zone.whole_bytes)
