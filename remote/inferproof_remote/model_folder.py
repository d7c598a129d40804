"""What a folder lacks to be a model that an engine can load, told from its files' beginnings."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
_LENGTH_BYTES, _LONGEST_HEADER = 8, 100 << 20


def fault(folder: Path) -> str:
    """Return the first thing that is wrong with a folder of a model; nothing if it is whole.

    Weights are not read: a file of them is whole if it is as long as its header says.
    """
    try:
        return next(_faults(folder), "")
    except OSError as error:
        return f"it cannot be read: {error.strerror}"


def _faults(folder: Path) -> Iterator[str]:
    if not (folder / CONFIG).is_file():
        yield f"it has no {CONFIG}"
    if _table(folder / CONFIG) is None:
        yield f"{CONFIG} is no JSON object"
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        yield "it has no weights: no *.safetensors"
    for path in weights:
        wrong = _wrong_with(path)
        if wrong:
            yield f"{path.name} {wrong}"
    yield from _missing_parts(folder)
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        yield "it has no tokenizer: no tokenizer.json"


def _missing_parts(folder: Path) -> Iterator[str]:
    if not (folder / INDEX).is_file():
        return
    parts = (_table(folder / INDEX) or {}).get("weight_map")
    if not isinstance(parts, dict):
        yield f"{INDEX} has no weight_map"
        return
    for name in sorted({str(part) for part in cast("dict[str, object]", parts).values()}):
        if not (folder / name).is_file():
            yield f"{name}, which {INDEX} names, is not there"


def _wrong_with(path: Path) -> str:
    """Return what is wrong with a file of weights, from its header and its length."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or length > min(_LONGEST_HEADER, size - _LENGTH_BYTES):
            return "is no safetensors file, or only the beginning of one"
        header = _parsed(stream.read(length))
    ends = [_end_of(entry) for name, entry in (header or {}).items() if name != "__metadata__"]
    if not ends or None in ends:
        return "has no header of safetensors"
    asked = _LENGTH_BYTES + length + max(end for end in ends if end is not None)
    return "" if size == asked else f"is {size} bytes long, its header says {asked}"


def _end_of(entry: object) -> int | None:
    offsets = cast("dict[str, object]", entry).get("data_offsets") if _is_table(entry) else None
    pair = cast("list[object]", offsets) if isinstance(offsets, list) else []
    return pair[1] if len(pair) == 2 and isinstance(pair[1], int) else None


def _is_table(raw: object) -> bool:
    return isinstance(raw, dict)


def _table(path: Path) -> dict[str, object] | None:
    return _parsed(path.read_bytes())


def _parsed(data: bytes) -> dict[str, object] | None:
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", found) if isinstance(found, dict) else None
