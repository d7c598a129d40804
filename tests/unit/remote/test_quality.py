"""Both arms on the same windows: who is asked what, and how far apart their answers are."""

from dataclasses import dataclass, replace

import pytest

from inferproof.core.quality import Quality
from inferproof.core.serving_facts import Arm, QualityFacts
from inferproof.gates.quality import compare, unscored
from inferproof_remote.serving.client import Answer, Completion, Request, Row
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.fidelity import Question
from inferproof_remote.serving.quality import Comparison, Sizes
from inferproof_remote.serving.rows import TokenRef
from unit.remote.test_audit import YARDSTICKS
from unit.remote.test_fidelity import CORPUS, RULES, TELLS, Teller
from unit.remote.test_paths import LISTS, Lister

SIZES = Sizes(items=6, tokens=10, decode_tokens=4)
DECLARED = {"candidate": "none", "baseline": "none"}


def compared(
    candidate: Teller, baseline: Teller, *, lists: bool = True, features: Features | None = None
) -> QualityFacts:
    """Return what is measured of two engines."""
    shown = features or (LISTS if lists else TELLS)
    question = Question(rules=RULES, corpus=CORPUS, bits=b"bits")
    comparison = Comparison(question, YARDSTICKS, SIZES)
    engines: dict[Arm, Teller] = {"candidate": candidate, "baseline": baseline}
    for arm, engine in engines.items():
        comparison.add(arm, 0, engine, shown)
    return QualityFacts.model_validate(comparison.facts(DECLARED))


def test_both_arms_get_the_same_windows_and_honest_ones_are_alike() -> None:
    found = compared(Lister(), Lister())
    candidate, baseline = found.arms
    assert candidate.scores == baseline.scores
    assert {table.path for table in candidate.scores} == {"prefix", "decode"}
    assert found.apart
    assert len(set(found.apart.sequence)) == SIZES.items
    assert max(found.apart.kl) < 1e-9
    assert all(each.mean == 0 for each in compare(found, Quality(items=6)))


def test_an_arm_that_decodes_worse_is_worse_by_its_distance() -> None:
    found = compared(Lister(hotter=2.0), Lister())
    kl = next(each for each in compare(found, Quality(items=6)) if each.metric == "KL")
    assert kl.low > 0


def test_arms_without_logprobs_are_compared_by_their_best_tokens_alone() -> None:
    found = compared(Teller(), Teller(), lists=False)
    assert found.apart is None
    assert [each.metric for each in compare(found, Quality(items=6))] == [
        "share of other best tokens"
    ]


def test_other_bits_ask_other_windows() -> None:
    asked: list[list[int]] = []
    for bits in (b"some", b"other"):
        question = Question(rules=RULES, corpus=CORPUS, bits=bits)
        comparison = Comparison(question, YARDSTICKS, SIZES)
        comparison.add("baseline", 0, Lister(), LISTS)
        found = QualityFacts.model_validate(comparison.facts(DECLARED))
        asked.append([at for table in found.arms[0].scores for at in table.position])
    assert asked[0] != asked[1]


@dataclass(frozen=True)
class Ender(Lister):
    """An engine that ends its text where the model does, whatever it is told."""

    def complete(self, request: Request) -> Answer:
        return super().complete(replace(request, ignore_eos=False))


def test_what_a_text_that_ended_does_not_have_is_not_asked() -> None:
    found = compared(Ender(), Ender(), features=replace(LISTS, ignore_eos=False))
    assert unscored(found, "candidate") == 0
    decoded = [table for table in found.arms[0].scores if table.path == "decode"]
    assert 0 < decoded[0].asked < SIZES.items * SIZES.decode_tokens


@dataclass(frozen=True)
class Mumbler(Lister):
    """An engine whose lists name no token that there is, wherever it would be seen to be wrong."""

    def complete(self, request: Request) -> Answer:
        answer = super().complete(request)
        assert isinstance(answer, Completion)
        assert answer.rows
        mute: dict[TokenRef, float] = {f"no such {each}": -float(each) for each in range(1, 6)}
        rows = (Row(row.token, row.logprob, mute) if row.token == 3 else row for row in answer.rows)
        return replace(answer, rows=tuple(rows))


def test_rows_whose_lists_name_no_token_are_asked_and_not_scored() -> None:
    found = compared(Mumbler(), Lister())
    assert unscored(found, "candidate") > 0.05
    assert unscored(found, "baseline") == 0
    kl = next(each for each in compare(found, Quality(items=6)) if each.metric == "KL")
    assert kl.high == pytest.approx(unscored(found, "candidate"))
