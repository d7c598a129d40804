"""A campaign as a person lives it: real commands, a passphrase typed at a real terminal."""

import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inferproof.core.evidence import Evidence
from inferproof.gates.student import SPOILT, rank, tail_of_try
from inferproof.ledger.objects import ObjectStore
from small_campaign import CAMPAIGN, CONTRACT_FILE, cpp_candidate, edit, small_campaign

pytestmark = pytest.mark.timeout(300)

INFERPROOF = str(Path(sys.executable).with_name("inferproof"))
PASSPHRASE = "correct horse battery"
WRONG = "incorrect horse battery"
EXIT_OF_GOOD = {"pass": 0, "approval_required": 4}
KILLED_WHILE_PROMOTING = """
import asyncio, os, signal, sys
from pathlib import Path
from inferproof.pipeline import Keeper

keeper = Keeper.open(Path(sys.argv[1]))
append_if = keeper.ledger.append_if

def append_or_die(make):
    def body(locked):
        made = make(locked)
        if made is not None and made["kind"] == "promotion":
            os.kill(os.getpid(), signal.SIGKILL)
        return made
    return append_if(body)

keeper.ledger.append_if = append_or_die
asyncio.run(keeper.promote(sys.argv[2], target="local", wait_s=0))
"""
QUESTIONS = (b"passphrase: ", b"once more: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a command answered: its exit status, its result, and what a person saw."""

    rc: int
    out: str
    seen: str

    @property
    def facts(self) -> Mapping[str, Any]:
        return json.loads(self.out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A person's campaign and config folder."""

    campaign: Path
    config: Path

    @property
    def key(self) -> Path:
        return self.config / "inferproof" / "approver.pem"

    def run(self, *words: str, piped: str = "", more: Mapping[str, str] | None = None) -> Said:
        """Run a command that has no terminal, with `piped` on its standard input."""
        done = subprocess.run(
            self._argv(words),
            env=self._environment(more),
            input=piped,
            capture_output=True,
            text=True,
            start_new_session=True,
            check=False,
        )
        return Said(rc=done.returncode, out=done.stdout, seen=done.stderr)

    def type(self, *words: str, typed: Sequence[str]) -> Said:
        """Run a command on a terminal of its own; type one line for each question, in order.

        Standard input is no terminal and holds a wrong passphrase, as do the environment's
        likely names: who reads those gets it wrong.
        """
        master, slave = pty.openpty()
        with subprocess.Popen(
            self._argv(words),
            env=self._environment({"PASSPHRASE": WRONG, "INFERPROOF_PASSPHRASE": WRONG}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(2, termios.TIOCSCTTY, 0),
        ) as process:
            os.close(slave)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{WRONG}\n{WRONG}\n".encode())
            process.stdin.close()
            seen = _typed(master, typed)
            out = process.stdout.read()
        os.close(master)
        return Said(rc=process.returncode, out=out.decode(), seen=seen)

    def _argv(self, words: Sequence[str]) -> list[str]:
        return [INFERPROOF, *words, "--campaign", str(self.campaign), "--json"]

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        return {**os.environ, "XDG_CONFIG_HOME": str(self.config), **(more or {})}


def _typed(master: int, lines: Sequence[str]) -> str:
    """Answer each question with the next line, and return all that the terminal showed."""
    seen, answered = b"", 0
    while chunk := _chunk(master):
        seen += chunk
        asked = sum(seen.count(question) for question in QUESTIONS)
        assert asked <= len(lines), seen
        while answered < asked:
            os.write(master, lines[answered].encode() + b"\n")
            answered += 1
    assert answered == len(lines), seen
    return seen.decode()


def _chunk(master: int) -> bytes:
    try:
        return os.read(master, 4096)
    except OSError:  # the last process with this terminal is gone
        return b""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a campaign that `init` wrote and a person made small, not sealed yet."""
    desk = Desk(campaign=tmp_path / "norms", config=tmp_path / "config")
    assert desk.run("init", "--template", "cpu-tiny").rc == 0
    edit(desk.campaign / "campaign.yaml", CAMPAIGN)
    small = small_campaign(tmp_path / "small")
    shutil.copy(small / CONTRACT_FILE, desk.campaign / CONTRACT_FILE)
    return desk


def entries(desk: Desk, kind: str) -> list[dict[str, Any]]:
    lines = (desk.campaign / ".inferproof/ledger.jsonl").read_text().splitlines()
    return [body for body in (json.loads(line)["body"] for line in lines) if body["kind"] == kind]


def each_try_is_counted_and_timed_in_rounds_enough(desk: Desk) -> None:
    store = ObjectStore(desk.campaign / ".inferproof/objects")
    for earlier, ended in enumerate(entries(desk, "outcome")):
        evidence = Evidence.model_validate_json(store.get(ended["evidence"]))
        assert evidence.earlier is not None
        assert evidence.earlier.graded == earlier
        assert evidence.grade is not None
        for each in evidence.grade.timed if earlier else ():  # the first has what is planned
            rounds = len(each.pairs)
            assert rank(tail_of_try(earlier), rounds) > rounds // SPOILT


def judged_good(desk: Desk, tool: str, arguments: Mapping[str, str]) -> Said:
    """Call a tool until noise lets its measurement decide: a pass, or a gain to ask about."""
    for _ in range(3):
        said = desk.run("call", tool, json.dumps(arguments))
        if said.facts["verdict"] in EXIT_OF_GOOD:
            assert said.rc == EXIT_OF_GOOD[said.facts["verdict"]]
            return said
        assert said.facts["code"] in ("below_resolution", "not_faster"), said
    raise AssertionError("not measured well enough in 3 runs")


def test_a_passphrase_seals_and_approves_and_the_champion_moves(desk: Desk, tmp_path: Path):
    sealed = desk.type("seal", typed=(PASSPHRASE, PASSPHRASE))
    assert (sealed.rc, sealed.facts["demo"]) == (0, False), sealed.seen
    assert desk.key.stat().st_mode & 0o077 == 0
    assert "ENCRYPTED" in desk.key.read_text()

    submitted = desk.run("submit", str(cpp_candidate(tmp_path / "kernel")))
    digest = str(submitted.facts["candidate"])
    candidate = {"candidate": digest}
    judged_good(desk, "check_numerics", {**candidate, "purpose": "graded"})
    asked = judged_good(desk, "promote", candidate)
    assert asked.facts["verdict"] == "approval_required"
    each_try_is_counted_and_timed_in_rounds_enough(desk)
    approval_id = str(asked.facts["approval_id"])
    assert f"inferproof approve {approval_id}" in asked.facts["next_steps"][0]

    refused = desk.type("approve", approval_id, typed=(WRONG,))
    assert (refused.rc, refused.out) == (2, "")
    assert "wrong passphrase" in refused.seen
    assert "reason: every" in refused.seen
    assert entries(desk, "approval") == []
    assert desk.run("call", "promote", json.dumps(candidate)).facts["approval_id"] == approval_id

    approved = desk.type("approve", approval_id, typed=(PASSPHRASE,))
    assert approved.rc == 0, approved.seen
    moved = desk.run("call", "promote", json.dumps(candidate))
    assert (moved.rc, moved.facts["verdict"]) == (0, "pass"), moved
    (promotion,) = entries(desk, "promotion")
    assert (promotion["candidate"], promotion["approval_id"]) == (digest, approval_id)
    status = desk.run("call", "campaign_status")
    assert f"champion {digest[:12]}" in status.facts["summary"]
    verified = desk.run("verify", "--head", desk.run("head").facts["head"])
    assert (verified.rc, verified.facts["findings"]) == (0, [])
    everything = (sealed, refused, approved)
    assert not any(PASSPHRASE in said.seen + said.out for said in everything), "it was echoed"


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ((PASSPHRASE, WRONG), "the two passphrases differ"),
        (("too short", "too short"), "fewer than 12 characters"),
        (("", ""), "no passphrase was typed"),
    ],
)
def test_no_key_is_made_of_a_passphrase_that_will_not_do(
    desk: Desk, typed: tuple[str, ...], why: str
):
    said = desk.type("seal", typed=typed)
    assert (said.rc, said.out) == (2, "")
    assert why in said.seen
    assert not desk.key.exists()
    assert desk.run("head").facts["head"] == "0" * 64


def test_without_a_terminal_nothing_is_sealed_whatever_stdin_or_the_environment_say(desk: Desk):
    said = desk.run(
        "seal", piped=f"{PASSPHRASE}\n{PASSPHRASE}\n", more={"INFERPROOF_PASSPHRASE": PASSPHRASE}
    )
    assert (said.rc, said.out) == (2, "")
    assert "can only be typed at a terminal" in said.seen
    assert not desk.key.exists()
    assert desk.run("head").facts["head"] == "0" * 64


@pytest.mark.zoo
def test_a_server_killed_between_the_approvals_use_and_the_promotion_loses_neither(
    desk: Desk, tmp_path: Path
):
    assert desk.run("seal", "--demo-key").rc == 0
    submitted = desk.run("submit", str(cpp_candidate(tmp_path / "kernel")))
    candidate = str(submitted.facts["candidate"])
    asked = judged_good(desk, "promote", {"candidate": candidate})
    assert desk.run("approve", str(asked.facts["approval_id"])).rc == 0

    dying = [sys.executable, "-c", KILLED_WHILE_PROMOTING, str(desk.campaign), candidate]
    assert subprocess.run(dying, check=False).returncode == -signal.SIGKILL
    assert (len(entries(desk, "approval_used")), entries(desk, "promotion")) == (1, [])
    assert desk.run("verify").rc == 0

    moved = desk.run("call", "promote", json.dumps({"candidate": candidate}))
    assert (moved.rc, moved.facts["approval_id"]) == (0, asked.facts["approval_id"]), moved
    assert (len(entries(desk, "approval_used")), len(entries(desk, "promotion"))) == (1, 1)
    assert desk.run("verify").rc == 0
