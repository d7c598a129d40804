"""From a traffic shape to requests: what each asks, in which conversation, and when it is sent.

Everything follows from the bits, so both arms of a round get the same and no earlier run had it.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from inferproof_remote import job
from inferproof_remote.incidents import BenchError
from inferproof_remote.serving.texts import Texts
from inferproof_remote.serving.vocabulary import Vocabulary
from inferproof_remote.stream import Stream

WARMUP = "warmup"
_JOIN = 8  # tokens that may be more where blocks meet
_SPARE = 2  # the client takes conversations ahead, and starts again from the first at the end
_SETTLE_MS, _APART_MS = 3000.0, 200.0
_TRIES = 100
_BEGINNING = 24  # characters
_WORD = float(1 << 64)
_MS = 1000.0
Shape = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request. Those of a `session` follow each other; `at_ms` is its time in a schedule."""

    session: str
    text: str
    output_tokens: int
    at_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What requests are made from: the shape, the sealed files, and the bits."""

    shape: Shape
    corpus: str
    trace: str
    bits: bytes
    restart: int
    vocabulary: Vocabulary

    def stream(self, what: str) -> Stream:
        """Return draws for one purpose of this run."""
        return Stream(self.bits, f"{what} {self.shape['name']} {self.restart}")

    def texts(self, what: str) -> Texts:
        """Return texts for one purpose of this run."""
        return Texts(self.corpus, self.vocabulary, self.stream(what))

    def count(self, name: str) -> int:
        """Return a whole number of the shape."""
        return int(job.as_number(self.shape[name], name))

    @property
    def content(self) -> str:
        """What kind of text is asked about."""
        return str(self.shape["content"])


def is_scheduled(shape: Shape) -> bool:
    """Whether requests have times of their own."""
    return shape["burst"] is not None or shape["trace"] is not None


def rows_of(source: Source) -> list[Row]:
    """Return the requests of a run, warm-up included."""
    if source.shape["trace"] is not None:
        return [*_warmup(source), *_traced(source)]
    if source.shape["burst"] is not None:
        return [*_warmup(source), *_in_bursts(source)]
    return list(_in_sessions(source))


def length(rule: object, stream: Stream) -> int:
    """Return one length: from a range, a log-normal, or a list."""
    if not isinstance(rule, Mapping):
        return stream.between(*cast("Sequence[int]", rule))
    table = job.as_table(cast("object", rule), "lengths")
    if "listed" in table:
        return stream.choice(cast("Sequence[int]", table["listed"]))
    names = ("median", "sigma", "least", "greatest")
    median, sigma, least, greatest = (job.as_number(table[name], name) for name in names)
    for _ in range(_TRIES):
        drawn = median * math.exp(sigma * _normal(stream))
        if least <= drawn <= greatest:
            return round(drawn)
    return round(median)


def _normal(stream: Stream) -> float:
    """Return a standard normal draw (Box and Muller)."""
    radius = math.sqrt(-2 * math.log((stream.word() + 1) / _WORD))
    return radius * math.cos(2 * math.pi * stream.word() / _WORD)


def _in_sessions(source: Source) -> Iterator[Row]:
    """Yield conversations, as many more as the client takes for its warm-up and ahead."""
    turns = source.count("turns")
    ahead = int(cast("int | None", source.shape["concurrency"]) or 0) + _SPARE
    sessions = source.count("requests") // turns + source.count("warmup_requests") + ahead
    for number, texts in zip(range(sessions), _conversations(source), strict=False):
        for text, output_tokens in texts:
            yield Row(session=f"s{number}", text=text, output_tokens=output_tokens)


def _in_bursts(source: Source) -> Iterator[Row]:
    burst = job.as_table(source.shape["burst"], "burst")
    size, every_s = (job.as_number(burst[name], name) for name in ("requests", "every_s"))
    for number, texts in zip(range(source.count("requests")), _conversations(source), strict=False):
        at_ms = _SETTLE_MS + number // int(size) * every_s * _MS
        for text, output_tokens in texts:
            yield Row(session=f"s{number}", text=text, output_tokens=output_tokens, at_ms=at_ms)


def _conversations(source: Source) -> Iterator[list[tuple[str, int]]]:
    """Yield conversations without end; of each turn the whole text so far, and the output length.

    What a turn adds stands for the reply before it too: what an engine says is never sent back, so
    that both arms are asked the same.
    """
    stream, texts, seen = source.stream("lengths"), source.texts("prompts"), set[str]()
    shared = source.count("shared_tokens")
    prefix = texts.draw(source.content, shared) if shared else ""
    while True:
        text, tokens, turns = prefix, 0, list[tuple[str, int]]()
        for _ in range(source.count("turns")):
            tokens += length(source.shape["isl"], stream)
            text = _fresh(texts, source.content, tokens, text, seen if not text else None)
            turns.append((text, length(source.shape["osl"], stream)))
        yield turns


def _fresh(texts: Texts, content: str, tokens: int, prefix: str, seen: set[str] | None) -> str:
    """Return a text that begins as none before it in the run, unless it has a `prefix`."""
    for _ in range(_TRIES):
        text = texts.draw(content, tokens, prefix)
        if seen is None:
            return text
        if text[:_BEGINNING] not in seen:
            seen.add(text[:_BEGINNING])
            return text
    raise BenchError(f"no text of {tokens} tokens that begins as no other; ask for longer ones")


def _traced(source: Source) -> Iterator[Row]:
    """Yield the requests of the sealed trace, at its times; equal hash ids are equal texts."""
    block = int(job.as_number(_trace(source)["block_tokens"], "block_tokens"))
    lines = [json.loads(line) for line in source.trace.splitlines() if line.strip()]
    filler, blocks = source.texts("filler"), dict[int, str]()
    first_ms = job.as_number(lines[0]["timestamp"], "timestamp")
    for number, line in enumerate(lines[: source.count("requests")]):
        for each in line["hash_ids"]:
            if each not in blocks:
                blocks[each] = source.texts(f"block {each}").draw(source.content, block)
        tokens, hashes = int(line["input_length"]), cast("Sequence[int]", line["hash_ids"])
        prefix = "".join(blocks[each] for each in hashes[: max(0, tokens - _JOIN) // block])
        at_ms = _SETTLE_MS + job.as_number(line["timestamp"], "timestamp") - first_ms
        yield Row(
            session=f"s{number}",
            text=filler.draw(source.content, tokens, prefix),
            output_tokens=int(line["output_length"]),
            at_ms=at_ms,
        )


def _trace(source: Source) -> Mapping[str, object]:
    return job.as_table(source.shape["trace"], "trace")


def _warmup(source: Source) -> Iterator[Row]:
    """Yield requests before the schedule: the client's own warm-up would send its first ones."""
    texts, stream = source.texts(WARMUP), source.stream(f"{WARMUP} lengths")
    isl, osl = source.shape["isl"], source.shape["osl"]
    for number in range(source.count("warmup_requests")):
        yield Row(
            session=f"{WARMUP}-{number}",
            text=texts.draw(source.content, length(isl, stream) if isl is not None else 32),
            output_tokens=length(osl, stream) if osl is not None else 8,
            at_ms=number * _APART_MS,
        )
