"""How one replica of an engine is started, as the server planned it, and where it runs."""

import socket
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import inferproof_remote
from inferproof_remote import job

_INSIDE_PORT = 8000
_ENVIRONMENTS = ("vllm", "sglang", "tensorrt_llm")
_ENTRY = "import sys\nfrom inferproof_remote.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One engine's start. `argv` and `env` may hold placeholders, see `filled`.

    `trusted` is our own code, which may read the bench's zipapp; `url` is what runs already, then
    nothing is started and nothing supervised.
    """

    engine: str
    supervised: bool
    argv: tuple[str, ...]
    env: Mapping[str, str]
    health: str
    url: str | None
    start_s: float
    trusted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where replicas run: files that they may read, limits, and the job's private folder."""

    candidate: Path | None
    model: Path
    limits: Mapping[str, object]
    threads: int
    work: Path

    def limit(self, name: str) -> float:
        """Return one of the campaign's limits."""
        return job.as_number(self.limits[name], name)


def parse_plan(raw: object) -> Plan:
    """Return `raw` as a plan; unknown, missing and mistyped keys are errors.

    Raises:
        JobFormatError: `raw` is not a plan.
    """
    table = job.as_table(raw, "plan")
    odd = {field.name for field in fields(Plan)} ^ set(table)
    if odd:
        raise job.JobFormatError(f"plan keys differ: {', '.join(sorted(odd))}")
    url = table["url"]
    env = job.as_table(table["env"], "env")
    return Plan(
        engine=_text(table["engine"], "engine"),
        supervised=table["supervised"] is True,
        argv=job.as_texts(table["argv"], "argv"),
        env={name: _text(value, name) for name, value in env.items()},
        health=_text(table["health"], "health"),
        url=None if url is None else _text(url, "url"),
        start_s=job.as_number(table["start_s"], "start_s"),
        trusted=table["trusted"] is True,
    )


def _text(raw: object, name: str) -> str:
    return job.as_texts([raw], name)[0]


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with each `{name}` of `values` replaced; all other braces stay."""
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


def placeholders(place: Place, *, port: int, pyz: Path) -> dict[str, str]:
    """Return what a plan's placeholders stand for."""
    return {
        "port": str(port),
        "model": str(place.model),
        "candidate": str(place.candidate or place.model),
        "python": sys.executable,
        **{f"python:{name}": _python_of(name) for name in _ENVIRONMENTS},
        "pyz": str(pyz),
        "threads": str(place.threads),
    }


def _python_of(environment: str) -> str:
    """Return the Python of an environment inside this one, else this one's."""
    own = Path(sys.prefix, environment, "bin", "python")
    return str(own) if own.exists() else sys.executable


def engine_port(*, own_network: bool) -> int:
    """Return the port an engine shall listen on: any, where it has a network of its own."""
    if own_network:
        return _INSIDE_PORT
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def own_code(work: Path) -> Path:
    """Return this code as a zipapp: the one that runs, or else one packed into `work`."""
    package = Path(inferproof_remote.__file__).parent
    if package.parent.is_file():
        return package.parent
    packed = work / f"{package.name}.pyz"
    if not packed.exists():
        with zipfile.ZipFile(packed, "w") as archive:
            for path in package.rglob("*.py"):
                archive.write(path, Path(package.name) / path.relative_to(package))
            archive.writestr("__main__.py", _ENTRY)
        packed.chmod(0o644)
    return packed
