"""The console command `inferproof`.

Exit codes: 0 good or pass, 1 altered, 2 usage, 3 fail, 4 inconclusive or approval required,
5 infrastructure. Each command imports what it needs when it runs, so that `serve` starts at once.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TypedDict, Unpack

from inferproof import __version__
from inferproof.console import show_error, warn
from inferproof.core.errors import InferproofError, InfrastructureError

INTERRUPTED = 130
Run = Callable[[argparse.Namespace], int]


class More(TypedDict, total=False):
    """What an argument has beside its name and help, as argparse takes it."""

    action: str
    choices: Sequence[str]
    default: str | int | float | Sequence[str]
    metavar: str
    nargs: str
    required: bool
    type: Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a command."""

    name: str
    help: str
    more: More


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One subcommand: the function `module:name` that runs it, and its own arguments.

    With `has_own_help`, --help is the function's to answer: what it says depends on the arguments.
    """

    name: str
    help: str
    function: str
    arguments: tuple[Argument, ...] = ()
    has_own_help: bool = False

    def load(self) -> Run:
        """Return the function, importing its module now."""
        module, _, name = self.function.partition(":")
        return getattr(import_module(f"inferproof.{module}"), name)


def _argument(name: str, text: str, **more: Unpack[More]) -> Argument:
    return Argument(name=name, help=text, more=more)


def _flag(name: str, text: str) -> Argument:
    return Argument(name=name, help=text, more={"action": "store_true"})


_DEPLOYMENT = (
    *("render", "push", "deploy", "status", "endpoint"),
    *("scale", "promote", "rollback", "logs", "delete"),
)
_TOKEN_FILE = _argument(
    "--token-file", "holds the token (default: .inferproof/http-token)", type=Path, metavar="FILE"
)
COMMANDS: tuple[Command, ...] = (
    Command(
        name="init",
        help="write a new campaign from a template",
        function="desk:init",
        arguments=(
            _argument(
                "--template",
                "what to begin with",
                choices=("kernel", "cpu-tiny", "engine-tiny", "demo"),
                default="kernel",
            ),
            _argument("--model", "what engines serve: a folder, or NAME=FOLDER", metavar="MODEL"),
        ),
    ),
    Command(
        name="seal",
        help="sign the campaign's files as they are",
        function="desk:seal",
        arguments=(_flag("--demo-key", "a throw-away key: for tests and demos, proves nothing"),),
    ),
    Command(
        name="serve",
        help="serve MCP on stdin and stdout, or over HTTP",
        function="asking:serve",
        arguments=(
            _flag("--http", "streamable HTTP with a bearer token, for other users and machines"),
            _argument("--listen", "where", metavar="ADDRESS:PORT", default="127.0.0.1:8765"),
            _argument(
                "--name",
                "a further name of this server",
                metavar="HOST",
                action="append",
                default=[],
            ),
            _TOKEN_FILE,
        ),
    ),
    Command(
        name="install",
        help="register the server and skills with an agent host",
        function="desk:install",
        arguments=(
            _argument("host", "which host", choices=("claude", "codex")),
            _argument("--dir", "project to install into (default: the campaign)", type=Path),
            _flag("--user", "codex: write $CODEX_HOME/config.toml instead of the project's"),
            _flag("--dry-run", "say what would be written, write nothing"),
            _flag("--force", "replace a differing entry of our own name"),
        ),
    ),
    Command(
        name="call",
        help="call a tool and wait for its end; without one, list them",
        function="asking:call",
        has_own_help=True,
        arguments=(
            _argument("tool", "name of a tool", nargs="?"),
            _argument("arguments", "a JSON object (default: {})", nargs="?", default="{}"),
        ),
    ),
    Command(
        name="submit",
        help="snapshot a folder as a candidate",
        function="asking:submit",
        arguments=(
            _argument("folder", "folder with candidate.yaml", type=Path),
            _argument("--server", "upload it to this server", metavar="URL"),
            _TOKEN_FILE,
        ),
    ),
    Command(
        name="deployment",
        help="deploy an engine for users in a place of targets.yaml; look at it, roll it, end it",
        function="deploying:deployment",
        arguments=(
            _argument("action", "what to do", choices=_DEPLOYMENT),
            _argument("name", "the deployment's name: a-z, 0-9 and -"),
            _argument("--target", "default: local", default="local"),
            _argument("--place", "a place of the target", required=True),
            _argument("--candidate", "digest of the engine; for promote, what NAME must be"),
            _argument("--replicas", "default: 1", type=int, default=1),
            _argument("--gpus-each", "GPUs of a replica (default: 0)", type=int, default=0),
            _argument("--model", "where the model lies there (default: as the target says)"),
            _argument("--to", "promote: what gets this version; push: REGISTRY/REPOSITORY"),
            _argument("--out", "render: where to write", metavar="DIR"),
            _argument("--wait-s", "default: 300", type=float, default=300.0),
        ),
    ),
    Command(
        name="demo",
        help="play the demo: one honest kernel, several cheats",
        function="asking:demo",
        arguments=(
            _argument("--keep", "keep the demo's campaign in this folder", type=Path),
            _flag(
                "--search", "first tune the engines' baseline by plain search: the bar is higher"
            ),
            _argument(
                "--model", "what its engines serve", choices=("tiny", "smollm2"), default="tiny"
            ),
        ),
    ),
    Command(
        name="approve",
        help="approve what a tool asked a person for",
        function="desk:approve",
        arguments=(_argument("approval_id", "as the tool's result names it"),),
    ),
    Command(
        name="note",
        help="leave a note that the agent sees",
        function="desk:note",
        arguments=(_argument("text", "what to say"),),
    ),
    Command(
        name="verify",
        help="check the record again: 0 good, 1 altered",
        function="desk:verify",
        arguments=(_argument("--head", "a head that you kept elsewhere, 64 hex digits"),),
    ),
    Command(
        name="render",
        help="write skills/ and GOAL.md from the sealed campaign",
        function="desk:render",
        arguments=(
            _flag("--check", "only say whether the shipped skills are as rendered; 1 if not"),
            _argument("--library", "write the shipped contracts' skills here", type=Path),
        ),
    ),
    Command(
        name="contracts",
        help="list and add shipped contracts, or import a FlashInfer-Trace definition",
        function="importing:contracts",
        arguments=(
            _argument("action", "what to do", choices=("list", "add", "import")),
            _argument(
                "what", "add: a shipped contract; import: a JSON file", nargs="?", metavar="WHAT"
            ),
            _argument("--workloads", "its workloads, JSON lines", type=Path, metavar="FILE"),
            _argument("--out", "import: the new contract folder", type=Path, metavar="DIR"),
        ),
    ),
    Command(
        name="doctor",
        help="say what this machine, or a target elsewhere, lacks",
        function="desk:doctor",
        arguments=(
            _argument("--target", "a name in targets.yaml", metavar="T"),
            _argument(
                "--pin", "accept the target's host key if it is this: SHA256:...", metavar="FP"
            ),
        ),
    ),
    Command(
        name="report",
        help="write the report as one HTML page",
        function="desk:report",
        arguments=(_argument("--out", "file (default: DIR/report.html)", type=Path),),
    ),
    Command(
        name="docs",
        help="show a page of the documentation",
        function="reading:docs",
        arguments=(_argument("page", "formats, cheats, …; without one, list them", nargs="?"),),
    ),
    Command(name="head", help="print the ledger's head", function="desk:head"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an error says what happened and what to do."""
    if argv is None:  # this process is ours
        sys.excepthook = _last_words
    args = _parser().parse_args(argv)
    command: Command = args.command
    try:
        return command.load()(args)
    except InferproofError as exc:
        show_error(exc, as_json=args.json)
        return exc.exit_code
    except KeyboardInterrupt:
        warn("interrupted; a job that goes on is found by: inferproof call job")
        return INTERRUPTED


def _last_words(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Say in two lines that inferproof itself failed; a trace helps nobody at the terminal."""
    frame = traceback.extract_tb(trace)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    what = f"inferproof failed inside ({kind.__name__} at {place}): {error}"
    show_error(
        InfrastructureError(what, hint="this is a defect, not your doing; try: inferproof doctor"),
        as_json=False,
    )
    os._exit(InfrastructureError.exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="inferproof", description="No number without proof.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"inferproof {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.help,
            allow_abbrev=False,
            add_help=not command.has_own_help,
        )
        if command.has_own_help:
            sub.add_argument("-h", "--help", action="store_true", help="show what it takes")
        for argument in command.arguments:
            sub.add_argument(argument.name, help=argument.help, **argument.more)
        sub.add_argument(
            "--campaign", type=Path, default=Path(), metavar="DIR", help="default: this folder"
        )
        sub.add_argument("--json", action="store_true", help="print one JSON object")
        sub.set_defaults(command=command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
