"""Audit: greedy tokens are the reference's best, first and last ones too; drawn ones are drawn."""

import pytest

from inferproof.gates.audit import Audited, allowed
from unit.gates.serving_cases import TOKENS, audit_facts, case, load_facts, said, with_run

FAR = 2.0


def gaps_at(*places: int) -> list[object]:
    return [FAR if at in places else 0.0 for at in range(12 * TOKENS)]


def audited(**changes: object) -> tuple[str, str]:
    return said(Audited(), with_run(audit=audit_facts(**changes)))


def test_an_honest_run_passes() -> None:
    assert said(Audited(), case()) == ("pass", "accepted")


@pytest.mark.parametrize(
    "places",
    [
        range(0, 12 * TOKENS, 20),
        range(5, 25),
        (0, TOKENS),
        (TOKENS - 1, 5 * TOKENS - 1),
    ],
    ids=["every twentieth", "one stretch", "first tokens", "last tokens"],
)
def test_tokens_that_are_not_the_models_are_refused(places: range | tuple[int, ...]) -> None:
    assert audited(tie_gap_nats=gaps_at(*places)) == ("fail", "audit_failed")


def test_a_near_tie_now_and_then_is_allowed() -> None:
    assert audited(tie_gap_nats=gaps_at(40, 77, 130)) == ("pass", "accepted")


def ties(losses: dict[float, int]) -> list[object]:
    """Return so many of each loss, and none for all other tokens of the audit."""
    told = [loss for loss, count in losses.items() for _ in range(count)]
    return [*told, *[0.0] * (12 * TOKENS - len(told))]


WORST_OF_TIES = ties({0.03: 14, 0.1: 14, 0.17: 14, 0.27: 14})


def test_always_the_worst_of_near_ties_is_refused() -> None:
    floor = ties({0.02: 4})
    assert audited(tie_gap_nats=WORST_OF_TIES, floor_loss_nats=floor) == ("fail", "audit_failed")


@pytest.mark.parametrize(
    ("losses", "floor"),
    [
        (ties({0.01: 6, 0.05: 3}), ties({0.02: 4, 0.04: 2})),
        (ties({0.02: 8}), ties({})),
        (WORST_OF_TIES, WORST_OF_TIES),
        (gaps_at(40, 77, 130), ties({})),
        (ties({}), ties({})),
    ],
    ids=["bfloat16", "few by chance", "as the trusted path", "off now and then", "float32"],
)
def test_choices_that_lose_as_the_trusted_paths_do_pass(
    losses: list[object], floor: list[object]
) -> None:
    assert audited(tie_gap_nats=losses, floor_loss_nats=floor) == ("pass", "accepted")


@pytest.mark.parametrize(("rounds", "said_of_all"), [(1, "pass"), (6, "fail")])
def test_coarse_choices_that_chance_explains_in_one_run_are_refused_in_many(
    rounds: int, said_of_all: str
) -> None:
    coarse = audit_facts(tie_gap_nats=ties({0.05: 4, 0.2: 3}), floor_loss_nats=ties({0.02: 2}))
    loads = [load_facts("candidate", n, audit=coarse) for n in range(rounds)]
    assert said(Audited(), case([*loads, load_facts("baseline", 0)]))[0] == said_of_all


def test_what_was_measured_before_floors_were_is_judged_by_tokens_alone() -> None:
    assert audited(tie_gap_nats=WORST_OF_TIES) == ("pass", "accepted")


@pytest.mark.parametrize("purpose", ["practice", "graded"])
def test_only_practice_tells_how_much_the_choices_lose(purpose: str) -> None:
    changed = audit_facts(tie_gap_nats=WORST_OF_TIES, floor_loss_nats=ties({}))
    loads = [load_facts("candidate", 0, audit=changed), load_facts("baseline", 0)]
    reason = Audited().judge(case(loads, purpose=purpose)).reason
    assert ("nats a token" in reason) is (purpose == "practice")


@pytest.mark.parametrize("taken", [1, 0], ids=["always the best", "never the best"])
def test_draws_that_no_sampler_makes_are_refused(taken: int) -> None:
    assert audited(drawn_best=[taken] * 160) == ("fail", "audit_failed")


def test_a_model_that_is_certain_may_always_say_its_best() -> None:
    certain = audited(drawn_best=[1] * 160, drawn_best_chance=[0.99] * 160)
    assert certain == ("pass", "accepted")


def test_a_sampler_that_cuts_the_unlikely_tail_passes() -> None:
    """As servers do by default: the best token is then some percent likelier."""
    cut = [1] * 78 + [0] * 82
    assert audited(drawn_best=cut, drawn_best_chance=[0.43] * 160) == ("pass", "accepted")


def test_tokens_less_likely_than_drawn_ones_are_refused() -> None:
    assert audited(drawn_noise_nats=[0.5] * 160) == ("fail", "audit_failed")


def test_luck_of_less_than_one_in_a_million_passes() -> None:
    assert audited(drawn_noise_nats=[13.8, *[0.0] * 159]) == ("pass", "accepted")


@pytest.mark.parametrize("left", [{}, {"drawn_best": [], "drawn_best_chance": []}])
def test_draws_that_were_refused_are_refused(left: dict[str, object]) -> None:
    assert audited(drawn_failed=1, **left) == ("fail", "audit_failed")


@pytest.mark.parametrize(
    "changes",
    [
        {"drawn_noise_nats": [0.0] * 161},
        {"responses": 3},
        {"tie_gap_nats": []},
        {"floor_loss_nats": [0.0] * (12 * TOKENS - 1)},
        {"tokens": []},
        {"tokens": [TOKENS] * 11 + [TOKENS - 1]},
        {"drawn_best": [], "drawn_best_chance": []},
        {"drawn_best": [1] * 40},
        {"drawn_best_chance": [1.5] * 160},
    ],
)
def test_what_was_not_measured_has_not_passed(changes: dict[str, object]) -> None:
    assert audited(**changes) == ("inconclusive", "not_measured")


def test_no_audit_at_all_has_not_passed() -> None:
    assert said(Audited(), with_run(audit=None)) == ("inconclusive", "not_measured")


def test_one_run_that_was_not_audited_does_not_hide_another_that_failed() -> None:
    about = with_run(audit=audit_facts(tie_gap_nats=[FAR] * (12 * TOKENS)))
    serve = about.evidence.serve
    assert serve
    loads = [
        each.model_copy(update={"audit": None}) if each.restart else each for each in serve.loads
    ]
    changed = about.evidence.model_copy(
        update={"serve": serve.model_copy(update={"loads": tuple(loads)})}
    )
    assert said(Audited(), about.model_copy(update={"evidence": changed})) == (
        "fail",
        "audit_failed",
    )


@pytest.mark.parametrize(("tokens", "most"), [(12, 0), (384, 7), (6, 0), (10_000, 120)])
def test_how_many_tokens_may_be_off(tokens: int, most: int) -> None:
    assert allowed(tokens, 0.01) == most
