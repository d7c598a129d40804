"""One load run: AIPerf as a process of its own against one endpoint, and what came of it.

Requests are made once the engine serves and follow from the bits; both arms of a round get the
same, and no earlier run had them. They travel as mooncake traces with whole bodies, which AIPerf
sends as they are. Its exit code and summary prove little: the numbers come from its raw export,
read by `records`.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inferproof_remote import job
from inferproof_remote.fairness import prefer_sessions
from inferproof_remote.incidents import BenchError
from inferproof_remote.serving.columns import (
    cold_columns,
    columns,
    finish_reasons,
    p99,
    run_seconds,
)
from inferproof_remote.serving.cores import shares
from inferproof_remote.serving.records import (
    Response,
    compressed_share,
    count_errors,
    distinct,
    is_measured,
    read_cold,
    read_responses,
)
from inferproof_remote.serving.traffic import Row, Source, is_scheduled, rows_of
from inferproof_remote.serving.vocabulary import Vocabulary
from inferproof_remote.stream import Stream

OWN_AIPERF = Path(sys.prefix) / "aiperf"
_REQUEST_S = 120
_START_S = 180.0
_POLL_S = 0.25
_RECORDS = "profile_export.jsonl"
PATIENCE_S = ((signal.SIGINT, 10.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 10.0))
_ASKED: Mapping[str, object] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0,
    "ignore_eos": True,
    "return_token_ids": True,
}
_USER_AGENT = "User-Agent:completions"
Facts = dict[str, object]
OnProgress = Callable[[int, int], None]
GivenUp = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """One run: where to, what traffic, and which bits its prompts follow from.

    Once `given_up` says so, the run is ended: its engine is refused whatever it would measure.
    `completed` puts into a response what its text hides. Of what is asked beyond the API, the
    engine is spared what is in `leaves_out`. `sealed` has the contract's files.
    """

    work: Path
    endpoint: str
    model_name: str
    tokenizer: Path
    aiperf: Path | None
    arm: str
    restart: int
    shape: Mapping[str, object]
    corpus: str
    bits: bytes
    on_progress: OnProgress
    given_up: GivenUp
    completed: Callable[[Response], Response]
    leaves_out: frozenset[str] = frozenset()
    sealed: Path | None = None

    @property
    def trace(self) -> str:
        """The sealed file of a timed trace; nothing where the shape has none."""
        if self.shape["trace"] is None or self.sealed is None:
            return ""
        told = job.as_table(self.shape["trace"], "trace")
        return (self.sealed / str(told["file"])).read_text(encoding="utf-8")

    def count(self, name: str) -> int:
        """Return a whole number of the traffic shape."""
        return int(job.as_number(self.shape[name], name))

    @property
    def seed(self) -> int:
        """The client's own seed, the same for both arms of a round."""
        return Stream(self.bits, f"seed {self.shape['name']} {self.restart}").below(1 << 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A run's facts, in the form of the server's `LoadFacts`, and its responses."""

    facts: Facts
    responses: tuple[Response, ...]


def run_load(order: LoadOrder, vocabulary: Vocabulary) -> Load:
    """Return what one run measured; one that failed has facts too.

    Raises:
        BenchError: AIPerf is not there.
    """
    program = order.aiperf or find_aiperf()
    if program is None:
        raise BenchError("AIPerf is not installed here; run: inferproof doctor")
    _temporary(order).mkdir(parents=True)
    _write_prompts(order, vocabulary)
    command = aiperf_command(order, program)
    ending = _run(command, order)
    if ending.gave_up and not _has_sent(order):
        # Its services failed to find each other, as they do on a busy machine. No engine has seen
        # any of the prompts.
        ending = _run(command, order)
    return _read(order, vocabulary, command, ending)


def find_aiperf() -> Path | None:
    """Return AIPerf of its own environment, else beside this interpreter, else the one in PATH."""
    for environment in (OWN_AIPERF, Path(sys.prefix)):
        program = environment / "bin" / "aiperf"
        if program.is_file():
            return program
    found = shutil.which("aiperf")
    return None if found is None else Path(found)


def aiperf_command(order: LoadOrder, program: Path) -> list[str]:
    """Return the command line of a run, to be started in `order.work`: it writes only there."""
    return [
        *(str(program), "profile", "--model", order.model_name, "--url", order.endpoint),
        *("--endpoint-type", "completions", "--streaming"),
        *("--tokenizer", str(order.tokenizer), "--input-file", str(_prompts(order))),
        *("--custom-dataset-type", "mooncake_trace", *_arrivals(order)),
        *("--random-seed", str(order.seed), "--request-timeout-seconds", str(_REQUEST_S)),
        *("--failed-request-threshold", "0.5", "--export-level", "raw", "-H", _USER_AGENT),
        *("--artifact-dir", str(_out(order)), "--ui", "none", "--log-level", "warning"),
        *("--zmq-ipc-path", "ipc"),  # below the working folder: a socket's address must be short
        *("--no-gpu-telemetry", "--no-server-metrics"),
    ]


def _arrivals(order: LoadOrder) -> list[str]:
    """Return when AIPerf shall send what; a schedule has its warm-up in itself."""
    shape = order.shape
    if is_scheduled(shape):
        return ["--fixed-schedule"]
    warmup = ["--warmup-request-count", str(order.count("warmup_requests"))]
    if shape["concurrency"] is None:
        rate = ["--request-rate", str(shape["rate_per_s"]), "--arrival-pattern", "poisson"]
        return [*rate, "--request-count", str(order.count("requests")), *warmup]
    sessions = order.count("requests") // order.count("turns")
    loop = ["--concurrency", str(shape["concurrency"]), "--num-conversations", str(sessions)]
    return [*loop, *warmup]


def _prompts(order: LoadOrder) -> Path:
    return order.work / "prompts.jsonl"


def _out(order: LoadOrder) -> Path:
    return order.work / "out"


def _temporary(order: LoadOrder) -> Path:
    """Return where AIPerf, which leaves its data set behind, has its temporary files."""
    return order.work / "tmp"


def _write_prompts(order: LoadOrder, vocabulary: Vocabulary) -> None:
    """Write fresh requests, warm-up included, as lines of a mooncake trace."""
    source = Source(
        shape=order.shape,
        corpus=order.corpus,
        trace=order.trace,
        bits=order.bits,
        restart=order.restart,
        vocabulary=vocabulary,
    )
    asked = {name: value for name, value in _ASKED.items() if name not in order.leaves_out}
    with _prompts(order).open("w", encoding="utf-8") as file:
        for row in rows_of(source):
            body = {"model": order.model_name, "prompt": row.text, **asked}
            file.write(json.dumps(_line(row, body)) + "\n")


def _line(row: Row, body: Facts) -> Facts:
    """Return one request as AIPerf reads it."""
    line: Facts = {
        "session_id": row.session,
        "output_length": row.output_tokens,
        "payload": {**body, "max_tokens": row.output_tokens},
    }
    return line if row.at_ms is None else {**line, "timestamp": row.at_ms}


@dataclass(frozen=True, slots=True)
class _Ending:
    """AIPerf's exit code, and whether we ended it."""

    exit_code: int | None
    was_ended: bool

    @property
    def gave_up(self) -> bool:
        """Whether it ended by itself, with an error."""
        return not self.was_ended and (self.exit_code or 0) > 0


def _has_sent(order: LoadOrder) -> bool:
    """Whether any request left a record, warm-up included."""
    return any(path.stat().st_size for path in _out(order).rglob("*.jsonl"))


def _run(command: Sequence[str], order: LoadOrder) -> _Ending:
    """Run AIPerf to its end, or end it when it is late or there is nothing more to measure."""
    requests = order.count("requests") + order.count("warmup_requests")
    deadline = time.monotonic() + _START_S + requests * _REQUEST_S
    progress = _Progress(order)
    held = ",".join(map(str, shares().client))
    with (order.work / "log").open("ab") as log:
        process = subprocess.Popen(
            ["taskset", "--cpu-list", held, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=client_environment(order),
            cwd=order.work,
            start_new_session=True,
        )
        prefer_sessions([process.pid])
        while process.poll() is None:
            if time.monotonic() > deadline or order.given_up():
                _stop(process)
                return _Ending(process.returncode, was_ended=True)
            progress.tell()
            _wait(process, _POLL_S)
    _send(process, signal.SIGKILL)  # services that outlived it
    return _Ending(process.returncode, was_ended=False)


def client_environment(order: LoadOrder) -> dict[str, str]:
    """Return the environment that AIPerf runs in."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(order.work),
        "TMPDIR": str(_temporary(order)),
        "COLUMNS": "120",
        job.MARK: os.environ.get(job.MARK, ""),
    }


@dataclass(slots=True)
class _Progress:
    """Counts the records that AIPerf writes as the run goes: one line a request."""

    order: LoadOrder
    _read_bytes: int = field(default=0, init=False)
    _done: int = field(default=0, init=False)

    def tell(self) -> None:
        """Tell how many requests are done, if there are more than last time."""
        arrived = sum(map(is_measured, self._lines()))
        if arrived:
            self._done += arrived
            self.order.on_progress(self._done, self.order.count("requests"))

    def _lines(self) -> Sequence[bytes]:
        """Return the whole lines that were not there before."""
        try:
            with (_out(self.order) / _RECORDS).open("rb") as file:
                file.seek(self._read_bytes)
                whole, end, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return ()
        self._read_bytes += len(whole + end)
        return whole.splitlines()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End AIPerf and its services: gently, then not; it may hang on the first signal."""
    for number, patience_s in PATIENCE_S:
        _send(process, number)
        if _wait(process, patience_s):
            break
    _send(process, signal.SIGKILL)


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to all that AIPerf started, if any of it is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _read(
    order: LoadOrder,
    vocabulary: Vocabulary,
    command: Sequence[str],
    ending: _Ending,
) -> Load:
    out = _out(order)
    export = out / "profile_export_raw.jsonl"
    arrived, errors = read_responses(export, vocabulary)
    responses = [order.completed(each) for each in arrived]
    if not responses and not errors:
        errors = count_errors(out / _RECORDS)
    summary = _summary(out / "profile_export_aiperf.json")
    seconds = run_seconds(responses)
    tokens = sum(len(each.ids) for each in responses)
    facts: Facts = {
        "arm": order.arm,
        "restart": order.restart,
        "traffic": order.shape["name"],
        "seed": order.seed,
        "command": [Path(command[0]).name, *command[1:]],
        "client_version": f"aiperf {summary.get('aiperf_version', 'unknown')}",
        "exit_code": ending.exit_code,
        "is_complete": summary.get("is_complete") is True,
        "was_cancelled": summary.get("was_cancelled") is True or ending.was_ended,
        "asked": order.count("requests"),
        "completed": len(responses),
        "errors": dict(errors),
        "seconds": seconds,
        **columns(responses, vocabulary),
        **cold_columns(read_cold(export, vocabulary)),
        "finish_reasons": finish_reasons(responses),
        "distinct_responses": distinct(responses),
        "compressed_share": compressed_share(responses),
        "client_lag_p99_ms": p99([each.lag_ms for each in responses]),
        "output_tokens_per_s": tokens / seconds if seconds else None,
        "requests_per_s": len(responses) / seconds if seconds else None,
        "failure": "" if ending.exit_code == 0 else _last_lines(order.work / "log"),
    }
    return Load(facts=facts, responses=tuple(responses))


def _summary(path: Path) -> Mapping[str, object]:
    return job.as_table(json.loads(path.read_bytes()), path.name) if path.is_file() else {}


def _last_lines(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return " ".join(line.strip(" │╭╮╰╯─") for line in lines[-12:]).strip()[:1000]
