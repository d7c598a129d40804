"""Print what the ledger costs: append above a bare write and fsync, opening and verifying 10,000.

Run: python tests/bench/bench_ledger.py [FOLDER]; the folder decides which disk is measured.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from figures import Figures

from inferproof.core.canonical import Json, canonical_bytes, digest_bytes
from inferproof.core.evidence import Evidence, RunFacts
from inferproof.core.values import JobStatus, Outcome, Purpose, Reason, Verdict
from inferproof.ledger.chain import GENESIS, entry_bytes, make_entry
from inferproof.ledger.signing import KeeperKey
from inferproof.ledger.store import Ledger
from inferproof.ledger.verify import verify

ENTRIES = 10_000
ROUNDS = 300
APPEND_BAR_MS = 2
VERIFY_BAR_S = 5
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTRACT = digest_bytes(b"contract")
VERDICTS = [
    Verdict(
        gate=f"bench-{number}",
        gate_digest=digest_bytes(b"gate"),
        outcome=Outcome.PASS,
        code=Reason.ACCEPTED,
        reason="x" * 350,
    )
    for number in range(6)
]


def judge(contract: str, evidence: Evidence) -> Sequence[Verdict]:
    return VERDICTS if contract == evidence.contract else []


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def bench_append(figures: Figures, folder: Path) -> None:
    """Alternate appends with a bare write and fsync of as many bytes in the same folder."""
    ledger = Ledger.open(folder)
    body: dict[str, Json] = {"kind": "note", "text": "x" * 3500, "author": "person"}
    line = entry_bytes(ledger.append(body))
    appends: list[float] = []
    bare: list[float] = []
    with (folder / "bare").open("ab", buffering=0) as file:

        def write() -> None:
            file.write(line)
            os.fsync(file.fileno())

        for _ in range(ROUNDS):
            bare.append(seconds(write))
            appends.append(seconds(lambda: ledger.append(body)))
    above = [a - b for a, b in zip(appends, bare, strict=True)]
    figures.at_most(
        f"ledger append of {len(line)} bytes, above a bare write and fsync",
        median(above) * 1e3,
        APPEND_BAR_MS,
        "ms",
        f"median of {ROUNDS} pairs; append {median(appends) * 1e3:.3f} ms, "
        f"bare {median(bare) * 1e3:.3f} ms",
    )


def job_bodies(ledger: Ledger) -> Iterator[dict[str, Json]]:
    """Yield attempts and outcomes with stored evidence, each of no more than 4 KB."""
    for number in range(ENTRIES // 2):
        job_id = f"job-{number}"
        evidence = Evidence(
            kind="run",
            job_id=job_id,
            status=JobStatus.DONE,
            purpose=Purpose.GRADED,
            target="local",
            candidate=CONTRACT,
            contract=CONTRACT,
            started_at=NOW,
            ended_at=NOW,
            command=("true",),
            remote_digest=CONTRACT,
            run=RunFacts(argv=("true",), rc=0, seconds=1.0, output_tail="", output_bytes=0),
        )
        data = canonical_bytes(evidence.model_dump(mode="json"))
        place = ledger.objects.path(digest_bytes(data))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        yield {
            "kind": "attempt",
            "job_id": job_id,
            "tool": "check_numerics",
            "purpose": "graded",
            "candidate": CONTRACT,
            "contract": CONTRACT,
            "target": "local",
            "request_key": None,
        }
        yield {
            "kind": "outcome",
            "job_id": job_id,
            "status": "done",
            "evidence": place.parent.name + place.name,
            "verdicts": [verdict.model_dump(mode="json") for verdict in VERDICTS],
            "overall": "pass",
            "failure": "",
        }


def write_ledger(folder: Path, bodies: Iterator[dict[str, Json]]) -> str:
    key = KeeperKey.load_or_create(folder / "keeper.key")
    head = GENESIS
    with (folder / "ledger.jsonl").open("wb") as file:
        for seq, body in enumerate(bodies):
            at = NOW + timedelta(seconds=seq)
            entry = make_entry(prev=head, seq=seq, at=at, body=body, sign=key.sign)
            file.write(entry_bytes(entry))
            head = entry.digest
    return head


def bench_verify(figures: Figures, folder: Path, name: str, head: str) -> None:
    size_mb = (folder / "ledger.jsonl").stat().st_size / 1e6
    opened = seconds(lambda: len(Ledger.open(folder)))
    start, start_cpu = time.perf_counter(), time.process_time()
    report = verify(folder, folder, judge=judge, expected_head=head)
    took, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    if not report.ok or len(report.findings) != 1 or report.entries != ENTRIES:
        sys.exit(f"the {name} ledger does not verify: {report.findings[:3]}")
    figures.at_most(
        f"verify of {ENTRIES} {name}, {size_mb:.1f} MB",
        took,
        VERIFY_BAR_S,
        "s",
        f"{cpu:.2f} s of one core; open {opened:.2f} s",
    )


def main() -> None:
    figures = Figures()
    parent = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=parent) as root:
        folders = [Path(root) / name for name in ("append", "notes", "jobs")]
        for folder in folders:
            folder.mkdir()
        bench_append(figures, folders[0])
        note: dict[str, Json] = {"kind": "note", "text": "x" * 3600, "author": "person"}
        bench_verify(figures, folders[1], "notes", write_ledger(folders[1], iter([note] * ENTRIES)))
        jobs = job_bodies(Ledger.open(folders[2]))
        bench_verify(figures, folders[2], "attempts and outcomes", write_ledger(folders[2], jobs))
    figures.finish()


if __name__ == "__main__":
    main()
