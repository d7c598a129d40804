"""Candidates as content-addressed snapshots: what was handed in is what is judged."""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from inferproof.campaign.parse import Problem, parse_bytes
from inferproof.campaign.tree import TreeLimits, read_tree
from inferproof.core.candidate import Candidate, EngineManifest, Manifest
from inferproof.core.canonical import digest_bytes, digest_json
from inferproof.core.errors import (
    FileFormatError,
    InfrastructureError,
    NotFound,
    SealBroken,
    UsageError,
)
from inferproof.core.values import Reason

MANIFEST_FILE = "candidate.yaml"
_LIMITS = TreeLimits(files=500, size_bytes=16 << 20)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"[0-9a-f]{8,64}")


class CandidateStore:
    """The snapshots below `state_dir`/candidates, one read-only folder for each digest."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "candidates"

    def add(self, folder: Path) -> Candidate:
        """Return the snapshot of a candidate folder; the same content gives the same snapshot.

        Raises:
            FileFormatError: candidate.yaml or a file in the folder is not as documented.
            NotFound: the manifest names a parent or a kernel that is not stored.
            UsageError: the manifest names a kernel that the folder does not hold.
            InfrastructureError: the store cannot be written.
        """
        contents = read_tree(folder, limits=_LIMITS)
        candidate = _candidate(contents, folder)
        parent = candidate.manifest.parent
        if parent is not None and not self.path(parent).is_dir():
            hint = "leave `parent` out, or submit the parent first"
            raise NotFound(f"parent {parent} is not a stored candidate", hint=hint)
        self._require_kernels(candidate)
        if not self.path(candidate.digest).exists():
            try:
                self._write(candidate.digest, contents)
            except OSError as error:
                what = f"cannot store candidate {candidate.digest}: {error.strerror}"
                raise InfrastructureError(what, hint=f"make room in {self._folder}") from error
        return self.get(candidate.digest)

    def _require_kernels(self, candidate: Candidate) -> None:
        """Refuse an engine that names a kernel whose files are not among its own."""
        manifest = candidate.manifest
        named = manifest.kernels if isinstance(manifest, EngineManifest) else {}
        for contract, digest in named.items():
            kernel = self.get(digest)
            sources = {name: each for name, each in kernel.files.items() if name != MANIFEST_FILE}
            absent = sorted(
                n for n, each in sources.items() if each not in candidate.files.values()
            )
            if kernel.kernel.contract != contract or absent:
                what = f"kernels: {digest[:12]} is for {kernel.kernel.contract}, not {contract}"
                if absent:
                    what = f"kernels: {', '.join(absent)} of {digest[:12]} is not in this folder"
                raise UsageError(what, hint="copy the kernel's files as they were submitted")

    def get(self, digest: str) -> Candidate:
        """Return the candidate of a digest, or of its first 8 or more hex digits, re-hashed.

        Raises:
            NotFound: nothing stored has that digest.
            SealBroken: the stored bytes are not those that were submitted.
        """
        whole = self.find(digest)
        return self._verified(whole, self._contents(whole))

    def contents(self, digest: str) -> dict[str, bytes]:
        """Return {path: bytes} of a snapshot, re-hashed: what a job may copy. Raises as `get`."""
        whole = self.find(digest)
        contents = self._contents(whole)
        self._verified(whole, contents)
        return contents

    def find(self, prefix: str) -> str:
        """Return the one stored digest that starts with `prefix` (8 or more hex digits).

        Raises:
            UsageError: `prefix` is too short, no hex, or fits several.
            NotFound: nothing stored starts with it.
        """
        if not _PREFIX.fullmatch(prefix):
            what = f"{prefix[:80]!r} is no candidate digest"
            raise UsageError(what, hint="give 8 to 64 lower-case hex digits")
        found = [digest for digest in self.list() if digest.startswith(prefix)]
        if not found:
            known = ", ".join(digest[:12] for digest in self.list()[:10]) or "none"
            raise NotFound(f"no candidate {prefix}", hint=f"stored candidates: {known}")
        if len(found) > 1:
            raise UsageError(f"{prefix} fits {len(found)} candidates", hint="give more digits")
        return found[0]

    def list(self) -> tuple[str, ...]:
        """Return the digests of all snapshots, sorted."""
        if not self._folder.is_dir():
            return ()
        return tuple(sorted(p.name for p in self._folder.iterdir() if _DIGEST.fullmatch(p.name)))

    def path(self, digest: str) -> Path:
        """Return the folder of a snapshot; whoever reads it must have asked `get` first."""
        return self._folder / digest

    def _contents(self, digest: str) -> dict[str, bytes]:
        try:
            return read_tree(self.path(digest), limits=_LIMITS)
        except FileFormatError as error:
            raise self._mismatch(digest, error.what) from error

    def _verified(self, digest: str, contents: Mapping[str, bytes]) -> Candidate:
        try:
            candidate = _candidate(contents, self.path(digest))
        except FileFormatError as error:
            raise self._mismatch(digest, error.what) from error
        if candidate.digest != digest:
            raise self._mismatch(digest, f"the stored bytes now hash to {candidate.digest}")
        return candidate

    def _mismatch(self, digest: str, why: str) -> SealBroken:
        return SealBroken(
            f"{Reason.DIGEST_MISMATCH}: candidate {digest} is not what was submitted: {why}",
            hint=f"remove {self.path(digest)} and submit the original folder again",
        )

    def _write(self, digest: str, contents: Mapping[str, bytes]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".new-", dir=self._folder))
        try:
            for name, data in contents.items():
                _write_read_only(draft / name, data)
            draft.chmod(0o755)
            _publish(draft, self.path(digest))
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _candidate(contents: Mapping[str, bytes], folder: Path) -> Candidate:
    path = folder / MANIFEST_FILE
    if MANIFEST_FILE not in contents:
        hint = "run: inferproof docs formats (it documents this file)"
        raise FileFormatError("there is no such file", path=str(path), hint=hint)
    manifest = _manifest(contents, str(path))
    files = {name: digest_bytes(data) for name, data in contents.items()}
    digest = digest_json({"manifest": manifest.model_dump(mode="json"), "files": files})
    return Candidate(digest=digest, manifest=manifest, files=files)


def _manifest(contents: Mapping[str, bytes], path: str) -> Manifest | EngineManifest:
    data = contents[MANIFEST_FILE]
    if re.search(rb"(?m)^engine\s*:", data):
        return parse_bytes(EngineManifest, data, path=path).value
    parsed = parse_bytes(Manifest, data, path=path)
    source = parsed.value.source
    if source not in contents:
        known = ", ".join(name for name in list(contents)[:10] if name != MANIFEST_FILE)
        what = f"source: there is no file {source!r}; files are: {known or 'none'}"
        raise parsed.error([Problem(field=("source",), what=what)])
    return parsed.value


def _write_read_only(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o444)


def _publish(draft: Path, place: Path) -> None:
    try:
        draft.rename(place)
    except OSError:
        # Somebody stored the same content first; anything else is an error.
        if not place.is_dir():
            raise
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
