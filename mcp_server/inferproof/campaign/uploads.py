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
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for path, content in _files(archive):
                place = folder / path
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("xb") as file:
                    file.write(content)
    except (tarfile.TarError, EOFError) as exc:
        raise UsageError(f"the upload is no whole tar file: {exc}", hint=_HINT) from exc
    except (FileExistsError, NotADirectoryError) as exc:
        raise UsageError("the upload names a file twice, or one below another", hint=_HINT) from exc


def _files(archive: tarfile.TarFile) -> Iterator[tuple[PurePosixPath, bytes]]:
    count = left = 0
    left = LIMITS.size_bytes
    for entry in archive:
        count, left = count + 1, left - entry.size
        if count > LIMITS.files or left < 0:
            limits = f"{LIMITS.files} files of {LIMITS.size_bytes >> 20} MiB in all"
            raise UsageError(f"the upload is larger than {limits}", hint="submit sources alone")
        source = archive.extractfile(entry) if entry.type in _PLAIN else None
        if source is None:
            raise UsageError(f"the upload holds {entry.name!r}, which is no plain file", hint=_HINT)
        yield _path(entry.name), source.read()


def _path(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
        raise UsageError(f"the upload names {name!r}, which leads outside", hint=_HINT)
    return path
