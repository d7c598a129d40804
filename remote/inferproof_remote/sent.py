"""What the keeper sent with a job, copied and checked: the bytes that were hashed are used."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inferproof_remote.incidents import Incident

CHECKED = "checked"


@dataclass(frozen=True, slots=True)
class Checked:
    """The files that are used: their digests, and an incident for each that was not sent so."""

    digests: Mapping[str, str]
    strangers: tuple[Incident, ...]


def checked(place: Path, files: Mapping[str, object]) -> Checked:
    """Copy a job's files to `place`, a folder of `checked/`, from the same folder of `in/`.

    Each is read once, so that the bytes that were hashed are the bytes that are used.
    """
    digests: dict[str, str] = {}
    strangers: list[Incident] = []
    for name, digest in files.items():
        source = place.parents[1] / "in" / place.name / name
        data = source.read_bytes() if source.is_file() else b""
        digests[name] = hashlib.sha256(data).hexdigest()
        if digests[name] != digest:
            detail = f"{place.name}/{name} is not what the keeper sent"
            strangers.append(Incident("digest_mismatch", None, detail))
        copy = place / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
    return Checked(digests, tuple(strangers))
