"""The MCP server: every tool, resource and prompt over one transport, both protocol eras.

Nothing heavy is imported here: the keeper is opened by the first call that needs it.
"""

import asyncio
import inspect
import json
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream
from mcp.shared.message import SessionMessage
from mcp.types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import ValidationError

from inferproof import __version__
from inferproof.console import told
from inferproof.core.errors import InferproofError, UsageError
from inferproof.prompts import Shelf, add_prompts, add_resources
from inferproof.tools import TOOLS
from inferproof.tools.results import ToolResult, clip
from inferproof.tools.spec import Call, Keeper, Progress, Tool

INSTRUCTIONS = (
    "inferproof measures and judges kernels; no number counts without its proof. Order: "
    "campaign_status, submit_candidate, compile_kernel, check_numerics (purpose practice until it "
    "passes), promote. Read each result's summary, verdict, code and next_steps. If a result holds "
    "a job that has not ended, call job with its job_id (wait_s up to 50) until it has. Your own "
    "timings never count. approval_required: tell the person the command and stop."
)

MODE = "inferproof.mode"
"""Where a request over HTTP says how its sender is kept apart."""

logger = logging.getLogger(__name__)


class InferproofServer(MCPServer[None]):
    """An MCPServer whose errors say what happened, what to do, and whether to try again."""

    def __init__(self, *, takes_paths: bool) -> None:
        super().__init__(
            "inferproof",
            title="inferproof",
            version=__version__,
            instructions=INSTRUCTIONS,
            log_level="WARNING",
        )
        self._ending = False
        self._takes_paths = takes_paths

    def is_ending(self) -> bool:
        """Whether the transport has closed, so that a cancelled call says nothing about its job."""
        return self._ending

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; a failure becomes one JSON object as the error's text."""
        try:
            _refuse_unknown_arguments(name, arguments)
            if name == "submit_candidate" and not self._takes_paths:
                raise UsageError(
                    "this server opens no folder of yours",
                    hint="run: inferproof submit DIR --server URL --token-file FILE",
                )
            return await super().call_tool(name, arguments, context)
        except InferproofError as exc:
            return _failure(exc)
        except ToolError as exc:
            return _failure(_cause(name, exc))

    async def run_stdio_async(self) -> None:
        """Serve stdin and stdout until stdin ends or a signal comes; jobs live on in both cases."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, os._exit, 0)
        async with stdio_server() as (incoming, outgoing):
            await self._lowlevel_server.run(
                _UntilEnd(incoming, self._note_end),
                outgoing,
                self._lowlevel_server.create_initialization_options(),
            )

    def _note_end(self) -> None:
        self._ending = True


class _UntilEnd:
    """A stream of messages that tells when its other side has gone, before anyone is cancelled."""

    def __init__(
        self, stream: ReadStream[SessionMessage | Exception], on_end: Callable[[], None]
    ) -> None:
        self._stream = stream
        self._on_end = on_end

    async def receive(self) -> SessionMessage | Exception:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


def build_server(
    campaign_dir: Path, open_keeper: Callable[[], Keeper], *, takes_paths: bool = True
) -> InferproofServer:
    """Return a server for one campaign; `open_keeper` is called by each request."""
    server = InferproofServer(takes_paths=takes_paths)
    for tool in TOOLS:
        server.add_tool(
            _exposed(tool, open_keeper, server.is_ending),
            name=tool.name,
            title=tool.title,
            description=tool.description,
            annotations=ToolAnnotations(
                title=tool.title,
                read_only_hint=tool.read_only,
                destructive_hint=False,
                idempotent_hint=tool.idempotent,
                open_world_hint=False,
            ),
        )
    add_resources(server, Shelf(campaign_dir, open_keeper))
    add_prompts(server, open_keeper)
    return server


def _exposed(
    tool: Tool, open_keeper: Callable[[], Keeper], server_is_ending: Callable[[], bool]
) -> Callable[..., Awaitable[ToolResult]]:
    """Return the tool with the SDK's context in place of ours, its schema unchanged."""

    async def exposed(ctx: Context[None, Any], **arguments: object) -> ToolResult:
        call = Call(
            keeper=open_keeper(), on_progress=_progress(ctx), server_is_ending=server_is_ending
        )
        result = await tool.function(call, **arguments)
        mode = _mode(ctx)
        return result if mode == result.mode else result.model_copy(update={"mode": mode})

    signature = inspect.signature(tool.function)
    context, *_ = inspect.signature(exposed).parameters.values()
    own = list(signature.parameters.values())[1:]
    parameters = [context.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    exposed.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
    exposed.__annotations__ = {p.name: p.annotation for p in parameters}
    exposed.__name__ = tool.name
    return exposed


def _mode(ctx: Context[None, Any]) -> str:
    """Return whether whoever asks is kept apart from what the server stores; stdio never is."""
    request = ctx.request_context.request
    return "evident" if request is None else request.scope[MODE]


def _progress(ctx: Context[None, Any]) -> Progress:
    """Return a callback that passes on only progress that has grown, as the protocol asks."""
    last = -1.0

    async def report(done: float, total: float, message: str) -> None:
        nonlocal last
        if done > last:
            last = done
            await ctx.report_progress(done, total, clip(message, 200))

    return report


def _refuse_unknown_arguments(name: str, arguments: dict[str, Any]) -> None:
    tool = next((tool for tool in TOOLS if tool.name == name), None)
    if tool is None:
        return
    known = list(inspect.signature(tool.function).parameters)[1:]
    for argument in arguments:
        if argument not in known:
            near = get_close_matches(argument, known, n=1)
            raise UsageError(
                f"{name} takes no argument {argument!r}",
                hint=f"did you mean {near[0]}?" if near else f"it takes: {', '.join(known)}",
            )


def _cause(name: str, exc: ToolError) -> InferproofError:
    cause = exc.__cause__
    if isinstance(cause, InferproofError):
        return cause
    if isinstance(cause, ValidationError):
        problems = "; ".join(
            f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in cause.errors()[:5]
        )
        return UsageError(
            f"arguments of {name} are wrong: {clip(problems, 600)}",
            hint="the limits are in the description of each argument",
        )
    if isinstance(exc, UnexpectedToolError):
        logger.error("%s failed: %s", name, type(cause).__name__, exc_info=cause)
        return InferproofError(
            f"{name} failed inside inferproof ({type(cause).__name__})",
            hint="this is a defect, not your doing: a person runs `inferproof doctor`",
        )
    return UsageError(clip(str(exc), 600), hint="call tools/list for the tools that exist")


def _failure(error: InferproofError) -> CallToolResult:
    """Return an error result whose text is one JSON object."""
    text = json.dumps(
        {**told(error), "what": clip(error.what, 1200), "hint": clip(error.hint, 600)}
    )
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
