"""Load runs: what the client is told to do, and how its own troubles are told from the engine's."""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import inferproof.demo
from inferproof.core.traffic import Traffic
from inferproof_remote.incidents import BenchError
from inferproof_remote.serving import load
from inferproof_remote.serving.load import (
    Facts,
    LoadOrder,
    OnProgress,
    aiperf_command,
    run_load,
)
from inferproof_remote.serving.reference import load_vocabulary
from inferproof_remote.serving.vocabulary import Vocabulary

MODEL = Path(inferproof.demo.__file__).parent / "model"
CORPUS = Path(__file__).parents[3] / "contracts" / "services" / "completions" / "corpus.txt"
SHAPE: dict[str, object] = Traffic(
    name="few", requests=3, warmup_requests=1, concurrency=2, isl=(8, 12), osl=(4, 6)
).model_dump(mode="json")


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return load_vocabulary(MODEL)


def ignored(done: int, of: int) -> None:
    """Stand in for whoever is told of progress."""


def order(
    work: Path,
    *,
    program: Path | None = None,
    gives_up: bool = False,
    on_progress: OnProgress = ignored,
    **shape: object,
) -> LoadOrder:
    return LoadOrder(
        work=work / "load",
        endpoint="http://127.0.0.1:1",
        model_name="tiny",
        tokenizer=MODEL,
        aiperf=program,
        arm="candidate",
        restart=0,
        shape=SHAPE | shape,
        corpus=CORPUS.read_text(encoding="utf-8"),
        bits=b"bits",
        on_progress=on_progress,
        given_up=lambda: gives_up,
        completed=lambda response: response,
    )


def client(folder: Path, body: str) -> Path:
    """Return a program that stands in for AIPerf; `out` is where it shall write, `tries` counts."""
    program = folder / "aiperf"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os, pathlib, signal, sys, tempfile, time\n"
        'out = pathlib.Path(sys.argv[sys.argv.index("--artifact-dir") + 1])\n'
        "out.mkdir(exist_ok=True)\n"
        'log = out.parent / "tries"\n'
        'log.write_text((log.read_text() if log.exists() else "") + "x")\n'
        "tries = len(log.read_text())\n"
        f"{body}\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program


def ran(folder: Path, vocabulary: Vocabulary, body: str, *, gives_up: bool = False) -> Facts:
    return run_load(
        order(folder, program=client(folder, body), gives_up=gives_up), vocabulary
    ).facts


def prompts(folder: Path) -> list[str]:
    return (folder / "load" / "prompts.jsonl").read_text(encoding="utf-8").splitlines()


def tries(folder: Path) -> int:
    return len((folder / "load" / "tries").read_text(encoding="utf-8"))


def test_arrivals_are_a_closed_loop_or_poisson(tmp_path: Path) -> None:
    closed = aiperf_command(order(tmp_path), Path("aiperf"))
    poisson = aiperf_command(order(tmp_path, concurrency=None, rate_per_s=2.5), Path("aiperf"))
    assert closed[closed.index("--concurrency") + 1] == "2"
    assert poisson[poisson.index("--request-rate") + 1] == "2.5"
    assert "poisson" in poisson
    assert "--concurrency" not in poisson


def test_what_has_times_of_its_own_is_sent_by_them_and_warms_up_before(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    program, burst = client(tmp_path, "sys.exit(0)"), {"requests": 2, "every_s": 0.5}
    asked = order(tmp_path, program=program, concurrency=None, burst=burst)
    command = aiperf_command(asked, Path("aiperf"))
    assert "--fixed-schedule" in command
    assert "--warmup-request-count" not in command
    run_load(asked, vocabulary)
    lines = [json.loads(line) for line in prompts(tmp_path)]
    assert [line["session_id"] for line in lines] == ["warmup-0", "s0", "s1", "s2"]
    first, second, third = (line["timestamp"] for line in lines[1:])
    assert first == second == third - 500 > lines[0]["timestamp"]


def test_a_conversation_is_sent_as_one(tmp_path: Path) -> None:
    asked = order(tmp_path, requests=6, turns=3, cache="natural")
    command = aiperf_command(asked, Path("aiperf"))
    assert command[command.index("--num-conversations") + 1] == "2"


def test_a_field_that_the_engine_refuses_is_not_sent(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    asked = order(tmp_path, program=client(tmp_path, "sys.exit(0)"))
    run_load(replace(asked, leaves_out=frozenset({"ignore_eos"})), vocabulary)
    for body in (json.loads(line)["payload"] for line in prompts(tmp_path)):
        assert "ignore_eos" not in body
        assert (body["temperature"], body["return_token_ids"], body["stream"]) == (0, True, True)


def test_both_arms_of_a_round_get_the_same_prompts_and_no_other_round_does(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    found: list[bytes] = []
    for number, (arm, restart) in enumerate([("candidate", 0), ("baseline", 0), ("candidate", 1)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        program = client(folder, "sys.exit(0)")
        run_load(replace(order(folder, program=program), arm=arm, restart=restart), vocabulary)
        found.append((folder / "load" / "prompts.jsonl").read_bytes())
    assert found[0] == found[1] != found[2]
    bodies = [json.loads(line)["payload"] for line in found[0].splitlines()]
    assert len({body["prompt"] for body in bodies}) == len(bodies) >= 4
    assert all(8 <= len(vocabulary.encode(body["prompt"])) <= 12 for body in bodies)
    assert all(4 <= body["max_tokens"] <= 6 for body in bodies)


def test_a_client_whose_services_did_not_find_each_other_is_tried_once_more(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    failing = 'print("Some services failed to register within timeout"); sys.exit(1)'
    facts = ran(tmp_path, vocabulary, failing)
    assert tries(tmp_path) == 2
    assert (facts["exit_code"], facts["completed"], facts["errors"]) == (1, 0, {})
    assert "failed to register" in str(facts["failure"])


def test_a_second_try_that_works_is_the_run(tmp_path: Path, vocabulary: Vocabulary) -> None:
    facts = ran(tmp_path, vocabulary, "sys.exit(tries == 1)")
    assert (tries(tmp_path), facts["exit_code"], facts["failure"]) == (2, 0, "")


def test_a_client_that_sent_anything_is_not_tried_again(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    record = {"metadata": {"benchmark_phase": "profiling"}, "error": {"type": "TimeoutError"}}
    line = json.dumps(record) + "\n"
    writes = f"(out / 'profile_export.jsonl').write_text({line!r}); sys.exit(1)"
    facts = ran(tmp_path, vocabulary, writes)
    assert (tries(tmp_path), facts["errors"]) == (1, {"TimeoutError": 1})


def test_a_client_that_only_one_of_its_services_saw_send_is_not_tried_again(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    writes = (
        "raw = out / 'raw_records'; raw.mkdir()\n"
        "(raw / 'raw_records_1.jsonl').write_text('{}\\n'); sys.exit(1)"
    )
    ran(tmp_path, vocabulary, writes)
    assert tries(tmp_path) == 1


def test_progress_is_what_the_client_has_recorded_so_far_the_warm_up_aside(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    """The client waits for what it has written to be told, so that nothing hangs on the clock."""
    told: list[tuple[int, int]] = []

    def tell(done: int, of: int) -> None:
        told.append((done, of))
        (tmp_path / "load" / f"told-{done}").touch()

    body = """
def write(text):
    with (out / "profile_export.jsonl").open("a") as file:
        file.write(text)
def wait(done):
    while not (out.parent / f"told-{done}").exists():
        time.sleep(0.01)
def line(phase):
    return json.dumps({"metadata": {"benchmark_phase": phase}}) + "\\n"
one = line("profiling")
write(line("warmup") + one + one[:9])
wait(1)
write(one[9:] + one)
wait(3)
"""
    program = client(tmp_path, body)
    run_load(order(tmp_path, program=program, on_progress=tell), vocabulary)
    assert told == [(1, 3), (3, 3)]


def test_what_the_client_writes_is_below_the_runs_folder(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    ran(
        tmp_path,
        vocabulary,
        "(out / 'seen').write_text(tempfile.gettempdir() + '\\n' + os.getcwd())",
    )
    work = tmp_path / "load"
    temporary, folder = (work / "out" / "seen").read_text(encoding="utf-8").splitlines()
    assert Path(temporary).is_relative_to(work)
    assert Path(folder) == work
    command = aiperf_command(order(tmp_path), Path("aiperf"))
    assert not Path(command[command.index("--zmq-ipc-path") + 1]).is_absolute()


def test_a_client_that_was_killed_is_not_tried_again_its_prompts_may_be_known(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    facts = ran(tmp_path, vocabulary, "os.kill(os.getpid(), signal.SIGKILL)")
    assert (facts["exit_code"], facts["completed"], facts["errors"]) == (-9, 0, {})
    assert tries(tmp_path) == 1


def test_a_run_is_ended_once_its_engine_is_refused_and_leaves_nothing(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    stubborn = (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "(out.parent / 'pids').write_text(f'{os.getpid()} {child}') if child else None\n"
        "time.sleep(300)"
    )
    patience = [(number, min(seconds, 0.5)) for number, seconds in load.PATIENCE_S]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "PATIENCE_S", patience)
        facts = ran(tmp_path, vocabulary, stubborn, gives_up=True)
    assert facts["was_cancelled"] is True
    pids = tmp_path / "load" / "pids"
    if pids.exists():  # it had come so far
        assert not any(map(is_running, map(int, pids.read_text().split())))


def test_without_aiperf_the_bench_is_at_fault(
    tmp_path: Path, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "find_aiperf", lambda: None)
    with pytest.raises(BenchError, match="doctor"):
        run_load(order(tmp_path), vocabulary)


def is_running(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        os.sched_yield()
    return True


def test_the_seed_follows_from_the_bits(tmp_path: Path) -> None:
    assert order(tmp_path).seed == order(tmp_path).seed
    assert order(tmp_path).seed != order(tmp_path, name="other").seed
