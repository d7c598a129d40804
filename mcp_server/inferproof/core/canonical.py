"""The only JSON-to-digest code: canonical bytes and SHA-256 names."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


def canonical_bytes(value: Json) -> bytes:
    """Return the one byte string that stands for `value`.

    Sorted keys, no spaces, UTF-8, shortest float form.

    Raises:
        ValueError: a float is NaN or infinite, which JSON cannot say.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def digest_bytes(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def digest_json(value: Json) -> str:
    """Return the SHA-256 of the canonical bytes of `value`."""
    return digest_bytes(canonical_bytes(value))
