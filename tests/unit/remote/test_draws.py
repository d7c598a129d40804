"""What a grading asks follows from the bits, and from nothing else."""

from collections import Counter

import pytest

from inferproof_remote.draws import CANDIDATE, MIXED, NULL, Plan, Scope, make_plan
from inferproof_remote.stream import Stream
from shipped_kernels import NAMES, load, seeded

FULL = Scope(graded=True, zoo=False, timing=True, baselines=("torch", "torch.compile"))
ZOO = Scope(graded=True, zoo=True, timing=False)
PRACTICE = Scope(graded=False, zoo=False, timing=True, baselines=("torch",))


def plan(seed: int = 1, name: str = "rms_norm", scope: Scope = FULL) -> Plan:
    kernel, _ = load(name, most=4096)
    return make_plan(seeded(seed), kernel, scope)


def test_the_same_bits_give_the_same_plan():
    assert plan(1) == plan(1)


def test_other_bits_give_another_plan():
    assert plan(1) != plan(2)


def test_streams_of_different_names_are_unrelated():
    first, second = (Stream(seeded(1), name) for name in ("one", "two"))
    assert [first.word() for _ in range(8)] != [second.word() for _ in range(8)]


def test_a_stream_is_what_it_always_was():
    """The revealed bits of stored evidence must go on meaning the same draws."""
    stream = Stream(bytes(32), "golden")
    drawn = (
        stream.word(),
        stream.below(1000),
        stream.log_between(1, 16384),
        stream.shuffled("abc"),
    )
    assert drawn == (4836686858667644848, 297, 65, ["a", "b", "c"])


def test_below_gives_every_value_about_equally_often():
    stream = Stream(seeded(3), "below")
    counts = Counter(stream.below(7) for _ in range(7000))
    assert set(counts) == set(range(7))
    assert all(850 < count < 1150 for count in counts.values())


def test_log_between_gives_every_octave_about_equally_often():
    stream = Stream(seeded(3), "log")
    octaves = Counter(stream.log_between(1, 1023).bit_length() for _ in range(5000))
    assert set(octaves) == set(range(1, 11))
    assert all(380 < count < 650 for count in octaves.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_family_is_asked_for_in_every_grading(name: str):
    kernel, _ = load(name)
    for seed in range(10):
        asked = {call.family for call in plan(seed, name, ZOO).calls}
        assert asked >= {*kernel.families, MIXED}


@pytest.mark.parametrize("name", NAMES)
def test_every_drawn_shape_is_one_that_the_contract_allows(name: str):
    kernel, _ = load(name, most=4096)
    for seed in range(10):
        for call in plan(seed, name).calls:
            assert call.dims == kernel.order(call.dims)
            assert list(call.dims) == list(kernel.extents)


def test_neighbours_of_drawn_shapes_are_asked_for_too():
    sizes = {call.dims["tokens"] for call in plan(5).calls}
    assert sum(1 for size in sizes if {size - 1, size + 1} <= sizes) >= 6


def test_near_duplicates_and_repeats_come_after_their_base():
    for seed in range(20):
        calls = plan(seed).calls
        derived = [call for call in calls if call.phase in ("near_duplicate", "repeat")]
        assert {call.phase for call in derived} == {"near_duplicate", "repeat"}
        for call in derived:
            assert call.base is not None
            assert call.base < call.index
            base = calls[call.base]
            assert (base.dims, base.family, base.phase) == (call.dims, call.family, "numerics")
            assert (base.inputs == call.inputs) == (call.phase == "repeat")


@pytest.mark.parametrize("scope", [FULL, ZOO, PRACTICE], ids=["full", "zoo", "practice"])
def test_a_cache_of_the_last_answer_alone_is_asked_for_a_near_duplicate_of_it(scope: Scope):
    for seed in range(60):
        calls = plan(seed, scope=scope).calls
        assert any(
            call.phase == "near_duplicate" and call.base == call.index - 1 for call in calls
        ), seed


def test_timed_calls_come_late_and_untimed_calls_come_among_them():
    for seed in range(20):
        drawn = plan(seed)
        phases = [call.phase for call in drawn.calls]
        assert "timed" not in phases[: drawn.settled]
        assert "numerics" in phases[drawn.settled :]
        assert phases.count("timed") == 2 * 20
        shapes = [call.dims for call in drawn.calls[: drawn.settled]]
        assert all(dims in shapes for dims in drawn.timed)


def test_a_graded_candidate_is_started_four_times_and_checked_in_each():
    for seed in range(5):
        calls = plan(seed).calls
        launches = [call.launch for call in calls]
        assert launches == sorted(launches)
        assert {call.launch for call in calls if call.checked} == {0, 1, 2, 3}
        assert all(call.launch == 0 for call in calls if call.phase != "numerics")
    assert {call.launch for call in plan(1, scope=PRACTICE).calls} == {0}


def test_how_many_calls_there_are_cannot_be_told_beforehand():
    drawn = [plan(seed) for seed in range(20)]
    assert len({each.settled for each in drawn}) >= 4
    assert len({len(each.calls) for each in drawn}) >= 6


def test_every_arm_runs_in_every_round_in_random_order():
    rounds = [call.arms for call in plan(2).calls if call.phase == "timed"]
    wanted = sorted([CANDIDATE, NULL, "torch", "torch.compile"])
    assert all(sorted(arms) == wanted for arms in rounds)
    assert len({arms[0] for arms in rounds}) == 4


def test_at_least_eight_timed_outputs_of_each_shape_are_checked_whole():
    for seed in range(10):
        drawn = plan(seed)
        for workload in range(len(drawn.timed)):
            checks = [call.checked for call in drawn.calls if call.workload == workload]
            assert sum(checks) >= 8


def test_practice_asks_for_the_open_shapes_only():
    drawn = plan(1, scope=PRACTICE)
    asked = {call.dims["tokens"] for call in drawn.calls if call.dims not in drawn.timed}
    assert asked == {1, 7, 128, 2048}


def test_smallest_shape_is_always_graded():
    assert all(any(call.dims["tokens"] == 1 for call in plan(s).calls) for s in range(10))
