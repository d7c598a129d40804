"""A text is read back as tokens: what a right engine may have said is found, nothing else fits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.scoring import near_best, tie_gap_nats
from inferproof_remote.serving.transcribing import (
    MOST_STAND_INS,
    MOST_TOGETHER,
    Reading,
    read_text,
)
from inferproof_remote.serving.vocabulary import Tokenizer, Vocabulary

EURO = "\u20ac"
PIECES = (b"", b"", b"a", b"b", b"ab", b"c", EURO.encode()[:2], EURO.encode()[2:], EURO.encode())
END, START, A, B, AB, C, CUT, CUT_REST, WHOLE = range(len(PIECES))
SHOWN = {END: "<end>", START: "<start>"}
LETTERS = {0xE2: "\u00e2", 0x82: "\u0124", 0xAC: "\u00ac"}  # as byte-level vocabularies spell them
TIE_NATS = 0.3
PROMPT = (B,)


class Pieces:
    """A tokenizer that joins `a` and `b`, with two special tokens and a character in two parts."""

    all_special_ids = [END]
    added_tokens_decoder = {each: SimpleNamespace(special=True) for each in SHOWN}

    def __len__(self) -> int:
        return len(PIECES)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        found: list[int] = []
        for token in (END, START, AB, A, B, C, WHOLE):
            shown = self.decode([token])
            if text.startswith(shown):
                return [token, *self.encode(text[len(shown) :])]
        return found

    def decode(self, token_ids: Sequence[int]) -> str:
        whole = b"".join(SHOWN.get(each, "").encode() or PIECES[each] for each in token_ids)
        return whole.decode("utf-8", "replace")

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        return ["".join(LETTERS.get(byte, chr(byte)) for byte in PIECES[each]) for each in ids]


@dataclass
class Script:
    """A reference that says one sequence, whatever it is given, and `b` where it says nothing else.

    `also` is nearly as likely.
    """

    says: Sequence[int]
    also: dict[int, int] = field(default_factory=dict[int, int])
    passes: int = 0

    def logprobs(self, ids: Sequence[int]) -> Tensor:
        self.passes += 1
        rows = -torch.arange(len(PIECES)).float().repeat(len(ids), 1)
        rows[:, B] = 1.0
        for row, at in zip(rows[len(PROMPT) - 1 :], range(len(self.says) + 1), strict=False):
            if at < len(self.says):
                row[self.says[at]] = 9.0
            if at in self.also:
                row[self.also[at]] = 8.9
        return rows.log_softmax(-1)


VOCABULARY = Vocabulary(cast("Tokenizer", Pieces()))


def read(text: str, script: Script, count: int | None = None) -> Reading:
    yardsticks = cast("Yardsticks", SimpleNamespace(truth=script, vocabulary=VOCABULARY))
    return read_text(text, count, PROMPT, yardsticks, TIE_NATS)


def gaps(ids: Sequence[int], script: Script) -> list[float]:
    rows = script.logprobs((*PROMPT, *ids))
    return [tie_gap_nats(rows[at], token, VOCABULARY.ends) for at, token in enumerate(ids)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("abc", (AB, C)),
        ("abc", (A, B, C)),
        (f"a{EURO}c", (A, WHOLE, C)),
        (f"a{EURO}c", (A, CUT, CUT_REST, C)),
        ("a\ufffdc", (A, CUT, C)),
        ("a<end>c", (A, END, C)),
        ("ac", (A, END, C)),
        ("ac", (A, END, START, C)),
        ("cabcc", (C, END, A, B, START, C, END, C)),
    ],
    ids=repr,
)
def test_what_the_model_says_is_read_whether_or_not_the_text_shows_it(
    text: str, says: tuple[int, ...]
) -> None:
    assert read(text, Script(says)) == Reading(says, "")
    assert read(text, Script(says), len(says)) == Reading(says, "")


@pytest.mark.parametrize(
    ("text", "says"),
    [("a", (A, END)), ("a", (A, END, START)), ("a\ufffd", (A, CUT)), ("a", (A, CUT)), ("", (END,))],
    ids=repr,
)
def test_what_a_text_hides_at_its_end_is_read_as_far_as_the_count_says(
    text: str, says: tuple[int, ...]
) -> None:
    assert read(text, Script(says), len(says)) == Reading(says, "")


def test_a_count_conjures_up_no_token_that_the_model_does_not_say() -> None:
    assert read("ac", Script((A, C, B, B)), 4) == Reading((A, C), "")
    assert read("", Script((A,)), 1) == Reading((), "")


def test_an_engine_that_forbids_ends_fits_without_them() -> None:
    assert read("ab", Script((A, END, C))) == Reading((A, B), "")


def test_a_tie_that_leads_nowhere_is_left_for_the_other() -> None:
    script = Script((AB, B, C), also={0: A})
    assert read("abc", script).ids == (A, B, C)


def test_the_count_decides_where_two_readings_fit() -> None:
    script = Script((A, END, B))
    assert read("ab", script, 2).ids == (A, B)
    assert read("ab", script, 3).ids == (A, END, B)


@pytest.mark.parametrize("count", [None, 2, 3, 9])
def test_a_token_that_the_model_would_not_say_stays_and_does_not_fit(count: int | None) -> None:
    script = Script((A, B, C))
    found = read("acc", script, count)
    assert (found.ids[:2], found.rest) == ((A, C), "")
    assert [gap > TIE_NATS for gap in gaps(found.ids, script)] == [False, True, False]


def test_no_hidden_token_is_assumed_that_the_model_does_not_say() -> None:
    script = Script((A, C, C))
    found = read("abc", script, 5)
    assert not set(found.ids) & {END, START}
    assert max(gaps(found.ids, script)) > TIE_NATS


def test_hidden_tokens_do_not_excuse_a_wrong_one_after_them() -> None:
    script = Script((A, END, C))
    found = read("aa", script)
    assert max(gaps(found.ids, script)) > TIE_NATS


def test_a_model_that_only_says_what_is_hidden_is_not_followed_for_ever() -> None:
    script = Script((END,) * 99)
    assert read("a", script, 99) == Reading((A,), "")
    assert script.passes < 20 * MOST_TOGETHER


def test_a_text_that_is_not_the_models_is_soon_read_no_further() -> None:
    script = Script((A,) * 60)
    assert read("c" * 60, script) == Reading((C,) * MOST_STAND_INS, "c" * (60 - MOST_STAND_INS))
    assert script.passes <= MOST_STAND_INS


def test_a_broken_character_that_fits_nothing_ends_the_reading() -> None:
    assert read("a\ufffdc", Script((A, B, C))) == Reading((A,), "\ufffdc")


def test_one_pass_reads_what_the_tokenizer_splits_as_the_model_does() -> None:
    script = Script((AB, C, AB, C))
    assert read("abcabc", script).ids == (AB, C, AB, C)
    assert script.passes == 1


def test_the_near_best_are_those_within_a_tie() -> None:
    row = torch.tensor([9.0, 0.0, 8.0, 7.9, 7.0]).log_softmax(-1)
    for within in (0.3, 1.05, 3.0):
        near = near_best(row, within, (0,))
        assert set(near) == {t for t in range(5) if tie_gap_nats(row, t, (0,)) <= within}
        assert near[0] == 0
