"""Audit: a run's responses and a few draws, read by a reference whose answers are known."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from inferproof_remote.serving.audit import audit, completed, draws, noise_nats
from inferproof_remote.serving.client import BadAnswer, Client, Completion, Request
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.fidelity import Question
from inferproof_remote.serving.prompts import Rules
from inferproof_remote.serving.records import Response
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.vocabulary import Tokenizer, Vocabulary
from inferproof_remote.stream import Stream

END, SIZE = 0, 12
RULES = {"responses": 2, "tie_nats": 0.3}


class Letters:
    """A tokenizer of single letters; token 0 ends a text and is not shown."""

    all_special_ids = [END]
    added_tokens_decoder = {END: SimpleNamespace(special=True)}

    def __len__(self) -> int:
        return SIZE

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [ord(each) - ord("a") + 1 for each in text]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join("<end>" if each == END else chr(ord("a") + each - 1) for each in token_ids)

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        return [self.decode([each]) for each in ids]


class Counting:
    """A reference that expects the next letter, and an end of text after every `d`."""

    def logprobs(self, ids: Sequence[int]) -> Tensor:
        rows = torch.zeros(len(ids), SIZE)
        for at, token in enumerate(ids):
            rows[at, token % (SIZE - 1) + 1] = 4.0
            if token == 4:
                rows[at, END] = 8.0
        return rows.log_softmax(-1)

    def many(self, sequences: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        yield from map(self.logprobs, sequences)

    def shaken(self, ids: Sequence[int]) -> Iterator[Tensor]:
        yield self.logprobs(ids)[-1]


VOCABULARY = Vocabulary(cast("Tokenizer", Letters()))
YARDSTICKS = cast(
    "Yardsticks", SimpleNamespace(truth=Counting(), floor=Counting(), vocabulary=VOCABULARY)
)
HONEST = Response(
    prompt="a",
    text="bcd",
    ids=(2, 3, 4),
    is_told=True,
    osl_asked=3,
    ttft_ms=1.0,
    latency_ms=3.0,
    chunks=3,
    arrivals=3,
    finish_reason="length",
    is_whole=True,
    lag_ms=0.0,
    began_ns=0,
    ended_ns=1,
)


def gaps(*responses: Response) -> tuple[list[int], list[float]]:
    read = [completed(each, YARDSTICKS, RULES) for each in responses]
    facts = audit(read, YARDSTICKS, RULES, Stream(b"bits", "audit"))
    assert facts["responses"] == len(responses)
    return cast("list[int]", facts["tokens"]), cast("list[float]", facts["tie_gap_nats"])


def test_the_models_own_tokens_have_no_gap() -> None:
    assert gaps(HONEST, HONEST) == ([3, 3], [0.0] * 6)


def test_a_token_that_the_model_would_not_say_has_one() -> None:
    tokens, found = gaps(replace(HONEST, text="bfg", ids=(2, 6, 7)))
    assert (tokens, [gap > 3 for gap in found]) == ([3], [False, True, False])


class Stuck(Counting):
    """A trusted path that rounds so much that it always takes an `a`."""

    def logprobs(self, ids: Sequence[int]) -> Tensor:
        return torch.eye(SIZE)[1].expand(len(ids), SIZE).log_softmax(-1)


def test_the_trusted_paths_own_choices_are_read_at_the_same_places() -> None:
    rounded = cast(
        "Yardsticks", SimpleNamespace(truth=Counting(), floor=Stuck(), vocabulary=VOCABULARY)
    )
    exact, coarse = (
        audit([HONEST], each, RULES, Stream(b"bits", "audit"))["floor_loss_nats"]
        for each in (YARDSTICKS, rounded)
    )
    assert exact == [0.0] * 3
    assert coarse == pytest.approx([4.0] * 3)


def test_told_ids_are_read_as_told() -> None:
    assert gaps(replace(HONEST, text="bcdb", ids=(2, 3, 4, END, 1)))[1][:4] == [0.0] * 4


def test_where_the_text_hides_a_token_the_models_own_is_put_in() -> None:
    """After `d` the model ends the text and begins anew; a server's text shows `d` then `a`."""
    tokens, found = gaps(replace(HONEST, text="bcdabc", ids=(2, 3, 4, 1, 2, 3), is_told=False))
    assert (tokens, found) == ([7], [0.0] * 7)


def test_hidden_tokens_are_put_in_only_where_something_does_not_fit() -> None:
    tokens, found = gaps(replace(HONEST, text="bccc", ids=(2, 3, 3, 3), is_told=False))
    assert (tokens, [gap > 3 for gap in found]) == ([4], [False, False, True, True])


def test_a_text_may_hide_many_tokens() -> None:
    text = "bcd" + "abcd" * 5
    ids = tuple(VOCABULARY.encode(text))
    tokens, found = gaps(replace(HONEST, text=text, ids=ids, is_told=False))
    assert (tokens, found) == ([len(ids) + 5], [0.0] * (len(ids) + 5))


@dataclass(frozen=True)
class Streams:
    """An engine that always says the same."""

    text: str | None
    ids: tuple[int, ...] | None = None

    def stream(self, request: Request) -> Completion | BadAnswer:
        assert request.temperature == 1.0
        return (
            BadAnswer("no")
            if self.text is None
            else Completion(text=self.text, finish_reason="", token_ids=self.ids)
        )


def drawn(
    text: str | None, ids: tuple[int, ...] | None = None, features: Features | None = None
) -> dict[str, object]:
    rules = Rules(
        tokens=200,
        lengths=(3, 4),
        decode_tokens=8,
        batch=2,
        top_logprobs=5,
        tie_nats=0.3,
        p99_over_floor=3.0,
        max_over_floor=10.0,
        context=4096,
    )
    question = Question(rules=rules, corpus="abcdefghijk" * 9, bits=b"bits")
    engine = cast("Client", Streams(text, ids))
    return draws(engine, features or Features(), question, YARDSTICKS, "draws")


def columns(facts: dict[str, object]) -> tuple[list[int], list[float]]:
    return cast("list[int]", facts["drawn_best"]), cast("list[float]", facts["drawn_best_chance"])


def test_draws_tell_which_tokens_were_the_best_and_how_likely_that_was() -> None:
    best, chance = columns(drawn("abcba"))
    assert best[1:5] == [1, 1, 0, 0]
    assert len(best) == len(chance) == 4 * 5
    assert chance == pytest.approx([chance[0]] * len(chance))
    assert 0.8 < chance[0] < 1


def test_an_engine_that_does_not_answer_leaves_no_draws_and_each_has_failed() -> None:
    facts = drawn(None)
    assert columns(facts) == ([], [])
    assert facts["drawn_failed"] == 4


def test_an_answer_without_text_has_failed() -> None:
    assert drawn("")["drawn_failed"] == 4


def test_told_tokens_fewer_than_asked_have_failed_where_texts_do_not_end() -> None:
    runs_on = Features(ignore_eos=True)
    assert drawn("bcd", (2, 3, 4), runs_on)["drawn_failed"] == 4
    assert drawn("b" * 40, (2,) * 40, runs_on)["drawn_failed"] == 0
    assert drawn("bcd", (2, 3, 4))["drawn_failed"] == 0


def test_only_told_tokens_are_tested_for_noise() -> None:
    assert drawn("bcd")["drawn_noise_nats"] == []
    assert len(cast("list[float]", drawn("bcd", (2, 3, 4))["drawn_noise_nats"])) == 4 * 3


def test_a_drawn_token_is_no_noise_on_average_whatever_the_row_is() -> None:
    rows = torch.stack([torch.linspace(0, 9, SIZE), torch.zeros(SIZE)]).log_softmax(-1)
    for row in rows:
        visible = row[1:].log_softmax(-1).exp()
        ratios = [noise_nats(row[None], [each], [END])[0] for each in range(1, SIZE)]
        mean = sum(float(p) * math.exp(nats) for p, nats in zip(visible, ratios, strict=True))
        assert mean == pytest.approx(1, rel=1e-5)


def test_an_unlikely_token_speaks_for_noise_and_an_end_for_nothing() -> None:
    row = torch.linspace(0, 20, SIZE).log_softmax(-1)[None]
    assert noise_nats(row, [1], [END])[0] > 3
    assert noise_nats(row, [SIZE - 1], [END])[0] < 0
    assert noise_nats(row, [END], [END]) == []
