"""Compile a candidate: the job, its result, and the cache that spares the second one."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from inferproof.backends.base import Backend, Work, below, parse_as
from inferproof.core.candidate import Candidate
from inferproof.core.canonical import digest_bytes, digest_json
from inferproof.core.errors import InfrastructureError
from inferproof.core.evidence import BuildFacts
from inferproof.core.values import Digest
from inferproof.hosts.base import JobRequest

_COMPILERS: Mapping[str, tuple[str, ...]] = {
    "cpp": ("g++", "clang++"),
    "cuda": ("nvcc", "/usr/local/cuda/bin/nvcc"),
    "python": (),
    "triton": (),
}
_FACTS = "facts.json"
_FILES = "files"
_VERSION_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedBuild:
    """A finished build: what was said of it, and its artefacts' bytes by name."""

    facts: BuildFacts
    artefacts: Mapping[str, bytes]


def request(work: Work, *, archs: Sequence[str] = ()) -> JobRequest:
    """Return the job that compiles the candidate, for `archs` or the manifest's own."""
    return JobRequest(
        job_id=work.job_id,
        verb="compile",
        wall_s=work.wall_s,
        spec={
            "manifest": work.candidate.manifest.model_dump(mode="json"),
            "limits": work.limits.model_dump(mode="json"),
            "archs": list(archs),
        },
        inputs=below("candidate", work.contents),
    )


def parse(result: bytes) -> BuildFacts:
    """Return a compile job's result. Raises InfrastructureError if it has another form."""
    return parse_as(BuildFacts, result, what="compile")


def collect(result_dir: Path, facts: BuildFacts) -> CachedBuild:
    """Return a finished build with its artefacts, each checked against its digest.

    Raises:
        InfrastructureError: an artefact is missing or is not what the bench named.
    """
    artefacts: dict[str, bytes] = {}
    for name, digest in facts.artefacts.items():
        try:
            data = (result_dir / "files" / name).read_bytes()
        except OSError as error:
            raise InfrastructureError(f"artefact {name!r} did not come back: {error}") from error
        if digest_bytes(data) != digest:
            raise InfrastructureError(f"artefact {name!r} changed on its way back from the bench")
        artefacts[name] = data
    return CachedBuild(facts=facts, artefacts=artefacts)


def cache_key(
    candidate: Candidate,
    *,
    target: str,
    remote_digest: Digest,
    archs: Sequence[str] = (),
    compilers: Sequence[str] | None = None,
) -> Digest:
    """Return the name of this build on this machine: sources, recipe, compilers and bench code."""
    if compilers is None:
        compilers = compiler_versions(candidate.kernel.language)
    recipe = candidate.manifest.model_dump(
        mode="json", include={"language", "source", "entry", "prepare", "flags", "archs"}
    )
    return digest_json(
        {
            "files": {k: v for k, v in candidate.files.items() if k != "candidate.yaml"},
            "recipe": recipe,
            "archs": list(archs),
            "target": target,
            "remote": remote_digest,
            "compilers": list(compilers),
        }
    )


def compiler_versions(language: str) -> tuple[str, ...]:
    """Return what this machine's compilers for a language say they are; absent ones say nothing."""
    found = (shutil.which(name) for name in _COMPILERS[language])
    return tuple(_version(path, Path(path).stat().st_mtime_ns) for path in found if path)


class CompileCache:
    """Successful builds by key, below `state_dir`/cache/compile; one folder each, written whole."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "cache" / "compile"

    def find(self, key: Digest) -> CachedBuild | None:
        """Return the build of that key if it is there and its artefacts are unaltered."""
        folder = self._folder / key
        try:
            facts = parse((folder / _FACTS).read_bytes())
            return collect(folder, facts)
        except (OSError, InfrastructureError):
            return None

    def keep(self, key: Digest, build: CachedBuild) -> None:
        """Store a successful build; a failed one is not kept, as its cause may pass."""
        if not build.facts.ok:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".new-", dir=self._folder))
        try:
            (draft / _FILES).mkdir()
            for name, data in build.artefacts.items():
                (draft / _FILES / name).write_bytes(data)
            (draft / _FACTS).write_text(build.facts.model_dump_json(), encoding="utf-8")
            self._publish(draft, self._folder / key)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _publish(self, draft: Path, place: Path) -> None:
        if place.exists():
            # Damaged, or stored meanwhile by another server: the newest whole one stays.
            shutil.rmtree(place, ignore_errors=True)
        try:
            draft.rename(place)
        except OSError:
            if not place.is_dir():
                raise


@lru_cache(maxsize=32)
def _version(path: str, mtime_ns: int) -> str:
    """Return the text of `path --version`, asked once for each state of the file."""
    del mtime_ns
    try:
        said = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{os.path.realpath(path)}: no version"
    return said.stdout


BACKEND = Backend(kind="compile", slot="build", parse=parse)
