"""The server over HTTP: for agents of other users and machines, who have a token and no path."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import signal
import socket
import tempfile
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from inferproof.campaign.files import STATE_FOLDER
from inferproof.campaign.uploads import MOST_BYTES, unpack
from inferproof.console import told, warn
from inferproof.core.errors import InferproofError, UsageError
from inferproof.peers import is_apart
from inferproof.server import MODE, build_server
from inferproof.tools.spec import Call, Keeper
from inferproof.tools.submit_candidate import submit_candidate

MCP_PATH, UPLOAD_PATH = "/mcp", "/candidates"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_TOKEN_BYTES = 32
_GRACE_S = 5
_PORTS = range(1 << 16)

Scope = dict[str, Any]
App = Callable[
    [Scope, Callable[..., Awaitable[Any]], Callable[..., Awaitable[None]]], Awaitable[None]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Who may come in: whoever has the token and calls us by one of our names."""

    token_digest: str
    names: tuple[str, ...]

    def refusal(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return the status and reason with which a request is turned away, if it is."""
        if _host(headers.get("host", "")) not in self.names:
            return 421, "this server has another name"
        origin = headers.get("origin")
        if origin is not None and _host(urlsplit(origin).netloc) not in self.names:
            return 403, "requests from other origins are refused"
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = hashlib.sha256(token.strip().encode()).hexdigest()
        if scheme.lower() != "bearer" or not hmac.compare_digest(given, self.token_digest):
            return 401, "the bearer token is missing or wrong"
        return None


def token_in(path: Path) -> str:
    """Return the token that a file holds; it is made, for its owner's eyes only, if it is missing.

    Raises:
        UsageError: others may read it, or it holds no token.
    """
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "w", encoding="ascii") as made:
            made.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
    facts = path.lstat()
    if facts.st_uid not in (0, os.geteuid()) or facts.st_mode & 0o177 or path.is_symlink():
        raise UsageError(f"others may read or change {path}", hint=f"run: chmod 600 {path}")
    token = path.read_text(encoding="ascii", errors="replace").strip()
    if len(token) < _TOKEN_BYTES or not token.isprintable():
        raise UsageError(f"{path} holds no token", hint="remove it; serve --http makes a new one")
    return token


def listener(listen: str) -> socket.socket:
    """Return a socket that listens on `ADDRESS:PORT`.

    Raises:
        UsageError: that is no address of this machine, or the port is taken.
    """
    host, _, port = listen.rpartition(":")
    try:
        address = ip_address(host.strip("[]"))
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        return socket.create_server((str(address), _PORTS.index(int(port))), family=family)
    except (OSError, ValueError) as exc:
        raise UsageError(
            f"cannot listen on {listen!r}: {exc}",
            hint="--listen takes ADDRESS:PORT, as 127.0.0.1:8765",
        ) from exc


def serve_http(
    campaign: Path, open_keeper: Callable[[], Keeper], *, door: Door, at: socket.socket
) -> None:
    """Serve until a signal comes; jobs live on. Nobody else may look into the campaign's state."""
    state = campaign / STATE_FOLDER
    state.mkdir(exist_ok=True)
    state.chmod(0o700)
    address, port = at.getsockname()[:2]
    host = f"[{address}]" if ":" in address else address
    warn(f"serving http://{host}:{port}{MCP_PATH}; the token's SHA-256 is {door.token_digest}")
    if not ip_address(address).is_loopback:
        warn("the token travels in clear text: put TLS before this, or use ssh -L")
    config = uvicorn.Config(
        application(campaign, open_keeper, door),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who asks is who connects, whatever a header says
        timeout_graceful_shutdown=_GRACE_S,
    )
    asyncio.run(_run(_Uvicorn(config), at))


def application(campaign: Path, open_keeper: Callable[[], Keeper], door: Door) -> App:
    """Return the ASGI application: MCP, and the upload of candidates, behind the door."""
    server = build_server(campaign, open_keeper, takes_paths=False)
    names = [f"{name}{port}" for name in door.names for port in ("", ":*")]
    inner = server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        transport_security=TransportSecuritySettings(
            allowed_hosts=names,
            allowed_origins=[
                f"{scheme}://{name}" for name in names for scheme in ("http", "https")
            ],
        ),
    )
    inner.add_route(UPLOAD_PATH, _Upload(open_keeper).answer, methods=["POST"])

    async def guarded(
        scope: Scope,
        receive: Callable[..., Awaitable[Any]],
        send: Callable[..., Awaitable[None]],
    ) -> None:
        if scope["type"] == "http":
            refusal = door.refusal(
                {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
            )
            if refusal is not None:
                status, reason = refusal
                challenge = {"WWW-Authenticate": "Bearer"} if status == 401 else None
                answer = JSONResponse({"error": reason}, status, headers=challenge)
                await answer(scope, receive, send)
                return
            scope[MODE] = "enforced" if is_apart(scope["client"], scope["server"]) else "evident"
        await inner(scope, receive, send)

    return guarded


class _Upload:
    """Takes candidates as tar files."""

    def __init__(self, open_keeper: Callable[[], Keeper]) -> None:
        self._open_keeper = open_keeper

    async def answer(self, request: Request) -> Response:
        """Store an uploaded candidate; answer as the tool submit_candidate does."""
        if _announced(request) > MOST_BYTES:
            return JSONResponse(told(_too_large()), 413)
        try:
            data = await _body(request)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except InferproofError as exc:
            return JSONResponse(told(exc), 413)
        try:
            with tempfile.TemporaryDirectory(prefix="inferproof-upload-") as folder:
                unpack(data, Path(folder))
                call = Call(
                    keeper=self._open_keeper(), on_progress=None, server_is_ending=lambda: False
                )
                result = await submit_candidate(call, folder)
        except InferproofError as exc:
            return JSONResponse(told(exc), 400)
        told_mode = result.model_copy(update={"mode": request.scope[MODE]})
        return JSONResponse(json.loads(told_mode.model_dump_json()))


async def _body(request: Request) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MOST_BYTES:
            raise _too_large()
    return bytes(data)


def _announced(request: Request) -> int:
    """Return how many bytes are to come, as far as the caller says."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


def _too_large() -> UsageError:
    limit = f"{MOST_BYTES >> 20} MiB"
    return UsageError(f"the upload is larger than {limit}", hint="submit sources alone")


class _Uvicorn(uvicorn.Server):
    """A server that leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def _run(server: _Uvicorn, at: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):  # at once: a cancelled call would end its job
        loop.add_signal_handler(number, os._exit, 0)
    await server.serve([at])


def open_door(
    listen: str, token_file: Path, names: tuple[str, ...] = ()
) -> tuple[Door, socket.socket]:
    """Return the door, for the token in a file and by `names` too, and the socket behind it."""
    token = token_in(token_file)
    at = listener(listen)
    address = at.getsockname()[0]
    own = f"[{address}]" if ":" in address else address
    every = dict.fromkeys((*_LOOPBACK, own, *(name.lower() for name in names)))
    digest = hashlib.sha256(token.encode()).hexdigest()
    return Door(token_digest=digest, names=tuple(every)), at


def _host(header: str) -> str:
    """Return the name in a Host header without its port."""
    name, colon, port = header.rpartition(":")
    return (name if colon and port.isdecimal() else header).lower()
