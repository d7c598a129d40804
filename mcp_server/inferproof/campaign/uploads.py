"""A candidate as one tar of plain files, for a keeper that opens no path of the agent's."""

import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from inferproof.campaign.tree import TreeLimits
from inferproof.core.errors import UsageError

LIMITS = TreeLimits(files=500, size_bytes=16 << 20)
MOST_BYTES = LIMITS.size_bytes + (LIMITS.files + 20) * 2 * tarfile.BLOCKSIZE
_HINT = "pack it with: inferproof submit DIR --server URL"
_BLOCK = tarfile.BLOCKSIZE
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME)
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)


def packed(contents: Mapping[str, bytes]) -> bytes:
    """Return files as a tar that says nothing but their names and bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Write the files of an uploaded tar below `folder`, which is empty.

    Raises:
        UsageError: it holds anything but plain files with relative names, each once, within limits.
    """
    count, left = 0, LIMITS.size_bytes
    for name, content in _files(data):
        count, left = count + 1, left - len(content)
        if count > LIMITS.files or left < 0:
            limits = f"{LIMITS.files} files of {LIMITS.size_bytes >> 20} MiB in all"
            raise UsageError(f"the upload is larger than {limits}", hint="submit sources alone")
        place = folder / _path(name)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as file:
                file.write(content)
        except (FileExistsError, NotADirectoryError) as exc:
            what = "the upload names a file twice, or one below another"
            raise UsageError(what, hint=_HINT) from exc


def _files(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of each plain file, header by header: nothing in it is nested."""
    at = 0
    while (block := data[at : at + _BLOCK]) != bytes(_BLOCK):
        entry = _header(block)
        if entry.type in _EXTENDED:
            what = "the upload holds a name that is too long or not plain ASCII for a plain tar"
            raise UsageError(what, hint=_HINT)
        if entry.type not in _PLAIN:
            raise UsageError(
                f"the upload holds {entry.name[:100]!r}, which is no plain file with a short name",
                hint=_HINT,
            )
        start, end = at + _BLOCK, at + _BLOCK + entry.size
        if entry.size < 0 or end > len(data):
            raise UsageError(f"the upload is no whole tar file: it ends in {entry.name!r}")
        yield entry.name, data[start:end]
        at = end + -entry.size % _BLOCK


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, encoding="utf-8", errors="strict")
    except (tarfile.TarError, UnicodeDecodeError) as exc:
        raise UsageError(f"the upload is no whole tar file: {exc}", hint=_HINT) from exc


def _path(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise UsageError(f"the upload names {name!r}, which leads outside", hint=_HINT)
    return path
