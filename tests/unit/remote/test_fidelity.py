"""Fidelity: answers are read as users read them, and a little is asked beyond the contract."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import pytest
from torch import Tensor

from inferproof_remote.serving.client import Answer, Completion, Request
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.fidelity import Question, examine
from inferproof_remote.serving.prompts import Rules, Windows, make_plan
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.scoring import PathTable, Reading, Transcript, score
from unit.remote.test_audit import END, VOCABULARY, YARDSTICKS, Counting

RULES = Rules(
    tokens=200,
    lengths=(3, 8),
    decode_tokens=8,
    batch=2,
    top_logprobs=5,
    tie_nats=0.3,
    p99_over_floor=3.0,
    max_over_floor=10.0,
    context=1 << 20,
)
CORPUS = "abcdefghijk" * 9
TELLS = Features(id_prompts=True, token_ids=True, ignore_eos=True)


@dataclass(frozen=True)
class Teller:
    """An honest engine, but for what is given in place of its text, its reason and its length."""

    text: str | None = None
    reason: str = ""
    ends_after: int = 99

    def complete(self, request: Request) -> Answer:
        made: list[int] = []
        while len(made) < request.max_tokens:
            ids = [*map(int, request.prompt), *made]
            made.append(int(Counting().logprobs(ids)[-1].argmax()))
            if not request.ignore_eos and (made[-1] == END or len(made) == self.ends_after):
                break
        ended = "length" if len(made) == request.max_tokens else "stop"
        return Completion(
            text=VOCABULARY.decode(made) if self.text is None else self.text,
            finish_reason=self.reason or ended,
            token_ids=tuple(made),
        )

    def complete_together(self, requests: Sequence[Request]) -> list[Answer]:
        return [self.complete(each) for each in requests]

    def complete_amid(self, running: Sequence[Request], late: Request) -> list[Answer]:
        return self.complete_together([*running, late])


def tables(engine: Teller, features: Features = TELLS) -> dict[str, PathTable]:
    question = Question(rules=RULES, corpus=CORPUS, bits=b"bits")
    return {table.path: table for table in examine(engine, features, question, YARDSTICKS).tables}


def test_every_row_of_an_honest_engine_is_read_on_every_path() -> None:
    found = tables(Teller())
    assert set(found) == {"prefix", "decode", "batch", "reuse", "beyond", "mixed", "split"}
    assert all(len(table.position) == table.asked for table in found.values())
    assert all(max(table.tie_gap_nats) == 0 for table in found.values())


@pytest.mark.parametrize("engine", [Teller(text="lorem ipsum"), Teller(reason="tired")])
def test_another_text_than_the_tokens_spell_or_no_true_reason_leaves_no_row(engine: Teller) -> None:
    for path, table in tables(engine).items():
        assert table.unreadable > 0, path
        assert path == "beyond" or not table.position


def test_an_engine_that_ends_where_the_model_goes_on_is_found_out() -> None:
    found = tables(Teller(ends_after=1))
    assert found["beyond"].unreadable > 0
    assert found["decode"].unreadable == 0


class Ending(Teller):
    """An engine that cannot be told to go on."""

    def complete(self, request: Request) -> Answer:
        return super().complete(replace(request, ignore_eos=False))


def test_an_engine_that_cannot_go_on_lacks_no_row_where_the_model_ends() -> None:
    found = tables(Ending(), replace(TELLS, ignore_eos=False))
    assert all(table.unreadable == 0 for table in found.values())
    assert all(len(table.position) == table.asked for table in found.values())


def test_an_engine_that_cannot_go_on_may_not_end_where_the_model_does_not() -> None:
    found = tables(Ending(ends_after=1), replace(TELLS, ignore_eos=False))
    assert found["decode"].unreadable > 0


class Rounded(Counting):
    """A trusted path that rounds so that it prefers the letter after the next."""

    def logprobs(self, ids: Sequence[int]) -> Tensor:
        return super().logprobs([each + 1 for each in ids])


def test_a_token_that_the_trusted_path_prefers_is_as_near_as_the_references() -> None:
    rounded = cast(
        "Yardsticks",
        SimpleNamespace(truth=Counting(), floor=Rounded(), vocabulary=VOCABULARY),
    )
    said = Reading(position=2, listed=None, chosen=True)
    for token, is_near in ((3, True), (4, True), (5, False)):
        table = PathTable("decode")
        one = Transcript(path="decode", number=0, ids=(1, 2, token), readings=(said,))
        score({"decode": table}, [one], rounded)
        assert (table.tie_gap_nats == [0.0]) == is_near


def test_a_little_is_asked_beyond_what_the_contract_names() -> None:
    windows = Windows(CORPUS, VOCABULARY)
    plan = make_plan(b"bits", RULES, windows, scores_prompts=True)
    steps = [step.prompts for step in plan.steps if step.path == "beyond"]
    alone, free, together = sorted(steps, key=len)
    assert len(together) == 2 * RULES.batch
    assert 10 <= len(alone[0].ids) <= 12
    assert 10 <= alone[0].output_tokens <= 12
    assert [each.may_end for each in (*alone, *free)] == [False, True, True, True]


def test_nothing_is_asked_beyond_the_models_context() -> None:
    windows, rules = Windows(CORPUS, VOCABULARY), replace(RULES, context=19)
    for bits in (b"0", b"1", b"2", b"3"):
        steps = make_plan(bits, rules, windows, scores_prompts=True).steps
        beyond = [each for step in steps if step.path == "beyond" for each in step.prompts]
        assert all(len(each.ids) + each.output_tokens <= 19 for each in beyond if not each.may_end)
