"""Default, tuned baseline and candidate side by side: what search found, and who is beyond it."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from inferproof.core.evidence import Evidence
from inferproof.core.sealed import SealedContract
from inferproof.core.service import Metric, ServiceContract
from inferproof.core.serving_facts import ServeFacts
from inferproof.core.values import Digest, Entry, Purpose, Value
from inferproof.gates.ratios import HIGHER_IS_BETTER, Ratio, ratio_of
from inferproof.search.judging import Gain
from inferproof.search.standing import Standing
from inferproof.search.words import settings_of

_SHOWN: Mapping[Metric, str] = {
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "latency_ms": "latency",
    "output_tokens_per_s": "throughput",
    "requests_per_s": "requests",
}
_UNITS = {"output_tokens_per_s": "tokens/s", "requests_per_s": "requests/s"}


class Over(Value):
    """How much better something is than the contract's own options, with its 95 % interval."""

    ratio: float
    low: float
    high: float


class Side(Value):
    """One metric on one traffic shape. What is None was not measured there."""

    shape: str
    unit: str
    default: float | None
    tuned: float | None
    candidate: float | None
    tuned_over: Over | None
    candidate_over: Over | None


class Searched(Value):
    """The search of one contract, and the newest candidate's run beside what it found.

    `search_seq` and `run_seq` are the ledger entries that the figures come from.
    """

    contract: str
    settings: str
    tried: int
    invalid: tuple[str, ...]
    candidate: str
    search_seq: int
    run_seq: int | None
    sides: tuple[Side, ...]

    @property
    def most(self) -> float:
        """The greatest ratio of all sides."""
        overs = [each for side in self.sides for each in (side.tuned_over, side.candidate_over)]
        return max([each.high for each in overs if each is not None] + [2.0])


def searched(
    entries: Sequence[Entry],
    contracts: Mapping[str, SealedContract],
    standing_of: Callable[[SealedContract], Standing],
    evidence_of: Callable[[Digest], Evidence],
) -> tuple[Searched, ...]:
    """Return one comparison for each contract whose search is done."""
    found: list[Searched] = []
    for name, sealed in contracts.items():
        rule = sealed.contract
        if isinstance(rule, ServiceContract) and rule.search is not None:
            standing = standing_of(sealed)
            if standing.phase == "done" and standing.evidence is not None:
                run = _newest_run(entries, name, evidence_of)
                found.append(_searched(standing, _seq_of(entries, standing.evidence), run))
    return tuple(found)


def _searched(
    standing: Standing, search_seq: int, run: tuple[int, str, ServeFacts] | None
) -> Searched:
    tuned = standing.tuned
    return Searched(
        contract=standing.contract,
        settings=settings_of(tuned) if tuned else "the contract's own options: none is better",
        tried=standing.counted,
        invalid=tuple(
            f"{settings_of(each)}: {each.fault.code.value}"
            for each in standing.invalid
            if each.fault is not None
        ),
        candidate=run[1] if run else "",
        search_seq=search_seq,
        run_seq=run[0] if run else None,
        sides=tuple(
            _sides((*tuned.gains, *tuned.others) if tuned else (), run[2] if run else None)
        ),
    )


def _sides(gains: Sequence[Gain], run: ServeFacts | None) -> Iterator[Side]:
    """Yield the metrics of the search, then those that the candidate alone was measured on."""
    for gain in gains:
        yield _side(gain.traffic, gain.metric, gain, _ratio(run, gain.traffic, gain.metric))
    by_shape = {(gain.traffic, gain.metric) for gain in gains}
    for traffic in dict.fromkeys(load.traffic for load in run.loads) if run else ():
        for metric in _SHOWN:
            ratio = _ratio(run, traffic, metric)
            if ratio is not None and (traffic, metric) not in by_shape:
                yield _side(traffic, metric, None, ratio)


def _ratio(run: ServeFacts | None, traffic: str, metric: Metric) -> Ratio | None:
    found = None if run is None else ratio_of(run, traffic, metric)
    return found if found is not None and found.value > 0 else None


def _side(traffic: str, metric: Metric, gain: Gain | None, ratio: Ratio | None) -> Side:
    """Return one line; the run's own baseline is the tuned one, as it was in that run."""
    tuned_over = Over(ratio=gain.value, low=gain.low, high=gain.high) if gain else None
    candidate_over = None
    if gain is not None and ratio is not None and ratio.restarts > 1:
        candidate_over = Over(
            ratio=gain.value * ratio.value, low=gain.low * ratio.low, high=gain.high * ratio.high
        )
    better = "higher is better" if metric in HIGHER_IS_BETTER else "lower is better"
    return Side(
        shape=f"{_SHOWN[metric]} on {traffic}",
        unit=f"{_UNITS.get(metric, 'ms')}, {better}",
        default=gain.default if gain else None,
        tuned=ratio.baseline if ratio else (gain.figure if gain else None),
        candidate=ratio.candidate if ratio else None,
        tuned_over=tuned_over,
        candidate_over=candidate_over,
    )


def _newest_run(
    entries: Sequence[Entry], contract: str, evidence_of: Callable[[Digest], Evidence]
) -> tuple[int, str, ServeFacts] | None:
    """Return the newest run under load against a tuned baseline; a graded one before others."""
    attempts = {e.body["job_id"]: e for e in entries if e.body["kind"] == "attempt"}
    found: tuple[int, str, ServeFacts] | None = None
    is_graded = False
    for entry in (e for e in entries if e.body["kind"] == "outcome" and e.body.get("verdicts")):
        attempt = attempts[entry.body["job_id"]]
        if attempt.body["contract"] != contract:
            continue
        evidence = evidence_of(str(entry.body["evidence"]))
        serve, graded = evidence.serve, evidence.purpose is Purpose.GRADED
        is_tuned = serve is not None and serve.bar is not None and serve.bar.search is not None
        if serve is not None and serve.loads and is_tuned and (graded or not is_graded):
            found, is_graded = (entry.seq, str(attempt.body["candidate"]), serve), graded
    return found


def _seq_of(entries: Sequence[Entry], evidence: Digest) -> int:
    return next(e.seq for e in entries if e.body.get("evidence") == evidence)
