"""A line to a machine that answers as it likes: an answer of ours, or an error, never a hang."""

import json
from collections.abc import Callable, Mapping
from typing import cast

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferproof.core.canonical import Json
from inferproof.core.errors import InferproofError, NotFound, Unreachable
from inferproof.hosts.bundle import Bundle
from inferproof.hosts.folders import Answer
from inferproof.hosts.ssh_lines import Line, Lines, Place
from inferproof.hosts.ssh_link import Link


class Channel:
    """The far end says `told`, then closes."""

    def __init__(self, told: bytes) -> None:
        self.told = told
        self.heard = b""

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def sendall(self, data: bytes) -> None:
        self.heard += data

    def recv(self, size: int) -> bytes:
        piece, self.told = self.told[:size], self.told[size:]
        return piece

    def recv_stderr_ready(self) -> bool:
        return True

    def recv_stderr(self, size: int) -> bytes:
        return b"bash: \x1b[31mno such thing"[:size]

    def close(self) -> None:
        """Nothing to do."""


class FakeLink:
    """A connection that is open until somebody closes it."""

    def __init__(self, make: Callable[[], Channel] = lambda: Channel(b"")) -> None:
        self.is_open = True
        self._make = make

    def channel(self, command: str) -> Channel:
        assert "\n" not in command
        return self._make()

    def close(self) -> None:
        self.is_open = False


def asked(told: bytes) -> Answer:
    channel, link = cast("paramiko.Channel", Channel(told)), cast("Link", FakeLink())
    return Line(channel, link).ask("look", {"job_id": "j1"}, b"", timeout_s=1)


def test_an_answer_is_its_body_and_its_bytes():
    assert asked(b'{"body": {"a": 1}, "size": 3}\nxyz') == Answer({"a": 1}, b"xyz")


@pytest.mark.parametrize(
    "told",
    [
        *(b"", b"hello\n", b"{}\n", b"[1]\n", b'{"body": 1, "size": 0}\n', b'{"size": -1}\n'),
        *(b'{"size": 99999999999}\n', b'{"body": {}, "size": 5}\nabc', b'{"body": {}, "size"'),
        *(b'{"body": {}, "size": 0, "more": 1}\n', b"\xff\xfe\n", b'{"size": NaN}\n'),
    ],
)
def test_what_is_no_answer_of_ours_breaks_the_line(told: bytes):
    with pytest.raises(Unreachable):
        asked(told)


@given(st.binary(max_size=200))
def test_whatever_comes_is_an_answer_or_a_broken_line(told: bytes):
    try:
        asked(told)
    except InferproofError:
        return


def test_an_endless_line_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("inferproof.hosts.ssh_lines._LONGEST_LINE_BYTES", 1 << 20)
    with pytest.raises(Unreachable, match="endless"):
        asked(b"x" * (4 << 20))


def test_a_refusal_is_the_error_that_it_stands_for_and_harmless():
    refused = {"code": "not_found", "what": "no job \x1b[2J", "hint": ""}
    told = json.dumps({"refused": refused, "size": 0}).encode() + b"\n"
    with pytest.raises(NotFound) as error:
        asked(told)
    assert str(error.value) == "no job \\x1b[2J"


def test_last_words_are_told_and_harmless():
    with pytest.raises(Unreachable, match=r"bash: \\x1b\[31mno such thing"):
        asked(b"")


def lines_to(told: Mapping[str, object], monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Return lines to a machine whose boot program answers so, whatever the word."""
    word = _Drawn.token_hex(16)
    monkeypatch.setattr("inferproof.hosts.ssh_lines.secrets", _Drawn)
    monkeypatch.setattr("inferproof.hosts.ssh_lines._PATIENCE_S", 0.2)
    noise = b"Welcome!\n\x1b[0m\n"
    booted = noise + word.encode() + json.dumps(told).encode() + b"\n"
    link = cast("Link", FakeLink(lambda: Channel(booted)))
    bundle = cast("Bundle", _Bundle())
    return Lines(lambda: link, Place(python="python3", work="/w", bundle=bundle))


class _Drawn:
    @staticmethod
    def token_hex(size: int) -> str:
        return "ab" * size


class _Bundle:
    digest, data = "0" * 64, b"zip"


def test_a_machine_that_is_too_old_says_so_after_whatever_its_shell_said(
    monkeypatch: pytest.MonkeyPatch,
):
    told = {"state": "refused", "what": "Python 3.8 \x07", "hint": "name a later one"}
    fields: dict[str, Json] = {}
    with pytest.raises(InferproofError, match=r"Python 3\.8 \\x07\. name a later one") as error:
        lines_to(told, monkeypatch).ask("ping", fields, timeout_s=1)
    assert not isinstance(error.value, Unreachable)


def test_a_machine_that_is_away_is_not_waited_for_again_at_once(monkeypatch: pytest.MonkeyPatch):
    tries: list[int] = []

    def connect() -> Link:
        tries.append(1)
        raise Unreachable("nobody there")

    monkeypatch.setattr("inferproof.hosts.ssh_lines._PATIENCE_S", 0.2)
    place = Place(python="python3", work="/w", bundle=cast("Bundle", _Bundle()))
    lines = Lines(connect, place)
    counts: list[int] = []
    for _ in range(3):
        with pytest.raises(Unreachable, match="nobody there"):
            lines.ask("ping", {}, timeout_s=1)
        counts.append(len(tries))
    assert counts == [counts[0]] * 3, "every question tried for itself"
