"""Where a candidate's memory lies, and what is guarded around it."""

import random

from inferproof_remote.cuda_driver import Driver
from inferproof_remote.gpu_memory import GUARD_BYTE, make_zone

GRANULE = 1 << 21


class Memory(Driver):
    """Hands out addresses without a device and notes what is filled."""

    def __init__(self) -> None:
        self.filled: list[tuple[int, int, int]] = []

    def map_apart(self, size_bytes: int, rng: random.Random) -> tuple[int, int]:
        """Return a made-up mapping."""
        del rng
        return 1 << 40, -(-size_bytes // GRANULE) * GRANULE

    def fill(self, address: int, byte: int, size_bytes: int, stream: int | None = None) -> None:
        """Take note."""
        del stream
        self.filled.append((address, byte, size_bytes))


def test_guards_and_tensor_make_up_the_whole_mapping() -> None:
    rng = random.Random(1)
    for size in (1, 2, 255, 4096, GRANULE - 3, 3 * GRANULE):
        zone = make_zone(Memory(), size, rng)
        (before, left), (after, right) = zone.guards(padded=False)
        assert (before, before + left) == (zone.base, zone.address)
        assert after == zone.address + size
        assert after + right == zone.base + zone.whole_bytes
        assert min(left, right) >= 4096
        assert zone.address % 256 == 0


def test_places_in_a_mapping_are_drawn() -> None:
    rng = random.Random(2)
    assert len({make_zone(Memory(), 1000, rng).address for _ in range(20)}) > 10


def test_a_mapping_is_guarded_before_it_is_used() -> None:
    memory = Memory()
    zone = make_zone(memory, 1000, random.Random(3))
    assert memory.filled == [(zone.base, GUARD_BYTE, zone.whole_bytes)]


def test_what_our_own_kernels_pad_is_no_guard_in_a_chain() -> None:
    zone = make_zone(Memory(), 1001, random.Random(4))
    exact, padded = zone.guards(padded=False)[1], zone.guards(padded=True)[1]
    assert padded[0] - exact[0] == 1008 - 1001
    assert sum(exact) == sum(padded)
