"""What a load run's raw export holds: one row a request, read by us and not by the client.

Times are from the client's clock at each arriving chunk; a text with nothing to read has its first
token where it ends. Chunks that came much closer together than the response's own pace are one
arrival. Lengths are ours: an engine's token ids count only if they spell its text, else the text is
tokenised again.
"""

import json
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import cast

from inferproof_remote.serving.spelling import told_ids
from inferproof_remote.serving.sse import BadEvent, Field, Part, read_part
from inferproof_remote.serving.traffic import WARMUP
from inferproof_remote.serving.vocabulary import Vocabulary

_MS = 1e6
_TOGETHER = 0.1  # of the mean time between chunks: closer ones were sent, or read, together
_CLASS_NAME = re.compile(r"[A-Za-z]{1,60}")
_NO_GLYPH = frozenset("CMZ")  # Unicode: controls and formats, marks, separators
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and symbols drawn as nothing
Json = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One completed request of the measured phase.

    `ids` are the engine's own where `is_told`; else the text, tokenised by us: tokens that servers
    leave out of the text are missing there.
    """

    prompt: str
    text: str
    ids: tuple[int, ...]
    is_told: bool
    osl_asked: int
    ttft_ms: float
    latency_ms: float
    chunks: int
    arrivals: int
    finish_reason: str
    is_whole: bool
    lag_ms: float
    began_ns: int
    ended_ns: int

    @property
    def tpot_ms(self) -> float:
        """Time per output token after the first, in ms."""
        return (self.latency_ms - self.ttft_ms) / max(1, len(self.ids) - 1)


@dataclass(slots=True)
class _Arrived:
    """What has been put together of one stream; `times_ns` has one time for each chunk."""

    text: str = ""
    ids: list[object] | None = None
    first_ns: int = 0
    times_ns: list[int] = field(default_factory=list[int])
    finish_reason: str = ""
    is_done: bool = False
    error: str = ""

    @property
    def last_ns(self) -> int:
        """When the last chunk came."""
        return self.times_ns[-1] if self.times_ns else 0

    @property
    def arrivals(self) -> int:
        """How many times something came, chunks that came together taken as one."""
        gaps_ns = [later - earlier for earlier, later in pairwise(self.times_ns)]
        least_ns = _TOGETHER * sum(gaps_ns) / max(1, len(gaps_ns))
        return 1 + sum(gap_ns > least_ns for gap_ns in gaps_ns)


def read_responses(export: Path, vocabulary: Vocabulary) -> tuple[list[Response], Counter[str]]:
    """Return the measured phase's responses and what went wrong with the others, by kind."""
    responses: list[Response] = []
    errors: Counter[str] = Counter()
    for record in _measured(export):
        found = _response(record, vocabulary)
        if isinstance(found, Response):
            responses.append(found)
        else:
            errors[found] += 1
    return responses, errors


def read_cold(export: Path, vocabulary: Vocabulary) -> list[Response]:
    """Return the responses of the warm-up, whose times are no part of the others'."""
    found = (_response(each, vocabulary) for each in _records(export) if not _is_measured(each))
    return [each for each in found if isinstance(each, Response)]


def count_errors(records: Path) -> Counter[str]:
    """Return the errors of the measured phase where there is no raw export, by kind."""
    return Counter(
        _kind(_table(record["error"])) for record in _measured(records) if record.get("error")
    )


def is_measured(line: str | bytes) -> bool:
    """Whether a line of AIPerf's records is of a request of the measured phase."""
    return _is_measured(_table(json.loads(line)))


def _kind(error: Json) -> str:
    """Return what went wrong; beside a status the client has the engine's words, never here."""
    if error.get("code"):
        return f"status {error['code']}"
    kind = str(error.get("type") or "unknown")
    return kind if _CLASS_NAME.fullmatch(kind) else "unknown"


def distinct(responses: Sequence[Response]) -> int:
    """Return how many different texts there are."""
    return len({each.text for each in responses})


def compressed_share(responses: Sequence[Response]) -> float | None:
    """Return the size of all texts zlib-compressed, as a share; None without text."""
    whole = "\n".join(each.text for each in responses).encode()
    return len(zlib.compress(whole, 9)) / len(whole) if whole else None


def _measured(export: Path) -> Iterator[Json]:
    return filter(_is_measured, _records(export))


def _records(export: Path) -> Iterator[Json]:
    if not export.is_file():
        return
    with export.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n"):
                return  # the client was ended while it wrote
            yield _table(json.loads(line))


def _is_measured(record: Json) -> bool:
    """Whether a request counts; a schedule's warm-up is known by its conversations' names."""
    metadata = _table(record["metadata"])
    session = str(metadata.get("conversation_id") or "")
    return metadata.get("benchmark_phase") == "profiling" and not session.startswith(WARMUP)


def _response(record: Json, vocabulary: Vocabulary) -> Response | str:
    """Return the response, or in a word what is wrong with it."""
    if record.get("status") != 200:
        return f"status {record.get('status')}"
    arrived = _joined(_list(record.get("responses")))
    if arrived.error:
        return arrived.error
    if not arrived.text:
        return "no text"
    told = told_ids(arrived.ids, arrived.text, vocabulary)
    metadata, payload = _table(record["metadata"]), _table(record["payload"])
    start_ns = cast("int", record["start_perf_ns"])
    began = cast("int", metadata["request_start_ns"])
    return Response(
        prompt=str(payload["prompt"]),
        text=arrived.text,
        ids=told or tuple(vocabulary.encode(arrived.text)),
        is_told=told is not None,
        osl_asked=cast("int", payload["max_tokens"]),
        ttft_ms=((arrived.first_ns or arrived.last_ns) - start_ns) / _MS,
        latency_ms=(arrived.last_ns - start_ns) / _MS,
        chunks=len(arrived.times_ns),
        arrivals=arrived.arrivals,
        finish_reason=arrived.finish_reason or "none",
        is_whole=arrived.is_done and bool(arrived.finish_reason),
        lag_ms=(began - cast("int", metadata["credit_issued_ns"])) / _MS,
        began_ns=start_ns,
        ended_ns=arrived.last_ns,
    )


def _joined(messages: Iterable[object]) -> _Arrived:
    """Return the stream whose events AIPerf has kept as messages of packets, one a field."""
    arrived = _Arrived()
    for message in map(_table, messages):
        try:
            part = read_part(map(_field, _list(message.get("packets"))))
        except BadEvent as error:
            arrived.error = str(error)
            return arrived
        if part.is_done:
            arrived.is_done = True
            return arrived
        _add(arrived, part, cast("int", message["perf_ns"]))
    return arrived


def _field(packet: object) -> Field:
    told = _table(packet)
    return str(told.get("name")), str(told.get("value") or "")


def _add(arrived: _Arrived, part: Part, at_ns: int) -> None:
    arrived.finish_reason = part.finish_reason or arrived.finish_reason
    if part.ids is not None:
        arrived.ids = [*(arrived.ids or []), *part.ids]
    if part.text or part.ids:
        arrived.text += part.text
        arrived.times_ns.append(at_ns)
        if not arrived.first_ns and _is_visible(arrived.text):
            arrived.first_ns = at_ns


def _is_visible(text: str) -> bool:
    """Whether there is anything to read: neither space alone nor characters without a glyph."""
    return any(
        unicodedata.category(each)[0] not in _NO_GLYPH and each not in _BLANK for each in text
    )


def _table(raw: object) -> Json:
    return cast("Json", raw) if isinstance(raw, dict) else {}


def _list(raw: object) -> list[object]:
    return cast("list[object]", raw) if isinstance(raw, list) else []
