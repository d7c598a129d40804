"""One reading of ids as text: what servers do to a text, and what an engine never said."""

from pathlib import Path

import pytest

import inferproof.demo
from inferproof_remote.serving.reference import load_vocabulary
from inferproof_remote.serving.spelling import spells, told_ids
from inferproof_remote.serving.vocabulary import Vocabulary
from unit.remote.test_audit import END, VOCABULARY

MODEL = Path(inferproof.demo.__file__).parent / "model"


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return load_vocabulary(MODEL)


@pytest.mark.parametrize("text", ["bcd<end>a", "bcda", " bc da", "bcda\ufffd"])
def test_what_servers_do_to_a_text_is_what_its_tokens_spell(text: str) -> None:
    assert spells((2, 3, 4, END, 1), text, VOCABULARY)


@pytest.mark.parametrize("text", ["", "bcd", "bcdab", "bcdb", "lorem ipsum"])
def test_other_texts_are_not(text: str) -> None:
    assert not spells((2, 3, 4, END, 1), text, VOCABULARY)


def test_where_not_all_tokens_are_told_a_text_may_go_on() -> None:
    assert spells((2, 3), "bcda", VOCABULARY, is_all=False)
    assert not spells((2, 4), "bcda", VOCABULARY, is_all=False)


@pytest.mark.parametrize(
    "shown", ["def main ( ) : x", "def main() : x", " def main ( ) : x\n", "def main ( ) : x "]
)
def test_blanks_that_servers_add_or_tidy_away_are_told_truly(
    vocabulary: Vocabulary, shown: str
) -> None:
    ids = vocabulary.encode(" def main ( ) : x")
    assert told_ids(ids, shown, vocabulary) == tuple(ids)


def test_blanks_that_tokens_spell_within_a_text_must_be_said(vocabulary: Vocabulary) -> None:
    ids = vocabulary.encode("def main\n\n\n\n    return x")
    assert told_ids(ids, "def main return x", vocabulary) is None
    assert told_ids(ids, "def main\n\n\n\n    return x", vocabulary) == tuple(ids)


def test_a_character_that_is_not_whole_yet_may_be_held_back(vocabulary: Vocabulary) -> None:
    half = vocabulary.encode("x \U0001f98a")[:-1]
    assert told_ids(half, "x ", vocabulary) == told_ids(half, "x", vocabulary) == tuple(half)
    assert told_ids([*half, *vocabulary.encode("yz")], "x ", vocabulary) is None


@pytest.mark.parametrize("lie", [[], [-1], [10**9], [True], ["def"], None])
def test_what_is_no_list_of_the_vocabularys_ids_tells_nothing(
    vocabulary: Vocabulary, lie: list[object] | None
) -> None:
    assert told_ids(lie, "def", vocabulary) is None
