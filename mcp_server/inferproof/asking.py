"""Console commands that go through tools: serve, call, submit, demo.

`call` speaks MCP to the same server object in this process, so its answers are a host's answers.
"""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferproof.console import error_of, show, warn
from inferproof.core.errors import InferproofError, InfrastructureError, UsageError

if TYPE_CHECKING:
    from inferproof.pipeline import Keeper

FOLLOW_WAIT_S = 45.0
FINAL_STATES = ("done", "failed", "cancelled", "lost", "infra")
CANCELLED_EXIT = 4
FAILED_EXIT = 3
_GO_ON = ("promote", "search_config")  # each call goes on from the record, job after job
EXIT_OF_VERDICT = {"pass": 0, "fail": FAILED_EXIT, "inconclusive": 4, "approval_required": 4}
Answer = Mapping[str, Any]
Ask = Callable[[str, Mapping[str, Any]], Awaitable[Answer]]


def serve(args: argparse.Namespace) -> int:
    """Serve MCP over stdin and stdout until the host goes away, or over HTTP until a signal."""
    from inferproof.server import build_server

    opened: list[Keeper] = []

    def open_keeper() -> "Keeper":
        from inferproof.pipeline import Keeper

        if not opened:
            opened.append(Keeper.open(args.campaign))
        return opened[0]

    if args.http:
        from inferproof.web import open_door, serve_http

        door, at = open_door(args.listen, args.token_file or _token_file(args), tuple(args.name))
        serve_http(args.campaign.resolve(), open_keeper, door=door, at=at)
    else:
        build_server(args.campaign.resolve(), open_keeper).run("stdio")
    return 0


def call(args: argparse.Namespace) -> int:
    """Call a tool, wait for the end of its jobs, and print its answer as JSON."""
    if args.tool is None or args.help:
        return _explained(args)
    try:
        arguments: object = json.loads(args.arguments)
    except (json.JSONDecodeError, RecursionError) as exc:
        raise UsageError(
            f"the arguments are not JSON: {exc}", hint="""write them as '{"name": "value"}'"""
        ) from exc
    if not isinstance(arguments, dict):
        raise UsageError("the arguments are not a JSON object", hint="write {} for none")
    return _asked(args, args.tool, arguments)  # pyright: ignore[reportUnknownArgumentType]


def submit(args: argparse.Namespace) -> int:
    """Snapshot a folder as a candidate and print its digest; upload it if a server is named."""
    if args.server is not None:
        from inferproof.uploading import upload

        answer = upload(args.folder, args.server, args.token_file or _token_file(args))
        show(json.dumps(answer, ensure_ascii=False, indent=1), answer, as_json=args.json)
        return exit_code(answer)
    return _asked(args, "submit_candidate", {"folder": str(args.folder.resolve())})


def _token_file(args: argparse.Namespace) -> Path:
    return args.campaign.resolve() / ".inferproof" / "http-token"


def demo(args: argparse.Namespace) -> int:
    """Play the demo through a real client and server."""
    from inferproof.campaign.templates import shipped_model
    from inferproof.demo import run
    from inferproof.demo.smollm2 import smollm2

    model = smollm2() if args.model == "smollm2" else shipped_model()
    return run(keep=args.keep, model=model, search=args.search, as_json=args.json)


def exit_code(answer: Answer) -> int:
    """Return 0 pass or done, 3 fail, 4 inconclusive or approval required, 5 infrastructure."""
    if answer.get("code") == "infrastructure":
        return InfrastructureError.exit_code
    verdict = answer.get("verdict")
    if verdict is not None:
        return EXIT_OF_VERDICT[verdict]
    if answer["ok"]:
        return 0
    job = answer.get("job")
    return CANCELLED_EXIT if job is not None and job["state"] == "cancelled" else FAILED_EXIT


def _explained(args: argparse.Namespace) -> int:
    """Print the tools with what each is for, or one tool with its arguments."""
    from inferproof.tools import TOOLS
    from inferproof.tools.usage import one_tool, tool_list

    tools = [tool for tool in TOOLS if args.tool in (None, tool.name)]
    if not tools:
        known = ", ".join(tool.name for tool in TOOLS)
        raise UsageError(f"there is no tool {args.tool!r}", hint=f"the tools are: {known}")
    text = tool_list(tools) if args.tool is None else one_tool(tools[0])
    show(text, {tool.name: tool.description for tool in tools}, as_json=args.json)
    return 0


def _asked(args: argparse.Namespace, tool: str, arguments: Mapping[str, Any]) -> int:
    answer = asyncio.run(_in_process(args, tool, arguments))
    show(json.dumps(answer, ensure_ascii=False, indent=1), answer, as_json=args.json)
    return exit_code(answer)


async def _in_process(args: argparse.Namespace, tool: str, arguments: Mapping[str, Any]) -> Answer:
    from mcp import Client  # takes a third of a second

    from inferproof.pipeline import Keeper
    from inferproof.server import build_server

    keeper = Keeper.open(args.campaign)

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        warn(f"{progress:g} of {total or 0:g}: {message or ''}")

    async with Client(build_server(keeper.root, lambda: keeper)) as client:

        async def ask(name: str, values: Mapping[str, Any]) -> Answer:
            result = await client.call_tool(name, dict(values), progress_callback=progress)
            if result.is_error or result.structured_content is None:
                raise error_of("".join(getattr(part, "text", "") for part in result.content))
            return result.structured_content

        try:
            return await to_the_end(ask, tool, arguments)
        except InferproofError as exc:
            refused = exc  # raised outside, or the client's task group would wrap it
    raise refused


async def to_the_end(ask: Ask, tool: str, arguments: Mapping[str, Any]) -> Answer:
    """Return the tool's final answer, following its jobs however long they take."""
    answer = await ask(tool, arguments)
    while (job_id := _open_job(answer)) is not None:
        warn(str(answer["summary"]))
        answer = await ask("job", {"job_id": job_id, "wait_s": FOLLOW_WAIT_S})
        if tool in _GO_ON and _open_job(answer) is None:
            answer = await ask(tool, arguments)
    return answer


def _open_job(answer: Answer) -> str | None:
    job = answer.get("job")
    return None if job is None or job["state"] in FINAL_STATES else str(job["job_id"])
