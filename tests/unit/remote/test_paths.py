"""Further paths: a long prompt that comes while others decode, and the same tokens both ways."""

import math
from dataclasses import dataclass, replace

import pytest

from inferproof_remote.serving.client import Answer, Completion, Request, Row
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.fidelity import Question, examine
from inferproof_remote.serving.paths import RUNNING, mixed
from inferproof_remote.serving.prompts import Windows
from inferproof_remote.serving.scoring import between, top
from unit.remote.test_audit import VOCABULARY, YARDSTICKS, Counting
from unit.remote.test_fidelity import CORPUS, RULES, Teller

SURE = {1: math.log(0.9), 2: math.log(0.05)}
LISTS = Features(id_prompts=True, token_ids=True, ignore_eos=True, logprobs=True, listed=5)


def test_two_readings_that_say_the_same_are_not_apart() -> None:
    assert between(SURE, SURE, own=1) == pytest.approx(0)


def test_a_token_that_the_second_reading_does_not_list_counts_as_its_least() -> None:
    other = {3: math.log(0.9), 2: math.log(0.05)}
    assert between(SURE, other, own=1) > 0.8 * math.log(0.9 / 0.05)


def test_the_own_token_does_not_say_how_likely_others_are() -> None:
    shared = {1: math.log(0.9), 2: math.log(0.05), 9: -20.0}
    other = {1: math.log(0.9), 3: math.log(0.04), 9: -20.0}
    assert between(shared, other, own=9) < 0.05


def test_the_long_prompt_comes_last_and_is_of_the_greatest_length() -> None:
    step = mixed(b"bits", RULES, Windows(CORPUS, VOCABULARY), first_number=7)
    assert [each.number for each in step.prompts] == [7, 8, 9]
    assert len(step.prompts) == RUNNING + 1
    assert len(step.prompts[-1].ids) == max(RULES.lengths)
    other = mixed(b"other", RULES, Windows(CORPUS, VOCABULARY), first_number=7)
    assert [each.ids for each in other.prompts] != [each.ids for each in step.prompts]


@dataclass(frozen=True)
class Lister(Teller):
    """An engine that lists what the reference says; `hotter` while it decodes."""

    hotter: float = 1.0

    def complete(self, request: Request) -> Answer:
        answer = super().complete(request)
        assert isinstance(answer, Completion)
        assert answer.token_ids
        ids = [*map(int, request.prompt), *answer.token_ids]
        start = len(request.prompt)
        rows = Counting().logprobs(ids)
        told: list[Row] = []
        for place, token in enumerate(answer.token_ids):
            row = rows[start + place - 1]
            if place and self.hotter != 1.0:
                row = (row / self.hotter).log_softmax(-1)
            told.append(Row(token, float(row[token]), {**top(row, 5)}))
        return replace(answer, rows=tuple(told))


def split_of(engine: Lister) -> list[float]:
    question = Question(rules=RULES, corpus=CORPUS, bits=b"bits")
    found = examine(engine, LISTS, question, YARDSTICKS).tables
    return next(table.kl for table in found if table.path == "split")


def test_decoding_that_differs_from_reading_shows_between_the_two() -> None:
    assert max(split_of(Lister())) < 1e-9
    assert max(split_of(Lister(hotter=1.5))) > 0.01
