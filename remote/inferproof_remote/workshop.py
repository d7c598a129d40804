"""Where compilers run: one sandbox per command, the snapshot read-only, one scratch folder."""

import hashlib
import re
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from inferproof_remote import job
from inferproof_remote.diagnostics import Diagnostic, KernelResources
from inferproof_remote.mounts import SandboxPlan
from inferproof_remote.sandbox import Completed, Sandbox

COMPILE_S = 60.0
MOST_OUTPUT_BYTES = 1 << 20
MOST_LISTING_BYTES = 1 << 26
_LEAST_MEMORY_MIB, _LEAST_TMP_MIB, _LEAST_PROCESSES = 2048, 256, 64
_RELATIVE = re.compile(r"^(?!\.)[A-Za-z0-9_.-]+(/(?!\.)[A-Za-z0-9_.-]+)*$")
_SYMBOL = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_]{0,63}$")

Language = Literal["cpp", "cuda", "python", "triton"]


class RecipeError(ValueError):
    """The manifest asks for something that no build may do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The part of a manifest that decides a build."""

    language: Language
    source: str
    entry: str
    prepare: str | None
    flags: tuple[str, ...]
    archs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A compiler on this machine: its real path and what it says its version is."""

    path: Path
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """How a build went; `artefacts` are names in the build's output folder.

    `code` is a value of the server's list of reasons.
    """

    code: str
    compiler: str
    commands: tuple[tuple[str, ...], ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    resources: tuple[KernelResources, ...] = ()
    artefacts: tuple[str, ...] = ()
    help: str = ""


def parse_recipe(manifest: Mapping[str, object], source_dir: Path) -> Recipe:
    """Return what `manifest` asks to build from `source_dir`.

    Raises:
        RecipeError: the source lies outside the snapshot, is no regular file, or a name is odd.
    """
    language = manifest.get("language")
    if language not in ("cpp", "cuda", "python", "triton"):
        raise RecipeError(f"language {language!r} is not one of cpp, cuda, python, triton")
    prepare = manifest.get("prepare")
    return Recipe(
        language=language,
        source=_source(manifest.get("source"), source_dir),
        entry=_symbol(manifest.get("entry")),
        prepare=None if prepare is None else _symbol(prepare),
        flags=job.as_texts(manifest.get("flags", []), "flags"),
        archs=job.as_texts(manifest.get("archs", []), "archs"),
    )


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Workshop:
    """Runs build commands on one snapshot and keeps what they are allowed to leave."""

    def __init__(self, *, source_dir: Path, out_dir: Path, limits: Mapping[str, object]) -> None:
        self.source_dir = source_dir
        self.out_dir = out_dir
        self._limits = limits

    def run(self, argv: Sequence[str], *, product: str | None, label: str) -> Completed:
        """Run one command in the snapshot; keep `product` if it left a sane file of that name.

        In `argv`, `{out}` stands for the only folder that the command can write to.
        """
        with tempfile.TemporaryDirectory(prefix=f".{label}-", dir=self.out_dir) as name:
            scratch = Path(name)
            with Sandbox(self._plan(scratch, Path(argv[0])), name=job.sandbox_name(label)) as box:
                completed = box.run(
                    [part.replace("{out}", name) for part in argv],
                    timeout_s=COMPILE_S,
                    output_limit_bytes=MOST_OUTPUT_BYTES,
                    cwd=PurePosixPath(self.source_dir),
                )
            if product is not None and completed.rc == 0:
                _keep(scratch / product, self.out_dir / product)
        return completed

    def read(self, argv: Sequence[str], subject: Path, *, label: str) -> Completed:
        """Run a command that reads one product, in a sandbox of its own; its output may be long."""
        with Sandbox(self._plan(None, Path(argv[0]), subject), name=job.sandbox_name(label)) as box:
            return box.run(argv, timeout_s=COMPILE_S, output_limit_bytes=MOST_LISTING_BYTES)

    def _plan(
        self, scratch: Path | None, program: Path, subject: Path | None = None
    ) -> SandboxPlan:
        return SandboxPlan(
            read_only=(subject or self.source_dir, *homes(program)),
            writable=() if scratch is None else (scratch,),
            memory_mib=max(_LEAST_MEMORY_MIB, _whole(self._limits, "memory_mib")),
            tmp_mib=max(_LEAST_TMP_MIB, _whole(self._limits, "tmp_mib")),
            processes=max(_LEAST_PROCESSES, _whole(self._limits, "processes")),
            env={"LC_ALL": "C"},
        )


def homes(program: Path) -> tuple[Path, ...]:
    """Return where `program` is installed, unless every sandbox sees that anyway."""
    folders = {path.parent.parent for path in (program, program.resolve())}
    seen = (Path("/usr"), Path(sys.prefix), Path(sys.base_prefix))
    return tuple(
        folder
        for folder in sorted(folders)
        if folder != Path("/") and not any(folder.is_relative_to(place) for place in seen)
    )


def failure_code(completed: Completed, otherwise: str) -> str:
    """Return why a command failed: the first incident's code, or `otherwise`."""
    return completed.incidents[0].code if completed.incidents else otherwise


def explained(
    completed: Completed, found: tuple[Diagnostic, ...], name: str
) -> tuple[Diagnostic, ...]:
    """Return `found`, preceded by incidents, and never without an error if the command failed."""
    said = tuple(
        Diagnostic(file="", line=None, severity="error", message=f"{name}: {incident.detail}")
        for incident in completed.incidents
    )
    if said or completed.rc == 0 or any(value.severity == "error" for value in found):
        return said + found
    last = completed.output.decode(errors="replace").strip().splitlines()[-1:]
    message = f"{name} ended with exit code {completed.rc}: {' '.join(last) or 'no output'}"
    return (Diagnostic(file="", line=None, severity="error", message=message[:500]), *found)


def _keep(made: Path, kept: Path) -> None:
    """Move a regular file out of the scratch folder; a link or anything else stays behind."""
    try:
        found = made.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        made.replace(kept)
        kept.chmod(0o644)


def _source(raw: object, source_dir: Path) -> str:
    if not isinstance(raw, str) or not _RELATIVE.fullmatch(raw) or ".." in PurePosixPath(raw).parts:
        raise RecipeError(f"source {raw!r} is not a path inside the snapshot")
    path = source_dir / raw
    if not path.is_file() or path.resolve() != source_dir.resolve() / raw:
        raise RecipeError(f"source {raw!r} is not a regular file of the snapshot")
    return raw


def _symbol(raw: object) -> str:
    if not isinstance(raw, str) or not _SYMBOL.fullmatch(raw):
        raise RecipeError(f"{raw!r} is not the name of a function")
    return raw


def _whole(limits: Mapping[str, object], name: str) -> int:
    return int(job.as_number(limits[name], name)) if name in limits else 0
