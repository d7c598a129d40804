"""Shared memory: where tensors lie, what guards and poison tell, what a candidate cannot do."""

import fcntl
import itertools
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferproof_remote.arena import (
    POISON,
    Arena,
    CallLayout,
    Placement,
    TensorSpec,
    needed_bytes,
)
from inferproof_remote.incidents import BenchError

SHAPES = (
    TensorSpec("x", "bf16", (33, 7)),
    TensorSpec("i", "i64", (5,)),
    TensorSpec("y", "u8", (3,)),
)


def test_layout_lists_inputs_before_outputs() -> None:
    layout = CallLayout(dims={}, inputs=SHAPES[:2], outputs=SHAPES[2:])
    assert [spec.name for spec in layout.tensors] == ["x", "i", "y"]


def test_bytes_of_a_tensor_follow_its_dtype() -> None:
    assert [spec.nbytes for spec in SHAPES] == [33 * 7 * 2, 5 * 8, 3]


@given(seed=st.integers(0, 1 << 32), spare=st.integers(0, 1 << 16))
def test_tensors_are_aligned_apart_and_inside(seed: int, spare: int) -> None:
    arena = Arena(needed_bytes(SHAPES) + spare, random.Random(seed))
    placement = arena.place(SHAPES)
    assert [slot.name for slot in placement.slots] == ["x", "i", "y"]
    assert all(slot.offset % 64 == 0 for slot in placement.slots)
    assert 0 <= placement.start < placement.end <= arena.size_bytes
    assert all(end - start >= 4096 for start, end in placement.gaps())
    covered = sum(end - start for start, end in placement.gaps())
    covered += sum(slot.nbytes for slot in placement.slots)
    assert covered == placement.end - placement.start
    arena.close()


def test_same_bits_give_the_same_places() -> None:
    assert places(seed=3) == places(seed=3) != places(seed=4)


def test_places_change_but_sometimes_stay() -> None:
    drawn = places(seed=1)
    stays = sum(first == second for first, second in itertools.pairwise(drawn))
    assert 0 < stays < len(drawn) // 2


def places(*, seed: int) -> list[Placement]:
    arena = Arena(1 << 20, random.Random(seed))
    drawn = [arena.place(SHAPES) for _ in range(50)]
    arena.close()
    return drawn


def test_too_large_a_call_is_a_bench_error() -> None:
    arena = Arena(4096, random.Random(0))
    with pytest.raises(BenchError, match="needs"):
        arena.place(SHAPES)
    arena.close()


@pytest.mark.parametrize("byte", [0, -1])
def test_one_byte_outside_breaks_the_guards(byte: int) -> None:
    arena = Arena(1 << 16, random.Random(0))
    placement = arena.place(SHAPES)
    arena.arm_guards(placement)
    for slot in placement.slots:
        arena.view(slot)[:] = bytes(slot.nbytes)
    assert arena.guards_hold(placement)
    for start, end in placement.gaps():
        at = start if byte == 0 else end - 1
        mapped = memoryview(os.pread(arena.fd, 1, at))
        os.pwrite(arena.fd, b"\0", at)
        assert not arena.guards_hold(placement)
        os.pwrite(arena.fd, mapped, at)
        assert arena.guards_hold(placement)
    arena.close()


@pytest.mark.parametrize("at", [0, 200, 461])
def test_one_written_byte_is_no_longer_poison(at: int) -> None:
    arena = Arena(1 << 16, random.Random(0))
    slot = arena.place(SHAPES).slots[0]
    arena.poison(slot)
    assert arena.is_poison(slot)
    assert set(arena.copy(slot)) == {POISON}
    arena.view(slot)[at] = 0
    assert not arena.is_poison(slot)
    arena.close()


def test_copy_is_compared_byte_by_byte() -> None:
    arena = Arena(1 << 16, random.Random(0))
    slot = arena.place(SHAPES).slots[0]
    arena.view(slot)[:] = bytes(range(256)) + bytes(slot.nbytes - 256)
    copy = arena.copy(slot)
    assert arena.equals(slot, copy)
    arena.view(slot)[slot.nbytes - 1] = 1
    assert not arena.equals(slot, copy)
    arena.close()


def test_empty_tensor_has_nothing_to_write() -> None:
    arena = Arena(1 << 16, random.Random(0))
    (slot,) = arena.place((TensorSpec("x", "f32", (0, 4)),)).slots
    assert arena.is_poison(slot)
    assert arena.equals(slot, bytearray())
    arena.close()


def test_arena_cannot_be_resized_or_unsealed() -> None:
    arena = Arena(1 << 16, random.Random(0))
    for size in (0, 1 << 17):
        with pytest.raises(PermissionError):
            os.ftruncate(arena.fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(arena.fd, fcntl.F_ADD_SEALS, 0)
    arena.close()


def test_view_that_a_caller_kept_survives_the_arena() -> None:
    arena = Arena(1 << 16, random.Random(0))
    slot = arena.place(SHAPES).slots[0]
    view = arena.view(slot)
    arena.close()
    view[0] = 7
    assert view[0] == 7
