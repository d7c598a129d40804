"""Traffic: fresh requests of the asked form, which no table of the corpus answers."""

import json
from itertools import islice
from pathlib import Path

import pytest

import inferproof.demo
from inferproof.core.traffic import Traffic
from inferproof_remote.serving.reference import load_vocabulary
from inferproof_remote.serving.texts import Texts
from inferproof_remote.serving.traffic import WARMUP, Row, Source, length, rows_of
from inferproof_remote.serving.vocabulary import Vocabulary
from inferproof_remote.stream import Stream

MODEL = Path(inferproof.demo.__file__).parent / "model"
CORPUS = Path(__file__).parents[3] / "contracts" / "services" / "completions" / "corpus.txt"
TRACE = (
    (0, 40, [1, 2, 3]),
    (250, 44, [1, 2, 4]),
    (400, 30, [5, 6]),
)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return load_vocabulary(MODEL)


@pytest.fixture(scope="module")
def corpus() -> str:
    return CORPUS.read_text(encoding="utf-8")


def rows(vocabulary: Vocabulary, bits: bytes = b"bits", **shape: object) -> list[Row]:
    given = {"isl": (24, 40), "osl": (8, 12), "requests": 6, "name": "some", **shape}
    traffic = Traffic.model_validate(given)
    lines = (
        {"timestamp": at, "input_length": tokens, "output_length": 9, "hash_ids": ids}
        for at, tokens, ids in TRACE
    )
    source = Source(
        shape=traffic.model_dump(mode="json"),
        corpus=CORPUS.read_text(encoding="utf-8"),
        trace="\n".join(map(json.dumps, lines)),
        bits=bits,
        restart=0,
        vocabulary=vocabulary,
    )
    return rows_of(source)


@pytest.mark.parametrize("content", ["mixed", "prose", "structured", "tokens"])
def test_a_text_has_exactly_the_asked_tokens_whatever_is_drawn(
    vocabulary: Vocabulary, corpus: str, content: str
) -> None:
    texts = Texts(corpus, vocabulary, Stream(b"bits", content))
    for tokens in (2, 3, 8, 33, 257):
        assert len(vocabulary.encode(texts.draw(content, tokens))) == tokens


@pytest.mark.parametrize("content", ["mixed", "prose"])
def test_no_drawn_prompt_is_a_part_of_the_corpus(
    vocabulary: Vocabulary, corpus: str, content: str
) -> None:
    """Whoever knows every window of the corpus, and what follows it, has no prompt of a run."""
    texts = Texts(corpus, vocabulary, Stream(b"bits", "table"))
    drawn = [texts.draw(content, 48) for _ in range(50)]
    assert not any(text in corpus for text in drawn)
    assert not any(text[-160:] in corpus for text in drawn)


def test_no_two_prompts_of_a_run_begin_alike_and_no_two_runs_share_one(
    vocabulary: Vocabulary,
) -> None:
    one, other = (rows(vocabulary, bits, concurrency=2) for bits in (b"one", b"other"))
    assert len({row.text[:24] for row in one}) == len(one)
    assert not {row.text for row in one} & {row.text for row in other}


def test_a_declared_prefix_is_shared_by_all_and_is_new_in_each_run(vocabulary: Vocabulary) -> None:
    one, other = (
        rows(vocabulary, bits, concurrency=2, isl=(40, 48), cache="shared_prefix", shared_tokens=32)
        for bits in (b"one", b"other")
    )
    begin = {row.text[:40] for row in one}
    assert len(begin) == 1
    assert begin != {row.text[:40] for row in other}
    assert len({row.text for row in one}) == len(one)


def test_a_turn_begins_with_all_that_was_said(vocabulary: Vocabulary) -> None:
    found = rows(vocabulary, concurrency=2, turns=3, cache="natural")
    sessions = {row.session: [r.text for r in found if r.session == row.session] for row in found}
    for first, second, third in sessions.values():
        assert third.startswith(second)
        assert second.startswith(first)
        assert len(first) < len(second) < len(third)


def test_bursts_come_together_after_a_warm_up(vocabulary: Vocabulary) -> None:
    found = rows(vocabulary, burst={"requests": 3, "every_s": 2})
    warm = [row for row in found if row.session.startswith(WARMUP)]
    times = [row.at_ms for row in found if row not in warm]
    assert len(set(times[:3])) == len(set(times[3:])) == 1
    assert times[3] == (times[0] or 0) + 2000
    assert len(times) == 6
    assert max(row.at_ms or 0 for row in warm) < (times[0] or 0)


def test_a_trace_is_sent_at_its_times_and_equal_hashes_are_equal_texts(
    vocabulary: Vocabulary,
) -> None:
    trace = {"file": "trace.jsonl", "block_tokens": 16}
    found = rows(vocabulary, requests=3, isl=None, osl=None, trace=trace, cache="natural")
    first, second, third = (row for row in found if not row.session.startswith(WARMUP))
    assert [(row.at_ms or 0) - (first.at_ms or 0) for row in (second, third)] == [250, 400]
    assert [len(vocabulary.encode(row.text)) for row in (first, second, third)] == [40, 44, 30]
    alike = [vocabulary.encode(row.text)[:28] for row in (first, second)]  # two blocks of 16
    assert alike[0] == alike[1]
    assert third.text[:8] != first.text[:8]
    assert {row.output_tokens for row in (first, second, third)} == {9}


@pytest.mark.parametrize(
    ("rule", "least", "greatest"),
    [
        ([5, 9], 5, 9),
        ({"listed": [4, 7]}, 4, 7),
        ({"median": 64, "sigma": 1.0, "least": 8, "greatest": 512}, 8, 512),
    ],
)
def test_lengths_keep_to_their_rule(rule: object, least: int, greatest: int) -> None:
    stream = Stream(b"bits", "lengths")
    drawn = [length(rule, stream) for _ in range(2000)]
    assert least <= min(drawn) <= max(drawn) <= greatest
    if isinstance(rule, dict) and "median" in rule:
        middle = sorted(drawn)[1000]
        assert 55 <= middle <= 75


def test_structured_text_repeats_its_form(vocabulary: Vocabulary, corpus: str) -> None:
    texts = Texts(corpus, vocabulary, Stream(b"bits", "records"))
    lines = texts.draw("structured", 300).splitlines()
    assert len(lines) >= 4
    assert len({tuple(json.loads(line)) for line in islice(lines, len(lines) - 1)}) == 1
