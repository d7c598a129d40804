"""What is proposed next follows from the record alone, and is never what was tried."""

import math

from inferproof.core.space import Setting, Space
from inferproof.search.studies import Known, propose

SPACE = Space.model_validate(
    {
        "parameters": {
            "size": {"values": [1, 2, 4, 8, 16, 32], "default": 1},
            "share": {"range": [0.0, 1.0], "default": 0.5},
            "graphs": {"values": [True, False], "default": True},
            "graph_size": {
                "range": [1, 64],
                "scale": "log",
                "default": 8,
                "when": {"graphs": [True]},
            },
        }
    }
)
SMALL = Space.model_validate(
    {
        "parameters": {
            "a": {"values": [1, 2], "default": 1},
            "b": {"values": [True], "default": None},
        }
    }
)


def gain(settings: dict[str, Setting]) -> float:
    """A landscape with one peak: size 16, share 0.8, no graphs."""
    size, share = settings.get("size", 1), settings.get("share", 0.5)
    assert isinstance(size, int | float)
    assert isinstance(share, int | float)
    near = abs(math.log2(size) - 4) + 4 * abs(share - 0.8) + bool(settings.get("graphs", True))
    return math.exp(-near / 4)


def searched(trials: int, seed: int) -> list[float]:
    known: list[Known] = []
    while len(known) < trials:
        for each in propose(SPACE, known, 2, seed=seed + len(known), planned=trials):
            known.append(Known(settings=each, score=gain(each)))
    return [each.score or 0 for each in known]


def test_the_same_record_gives_the_same_proposals():
    known = [Known(settings={"size": 4, "share": 0.2, "graphs": False}, score=1.2)]
    first, second = (propose(SPACE, known, 4, seed=7, planned=20) for _ in range(2))
    assert first == second
    assert first != propose(SPACE, known, 4, seed=8, planned=20)


def test_what_was_tried_and_the_default_are_not_proposed_again():
    found = propose(SMALL, [Known(settings={"a": 2}, score=None)], 4, seed=1, planned=4)
    assert sorted(map(str, found)) == ["{'a': 1, 'b': True}", "{'a': 2, 'b': True}"]
    known = [Known(settings=each, score=1.0) for each in found]
    assert (
        propose(SMALL, [*known, Known(settings={"a": 2}, score=None)], 4, seed=1, planned=4) == ()
    )


def test_a_proposal_gives_no_option_whose_condition_does_not_hold():
    found = propose(SPACE, (), 24, seed=3, planned=24)
    assert {each.get("graphs") for each in found} == {True, False}
    for each in found:
        assert ("graph_size" in each) == (each["graphs"] is True)


def test_what_the_record_teaches_makes_later_proposals_better():
    runs = [searched(24, seed=100 * k) for k in range(4)]
    early = sum(sum(run[:8]) for run in runs)
    late = sum(sum(run[-8:]) for run in runs)
    assert late > early


def test_a_configuration_that_failed_teaches_to_stay_away():
    bad = [Known(settings={"a": 2, "b": k}, score=None) for k in range(6)]
    good = [Known(settings={"a": 1, "b": k}, score=2.0) for k in range(1, 6)]
    space = Space.model_validate(
        {
            "parameters": {
                "a": {"values": [1, 2], "default": 1},
                "b": {"range": [0, 1000], "default": 0},
            }
        }
    )
    found = propose(space, [*bad, *good], 12, seed=5, planned=12)
    assert sum(each["a"] == 1 for each in found) > 6


def test_settings_that_the_space_no_longer_has_teach_nothing():
    known = [Known(settings={"gone": 1}, score=9.0), Known(settings={"a": 3}, score=9.0)]
    assert propose(SMALL, known, 1, seed=2, planned=3) == propose(SMALL, (), 1, seed=2, planned=3)
