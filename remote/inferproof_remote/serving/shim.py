"""What starts an engine inside its sandbox and lends it out through a socket file.

It travels as text (`python -c`), imports nothing of ours, and belongs to the engine's side: nobody
trusts it. It ends as the engine ends. The same code, outside, is the door of a single replica.
"""

import asyncio
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias

_CHUNK_BYTES = 1 << 16
_BACKLOG = 1024
_PR_SET_PDEATHSIG = 1
_NOT_FOUND, _BY_SIGNAL = 127, 128

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def relay(connect: Callable[[], Awaitable[Streams]]) -> Handler:
    """Return a handler that joins each caller to a connection of its own, byte by byte as it comes.

    A side that has finished sending still receives; a side that is gone ends both.
    """
    held: set[asyncio.Task[None] | None] = set()  # asyncio itself forgets a task that waits

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.add(task := asyncio.current_task())
        try:
            await _join(reader, writer, connect)
        finally:
            held.discard(task)

    return joined


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    connect: Callable[[], Awaitable[Streams]],
) -> None:
    try:
        there, back = await connect()
    except OSError:
        writer.close()
        return
    pumps = [
        asyncio.create_task(_pump(reader, back)),
        asyncio.create_task(_pump(there, writer)),
    ]
    done, left = await asyncio.wait(pumps, return_when=asyncio.FIRST_EXCEPTION)
    for pump in left:
        pump.cancel()
    await asyncio.gather(*done, *left, return_exceptions=True)
    back.close()
    writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


def bound(path: str) -> socket.socket:
    """Return a socket file of our own making for callers to come to."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(path)
    return made


def given(path: str) -> socket.socket:
    """Return the socket that whoever listens at `path` hands out, before the engine is there."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        _, files, _, _ = socket.recv_fds(line, 1, 1)
    return socket.socket(fileno=files[0])


async def lend(callers: socket.socket, port: int, folder: str, argv: list[str]) -> None:
    """Run an engine to its end, then end with its exit code; callers reach it by the socket."""
    try:
        engine = await asyncio.create_subprocess_exec(
            *argv, cwd=folder, preexec_fn=_die_with_parent
        )
    except OSError as error:
        sys.stderr.write(f"cannot start {argv[0]}: {error}\n")
        sys.stderr.flush()
        os._exit(_NOT_FOUND)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, engine.kill)
    handler = relay(lambda: asyncio.open_connection("127.0.0.1", port))
    await asyncio.start_unix_server(handler, sock=callers, backlog=_BACKLOG)
    code = await engine.wait()
    os._exit(code if code >= 0 else _BY_SIGNAL - code)  # whatever still waits, waits for nothing


async def open_door(listener_fd: int, path: str) -> None:
    """Serve a listening socket's callers from the socket file at `path`, until killed."""
    handler = relay(lambda: asyncio.open_unix_connection(path))
    server = await asyncio.start_server(handler, sock=socket.socket(fileno=listener_fd))
    await server.serve_forever()


def main(arguments: list[str]) -> None:
    """Do as told: `lend` or `take SOCKET PORT FOLDER COMMAND...`, or `door FD PATH`."""
    _die_with_parent()
    if arguments[0] in ("lend", "take"):
        name, port, folder = arguments[1:4]
        callers = bound(name) if arguments[0] == "lend" else given(name)
        asyncio.run(lend(callers, int(port), folder, arguments[4:]))
    else:
        asyncio.run(open_door(int(arguments[1]), arguments[2]))


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
