"""Every kind of traffic with the real AIPerf on a real engine: whole, believed, as asked."""

import gzip
import json
import shutil
from itertools import pairwise

import pytest

from adversarial.engine_zoo import CONTRACT, HONEST, EngineBench, judged
from inferproof.core.traffic import Traffic
from inferproof.core.values import Outcome, Reason
from inferproof.gates.base import ServiceCase
from inferproof.gates.saturation import curve, knee, saturation_text

pytestmark = [
    pytest.mark.integration,
    pytest.mark.zoo,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),
]
SIZE = {"requests": 12, "isl": (40, 72), "osl": (16, 24)}
TIMES_MS = (0, 300, 450, 900, 1000, 1600)


class Sent:
    """One request as AIPerf recorded it."""

    def __init__(self, line: str) -> None:
        record = json.loads(line)
        metadata = record["metadata"]
        self.prompt: str = record["payload"]["prompt"]
        self.session: str = metadata["conversation_id"]
        self.at_ms: float = metadata["request_start_ns"] / 1e6
        self.ended_ms: float = metadata["request_end_ns"] / 1e6
        self.is_warmup = metadata["benchmark_phase"] == "warmup" or "warmup" in self.session


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> EngineBench:
    work = tmp_path_factory.mktemp("shapes")
    work.chmod(0o755)
    contract = work / "services" / "completions"
    shutil.copytree(CONTRACT, contract)
    rows = (
        {"timestamp": at, "input_length": 70, "output_length": 16, "hash_ids": [1, 2, 3, 4 + n]}
        for n, at in enumerate(TIMES_MS)
    )
    (contract / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return EngineBench(work, contract)


def measured(bench: EngineBench, **shape: object) -> tuple[ServiceCase, list[Sent]]:
    traffic = Traffic.model_validate({"name": "some", **SIZE, **shape})
    case = bench.measure(HONEST, ("fidelity", "load"), traffic=traffic)
    (export,) = bench.work.glob("zoo-*/out/files/load-*.jsonl.gz")
    with gzip.open(export, "rt", encoding="utf-8") as lines:
        sent = sorted(map(Sent, lines), key=lambda each: each.at_ms)
    for folder in bench.work.glob("zoo-*"):
        shutil.rmtree(folder)
    return case, sent


def is_whole(case: ServiceCase, sent: list[Sent]) -> bool:
    """Return whether all came, no prompt twice, and nothing but a late client is doubted."""
    assert case.evidence.serve
    (run,) = case.evidence.serve.loads
    assert run.completed == run.asked, run.errors
    assert len({each.prompt for each in sent}) == len(sent)
    assert len(run.cold_ttft_ms) == sum(each.is_warmup for each in sent) == 2
    doubts = [each for each in judged(case) if each.outcome is not Outcome.PASS]
    return all(each.code is Reason.CLIENT_SATURATED for each in doubts)


@pytest.mark.parametrize(
    "shape",
    [
        {"concurrency": 4, "content": "mixed"},
        {"concurrency": 2, "content": "structured", "isl": {"listed": [40, 60]}},
        {"concurrency": 2, "content": "tokens"},
        {"concurrency": 2, "cache": "shared_prefix", "shared_tokens": 32},
        {"rate_per_s": 6.0, "osl": {"median": 16, "sigma": 0.5, "least": 8, "greatest": 32}},
    ],
    ids=["mixed", "structured", "tokens", "shared", "poisson"],
)
def test_requests_that_stand_alone_are_whole(bench: EngineBench, shape: dict[str, object]) -> None:
    assert is_whole(*measured(bench, **shape))


def test_the_turns_of_a_conversation_follow_each_other(bench: EngineBench) -> None:
    case, sent = measured(bench, concurrency=2, turns=3, cache="natural", isl=(20, 30))
    assert is_whole(case, sent)
    scored = [each for each in sent if not each.is_warmup]
    for session in {each.session for each in scored}:
        turns = [each for each in scored if each.session == session]
        assert len(turns) == 3
        for one, after in pairwise(turns):
            assert after.prompt.startswith(one.prompt)
            assert after.at_ms >= one.ended_ms


def test_a_burst_comes_at_once_and_the_next_one_later(bench: EngineBench) -> None:
    case, sent = measured(bench, burst={"requests": 4, "every_s": 1.5})
    assert is_whole(case, sent)
    scored = [each.at_ms for each in sent if not each.is_warmup]
    bursts = [scored[at : at + 4] for at in range(0, 12, 4)]
    assert all(after[0] - one[-1] > one[-1] - one[0] for one, after in pairwise(bursts))


def test_a_trace_is_sent_in_its_order_and_shares_what_its_hashes_share(bench: EngineBench) -> None:
    trace = {"file": "trace.jsonl", "block_tokens": 16}
    shape = {"requests": 6, "isl": None, "osl": None, "trace": trace, "cache": "natural"}
    case, sent = measured(bench, **shape)
    assert is_whole(case, sent)
    scored = [each for each in sent if not each.is_warmup]
    assert [each.session for each in scored] == [f"s{n}" for n in range(6)]
    assert len({each.prompt[:60] for each in scored}) == 1
    assert scored[-1].at_ms - scored[0].at_ms > 0.9 * TIMES_MS[-1]


def test_a_ramp_runs_at_each_concurrency_and_its_knee_is_told(bench: EngineBench) -> None:
    ramp = Traffic.model_validate({"name": "ramp", **SIZE, "requests": 8, "ramp": (1, 4)})
    case = bench.measure(HONEST, ("fidelity", "load"), traffic=ramp)
    assert case.evidence.serve
    exports = sorted(bench.work.glob("zoo-*/out/files/load-*.jsonl.gz"))
    sent: list[Sent] = []
    for export in exports:
        with gzip.open(export, "rt", encoding="utf-8") as lines:
            sent += map(Sent, lines)
    for folder in bench.work.glob("zoo-*"):
        shutil.rmtree(folder)
    runs = {run.traffic: run for run in case.evidence.serve.loads}
    assert sorted(runs) == ["ramp.c1", "ramp.c4"]
    assert all(run.completed == run.asked == 8 for run in runs.values()), runs
    assert len({each.prompt for each in sent}) == len(sent)  # no step repeats another's prompts
    points = curve(case.evidence.serve, ramp, "candidate")
    assert list(points) == [1, 4]
    assert f"candidate at {knee(points)} in flight" in saturation_text(case.evidence.serve, ramp)
    doubts = [each for each in judged(case) if each.outcome is not Outcome.PASS]
    assert all(each.code is Reason.CLIENT_SATURATED for each in doubts), doubts
