"""Output kept as a tail."""

import os

from inferproof_remote.tail import Tail


def test_only_the_end_is_kept_but_all_is_counted() -> None:
    reader, writer = os.pipe()
    tail = Tail(reader, limit_bytes=5)
    os.write(writer, b"first ")
    tail.wait(1)
    os.write(writer, b"and last")
    os.close(writer)
    tail.drain_all()
    assert (tail.text, tail.total_bytes, tail.at_end) == (b" last", 14, True)
    tail.close()


def test_nothing_to_read_is_not_the_end() -> None:
    reader, writer = os.pipe()
    tail = Tail(reader, limit_bytes=5)
    tail.drain()
    assert (tail.text, tail.at_end) == (b"", False)
    os.close(writer)
    tail.close()


def test_writer_that_never_stops_does_not_hold_us() -> None:
    reader, writer = os.pipe()
    tail = Tail(reader, limit_bytes=5)
    for _ in range(3):
        os.write(writer, b"x" * 60_000)
        tail.wait(1)
    assert tail.total_bytes == 180_000
    assert tail.text == b"xxxxx"
    os.close(writer)
    tail.close()
