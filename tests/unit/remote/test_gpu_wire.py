"""Messages come whole, in time, or not at all; noise never blocks the other side."""

import os
import socket
import threading
from collections.abc import Generator

import pytest

from inferproof_remote.gpu_wire import SharedBytes, Wire, WireClosed, WireSilent, spread
from inferproof_remote.tail import Tail


@pytest.fixture
def ends() -> Generator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_long_message_arrives_as_it_was_sent(ends: tuple[socket.socket, socket.socket]) -> None:
    message = {"rows": [[i, -i] for i in range(50_000)]}
    sender = threading.Thread(target=Wire(ends[0]).send, args=(message,))
    sender.start()
    assert Wire(ends[1]).receive(20) == message
    sender.join()


def test_silence_ends_at_the_deadline(ends: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(WireSilent):
        Wire(ends[0]).receive(0.01)


def test_half_a_message_is_a_closed_line(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[1].sendall(b"\x10\0\0\0{")
    ends[1].close()
    with pytest.raises(WireClosed):
        Wire(ends[0]).receive(5)


@pytest.mark.parametrize("sent", [b"\x02\0\0\0[]", b"\x01\0\0\0{", b"\xff\xff\xff\xff"])
def test_what_is_no_message_closes_the_line(
    ends: tuple[socket.socket, socket.socket], sent: bytes
) -> None:
    ends[1].sendall(sent)
    with pytest.raises(WireClosed):
        Wire(ends[0]).receive(5)


def test_noise_is_taken_while_an_answer_is_awaited(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    noise, noisy = os.pipe()

    def talk() -> None:
        os.write(noisy, b"x" * (1 << 20))  # more than a pipe holds: blocks until it is read
        Wire(ends[1]).send({"done": True})

    talker = threading.Thread(target=talk)
    talker.start()
    assert Wire(ends[0], Tail(noise, limit_bytes=10)).receive(20) == {"done": True}
    talker.join()
    os.close(noise)
    os.close(noisy)


def test_both_sides_see_the_same_bytes() -> None:
    ours = SharedBytes.make(1 << 16)
    theirs = SharedBytes(ours.fd, ours.size_bytes)
    ours.view(100, 3)[:] = b"abc"
    assert bytes(theirs.view(100, 3)) == b"abc"


def test_tensors_lie_apart_and_aligned() -> None:
    offsets, size = spread({"x": 300, "w": 1, "y": 256})
    assert offsets == {"x": 0, "w": 512, "y": 768}
    assert size == 1024
