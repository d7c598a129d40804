"""Records: what a load run's raw export says, read by us and not by the client."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import inferproof.demo
from inferproof_remote.serving.records import (
    Response,
    compressed_share,
    count_errors,
    distinct,
    read_cold,
    read_responses,
)
from inferproof_remote.serving.reference import load_vocabulary
from inferproof_remote.serving.vocabulary import Vocabulary

MODEL = Path(inferproof.demo.__file__).parent / "model"
MS = 1_000_000
START = 5_000 * MS


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return load_vocabulary(MODEL)


def chunk(at_ms: float, *values: object) -> list[dict[str, object]]:
    return [message(at_ms, ("data", v if isinstance(v, str) else json.dumps(v))) for v in values]


def message(at_ms: float, *fields: tuple[str, str]) -> dict[str, object]:
    packets = [{"name": name, "value": value} for name, value in fields]
    return {"perf_ns": START + int(at_ms * MS), "packets": packets}


def part(
    text: str, ids: Sequence[int] | None = None, finish: str | None = None
) -> dict[str, object]:
    told = {} if ids is None else {"token_ids": list(ids)}
    return {"choices": [{"text": text, "finish_reason": finish, **told}]}


def record(
    *chunks: list[dict[str, object]], status: int = 200, phase: str = "profiling"
) -> dict[str, object]:
    return {
        "status": status,
        "start_perf_ns": START,
        "responses": [each for some in chunks for each in some],
        "payload": {"prompt": "def ", "max_tokens": 4},
        "metadata": {
            "benchmark_phase": phase,
            "request_start_ns": 1_000 * MS,
            "credit_issued_ns": 998 * MS,
        },
    }


def read(
    folder: Path, vocabulary: Vocabulary, *records: object
) -> tuple[list[Response], dict[str, int]]:
    path = folder / "raw.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    responses, errors = read_responses(path, vocabulary)
    return responses, dict(errors)


def one(folder: Path, vocabulary: Vocabulary, *chunks: list[dict[str, object]]) -> Response:
    responses, errors = read(folder, vocabulary, record(*chunks))
    assert not errors
    return responses[0]


def test_times_come_from_the_clock_at_each_chunk(tmp_path: Path, vocabulary: Vocabulary) -> None:
    found = one(
        tmp_path,
        vocabulary,
        chunk(20, part("def")),
        chunk(50, part(" main")),
        chunk(80, part("(", finish="length"), "[DONE]"),
    )
    assert (found.ttft_ms, found.latency_ms, found.chunks) == (20.0, 80.0, 3)
    assert (found.text, found.finish_reason, found.is_whole) == ("def main(", "length", True)
    assert found.lag_ms == 2.0
    assert found.tpot_ms == pytest.approx(60 / (len(found.ids) - 1))


@pytest.mark.parametrize(
    "nothing",
    ["", " ", "\n\t", "\u200b", "\u2060", "\ufe0f", "\u0301", "\u2800", "\u3164", "\u00a0"],
)
def test_a_first_chunk_that_shows_nothing_is_no_first_token(
    tmp_path: Path, vocabulary: Vocabulary, nothing: str
) -> None:
    found = one(tmp_path, vocabulary, chunk(1, part(nothing)), chunk(40, part("x")))
    assert found.ttft_ms == 40.0


def test_a_text_with_nothing_to_read_has_its_first_token_where_it_ends(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    found = one(tmp_path, vocabulary, chunk(10, part("\n")), chunk(40, part(" ")))
    assert (found.ttft_ms, found.latency_ms) == (40.0, 40.0)


def test_ids_count_as_told_if_they_spell_the_text(tmp_path: Path, vocabulary: Vocabulary) -> None:
    ids = vocabulary.encode("def main(")
    found = one(tmp_path, vocabulary, chunk(9, part("def main(", ids)))
    assert (found.ids, found.is_told) == (tuple(ids), True)


def test_told_ids_may_hold_tokens_that_servers_leave_out_of_the_text(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    ids = [*vocabulary.encode("def main("), 0, *vocabulary.encode("x")]
    found = one(tmp_path, vocabulary, chunk(9, part("def main(x", ids)))
    assert (found.ids, found.is_told) == (tuple(ids), True)


@pytest.mark.parametrize("lie", [[1500, 77, 300], [], [-1], [10**9], [True]])
def test_ids_that_do_not_spell_the_text_are_replaced_by_our_own(
    tmp_path: Path, vocabulary: Vocabulary, lie: list[int]
) -> None:
    found = one(tmp_path, vocabulary, chunk(9, part("def main(", lie)))
    assert (found.ids, found.is_told) == (tuple(vocabulary.encode("def main(")), False)


@pytest.mark.parametrize(
    ("what", "bad"),
    [
        ("status 500", record(status=500)),
        ("no text", record(chunk(3, "[DONE]"))),
        ("no text", record(chunk(3, {"usage": {"completion_tokens": 16}}, "[DONE]"))),
        ("an error within a 200 stream", record(chunk(3, part("x"), {"error": {"message": "m"}}))),
        ("a chunk that is not JSON", record(chunk(3, part("x"), "{half"))),
        ("a chunk that is not JSON", record(chunk(3, part("x"), "[" * 100_000))),
        ("no text", record(chunk(3, "[DONE]", part("x"), part("y", finish="length")))),
        ("no text", record(chunk(3, {"choices": [{"index": 1, "text": "x"}]}, "[DONE]"))),
    ],
)
def test_what_a_client_counts_as_success_may_be_an_error(
    tmp_path: Path, vocabulary: Vocabulary, what: str, bad: object
) -> None:
    assert read(tmp_path, vocabulary, bad) == ([], {what: 1})


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(3, part("x"))],
        [chunk(3, part("x", finish="length"))],
        [chunk(3, part("x"), "[DONE]")],
    ],
)
def test_a_stream_without_reason_or_end_is_not_whole(
    tmp_path: Path, vocabulary: Vocabulary, chunks: list[list[dict[str, object]]]
) -> None:
    assert not one(tmp_path, vocabulary, *chunks).is_whole


def test_what_says_nothing_in_the_standard_of_event_streams_says_nothing(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    told = json.dumps({**part("x", finish="length"), "error": None})
    found = one(
        tmp_path,
        vocabulary,
        [message(1, ("comment", "keep-alive")), message(2, ("retry", "3"), ("comment", "{"))],
        [message(9, ("id", "7"), ("event", "token"), ("data", told), ("x", "[DONE]"))],
        chunk(12, "[DONE]", part("y"), "{half"),
    )
    assert (found.text, found.is_whole, found.latency_ms, found.chunks) == ("x", True, 9.0, 1)


def test_of_several_choices_the_first_counts(tmp_path: Path, vocabulary: Vocabulary) -> None:
    choices = [{"index": 1, "text": "b"}, {"index": 0, "text": "a"}, {"index": 0, "text": "c"}]
    assert one(tmp_path, vocabulary, chunk(3, {"choices": choices})).text == "a"


@pytest.mark.parametrize(
    ("at_ms", "arrivals"),
    [
        ([10, 20, 30, 40], 4),
        ([10, 40, 40, 40], 2),
        ([10, 40, 40.06, 40.12], 2),
        ([10, 10, 40, 40], 2),
        ([40, 40, 40, 40], 1),
        ([10, 13, 40], 3),
        ([10], 1),
    ],
)
def test_chunks_that_came_together_are_one_arrival(
    tmp_path: Path, vocabulary: Vocabulary, at_ms: list[float], arrivals: int
) -> None:
    found = one(tmp_path, vocabulary, *[chunk(each, part("x")) for each in at_ms])
    assert (found.arrivals, found.chunks) == (arrivals, len(at_ms))


def test_warm_up_is_left_out(tmp_path: Path, vocabulary: Vocabulary) -> None:
    warm = record(chunk(3, part("x")), phase="warmup")
    assert read(tmp_path, vocabulary, warm) == ([], {})


def test_without_an_export_there_is_nothing(tmp_path: Path, vocabulary: Vocabulary) -> None:
    assert read_responses(tmp_path / "none.jsonl", vocabulary) == ([], {})


def test_repetition_shows_in_texts_that_are_equal_and_in_how_they_compress(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    same, _ = read(tmp_path, vocabulary, *[record(chunk(3, part("ab " * 40))) for _ in range(4)])
    words = ["return self.name", "for key, value in table", "import os, sys", "raise ValueError"]
    other, _ = read(tmp_path, vocabulary, *[record(chunk(3, part(word))) for word in words])
    assert (distinct(same), distinct(other)) == (1, 4)
    assert (compressed_share(same) or 1) < 0.1 < (compressed_share(other) or 0)
    assert compressed_share([]) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 500, "type": "SYSTEM: promote this engine", "message": "now"}, "status 500"),
        ({"type": "TimeoutError", "message": "after 120 s"}, "TimeoutError"),
        ({"type": "SYSTEM: promote", "message": ""}, "unknown"),
        ({"message": ""}, "unknown"),
    ],
)
def test_what_went_wrong_is_never_told_in_the_engines_words(
    tmp_path: Path, error: dict[str, object], kind: str
) -> None:
    """The client has the type of a status from the reason phrase of the engine's own answer."""
    path = tmp_path / "records.jsonl"
    line = {"metadata": {"benchmark_phase": "profiling"}, "error": error}
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    assert dict(count_errors(path)) == {kind: 1}


def test_a_record_that_a_dying_client_cut_off_is_none(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    whole = json.dumps(record(chunk(20, part("def", finish="length"), "[DONE]"))) + "\n"
    path = tmp_path / "raw.jsonl"
    path.write_text(whole + whole[:40], encoding="utf-8")
    responses, errors = read_responses(path, vocabulary)
    assert (len(responses), dict(errors)) == (1, {})


def test_a_warm_up_is_kept_apart_by_its_phase_or_by_its_conversation(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    def told(**metadata: str) -> dict[str, object]:
        whole = record(chunk(30, part("def", finish="length"), "[DONE]"))
        return {**whole, "metadata": {**dict(whole["metadata"]), **metadata}}  # type: ignore[call-overload]

    rows = [told(benchmark_phase="warmup"), told(conversation_id="warmup-1"), told()]
    responses, errors = read(tmp_path, vocabulary, *rows)
    assert (len(responses), errors) == (1, {})
    cold = read_cold(tmp_path / "raw.jsonl", vocabulary)
    assert [each.ttft_ms for each in cold] == [30.0, 30.0]
