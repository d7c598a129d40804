"""What the keeper sent with a job, copied and checked: the bytes that were hashed are used."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from inferproof_remote.incidents import Incident

CHECKED = "checked"


def checked(job_dir: Path, part: str, files: Mapping[str, object]) -> tuple[Incident, ...]:
    """Copy a part of a job's inputs to `checked/`; return an incident for each stranger.

    Each file is read once, so that the bytes that were hashed are the bytes that are used.
    """
    strangers: list[Incident] = []
    for name, digest in files.items():
        source = job_dir / "in" / part / name
        data = source.read_bytes() if source.is_file() else b""
        if hashlib.sha256(data).hexdigest() != digest:
            detail = f"{part}/{name} is not what the keeper sent"
            strangers.append(Incident("digest_mismatch", None, detail))
        copy = job_dir / CHECKED / part / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
    return tuple(strangers)
