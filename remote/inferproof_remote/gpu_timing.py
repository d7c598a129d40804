"""Rounds of chained timing: candidate and baselines by turns, with a cold and with a warm cache."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, Protocol, TypeAlias, cast

from inferproof_remote.gpu_chain import NOT_WATCHED, Kind
from inferproof_remote.job import as_number, as_table
from inferproof_remote.stream import Stream

Json: TypeAlias = dict[str, object]
Cache: TypeAlias = Literal["warm", "cold"]
CACHES: tuple[Cache, ...] = ("warm", "cold")
LONGEST = 1000
_PROBE_LINKS = 8
_TARGET_S = 6e-3
_LEAST_LINKS = 12
_SHARE_OF_SHORT = 4
_WRITES_MEASURED = 5


class Asks(Protocol):
    """A process that times chains."""

    def ask(self, request: Mapping[str, object], timeout_s: float) -> Mapping[str, object]:
        """Return the answer to a request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One replay to be made. `watched` is the link whose outputs are kept."""

    kind: Kind
    links: int
    key: int
    salt: int
    watched: int | None = None

    def to_json(self, *, cold: bool) -> Json:
        """Return the row of a request."""
        return {
            "of": [self.kind, self.links, cold],
            "key": self.key,
            "salt": self.salt,
            "watched": NOT_WATCHED if self.watched is None else self.watched,
            "keep": self.watched is not None and self.kind == "real",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocked:
    """The two replays of one kind, as seconds a link by the device's and the host's clock."""

    event_s: float
    host_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round says of an arm: seconds a call, of nothing at all, and by the host's clock."""

    call_s: float
    nothing_s: float
    call_by_host_s: float
    null_link_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The link that was kept: what its inputs follow from, and the request's whole answer."""

    link: int
    replay: Replay
    answer: Mapping[str, object]


_NOTHING = Clocked(event_s=0.0, host_s=0.0)


class ArmTimer:
    """Times one arm on one shape with one state of the cache."""

    def __init__(
        self, process: Asks, chain_id: str, cache: Cache, *, stream: Stream, limit_s: float
    ) -> None:
        self._process = process
        self._id = chain_id
        self._cold = cache == "cold"
        self._stream = stream
        self._limit_s = limit_s
        self.links = (_PROBE_LINKS, _PROBE_LINKS)
        self.links = self._fit()
        self._write = self._measure_writes()

    @property
    def write_s(self) -> Clocked:
        """What the null chain writes in the kernel's place, in seconds a link."""
        return self._write

    def time(self, *, again: bool) -> Round:
        """Return one round; `again` also times the null chain a second time."""
        return self._round(self._replays(again=again, watched=None), {})[0]

    def time_watched(self, offsets: Mapping[str, int]) -> tuple[Round, Watched]:
        """Return one round in which one link, drawn now, is kept for a check."""
        link = self._stream.between(1, self.links[1])
        replays = self._replays(again=True, watched=link)
        measured, answer = self._round(replays, offsets)
        kept = next(each for each in replays if each.kind == "real" and each.watched is not None)
        return measured, Watched(link=link, replay=kept, answer=answer)

    def guards(self) -> Mapping[str, object]:
        """Return the guard zones that were written to."""
        return as_table(self._ask([], {}, guards=True)["guards"], "guards")

    def _round(
        self, replays: Sequence[Replay], offsets: Mapping[str, int]
    ) -> tuple[Round, Mapping[str, object]]:
        answer = self._ask(replays, offsets)
        taken = _timings(answer)
        real, null = self._slope(replays, taken, "real", 0), self._slope(replays, taken, "null", 0)
        nothing = self._slope(replays, taken, "null", 1) if _count(replays, "null") > 2 else null
        return (
            Round(
                call_s=real.event_s - null.event_s + self._write.event_s,
                nothing_s=nothing.event_s - null.event_s,
                call_by_host_s=real.host_s - null.host_s + self._write.host_s,
                null_link_s=null.event_s,
            ),
            answer,
        )

    def _replays(self, *, again: bool, watched: int | None) -> list[Replay]:
        kinds: list[Kind] = ["real", "null", *(("null",) if again else ())]
        rows = [
            self._replay(kind, links, watched if links == self.links[1] else None)
            for kind in kinds
            for links in self.links
        ]
        return self._stream.shuffled(rows)

    def _replay(self, kind: Kind, links: int, watched: int | None) -> Replay:
        key, salt = self._stream.word(), self._stream.word()
        return Replay(kind=kind, links=links, key=key, salt=salt, watched=watched)

    def _fit(self) -> tuple[int, int]:
        """Return two numbers of links that take long enough together, and not too long."""
        rows = [self._replay("real", _PROBE_LINKS, None) for _ in range(3)]
        link_s = min(each.event_s for each in _timings(self._ask(rows, {}))) / _PROBE_LINKS
        many = max(_LEAST_LINKS, min(LONGEST, int(_TARGET_S / max(link_s, 1e-9))))
        many -= self._stream.below(1 + many // 16)
        return max(2, many // _SHARE_OF_SHORT), many

    def _measure_writes(self) -> Clocked:
        kinds: list[Kind] = ["write", *(("flush",) if self._cold else ())]
        found: list[Clocked] = []
        for _ in range(_WRITES_MEASURED):
            rows = [self._replay(kind, links, None) for kind in kinds for links in self.links]
            taken = _timings(self._ask(rows, {}))
            write = self._slope(rows, taken, "write", 0)
            flush = self._slope(rows, taken, "flush", 0) if self._cold else _NOTHING
            found.append(
                Clocked(event_s=write.event_s - flush.event_s, host_s=write.host_s - flush.host_s)
            )
        return Clocked(
            event_s=median(each.event_s for each in found),
            host_s=median(each.host_s for each in found),
        )

    def _slope(
        self, replays: Sequence[Replay], taken: Sequence[Clocked], kind: Kind, number: int
    ) -> Clocked:
        """Return seconds a link from the `number`-th short and long replay of a kind."""
        short, long = (
            [t for r, t in zip(replays, taken, strict=True) if (r.kind, r.links) == (kind, links)]
            for links in self.links
        )
        more = self.links[1] - self.links[0]
        return Clocked(
            event_s=(long[number].event_s - short[number].event_s) / more,
            host_s=(long[number].host_s - short[number].host_s) / more,
        )

    def _ask(
        self, replays: Sequence[Replay], offsets: Mapping[str, int], *, guards: bool = False
    ) -> Mapping[str, object]:
        """Have replays made, after one that does not count: what ran before was another process."""
        first = [self._replay("null", self.links[1], None)] if replays else []
        request: Json = {
            "do": "time",
            "id": self._id,
            "replays": [each.to_json(cold=self._cold) for each in (*first, *replays)],
            "offsets": dict(offsets),
            "guards": guards,
        }
        return self._process.ask(request, self._limit_s)


def _timings(answer: Mapping[str, object]) -> list[Clocked]:
    """Return what each replay took, but for the first."""
    rows = [as_table(each, "timing") for each in cast("list[object]", answer["replays"])[1:]]
    return [
        Clocked(
            event_s=as_number(row["event_s"], "event_s"), host_s=as_number(row["host_s"], "host_s")
        )
        for row in rows
    ]


def _count(replays: Sequence[Replay], kind: Kind) -> int:
    return sum(each.kind == kind for each in replays)
