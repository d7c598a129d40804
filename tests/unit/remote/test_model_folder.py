"""A folder that no engine could load is told before anything is started on it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from inferproof.campaign.templates import shipped_model
from inferproof_remote.model_folder import INDEX, fault

WEIGHTS = "model.safetensors"


def safetensors(size: int = 8) -> bytes:
    tensors = {
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    }
    header = json.dumps(tensors).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


def whole(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"hidden_size": 8}')
    (folder / WEIGHTS).write_bytes(safetensors())
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_a_whole_model_has_no_fault(tmp_path: Path):
    assert fault(whole(tmp_path)) == ""
    assert fault(shipped_model().folder) == ""
    (tmp_path / WEIGHTS).rename(tmp_path / "part-1.safetensors")
    (tmp_path / INDEX).write_text('{"weight_map": {"w": "part-1.safetensors"}}')
    assert fault(tmp_path) == ""


def put(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def gone(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (gone("config.json"), "it has no config.json"),
    "no JSON": (put("config.json", b"{"), "config.json is no JSON object"),
    "a list": (put("config.json", b"[]"), "config.json is no JSON object"),
    "no weights": (gone(WEIGHTS), "it has no weights"),
    "no tokenizer": (gone("tokenizer.json"), "it has no tokenizer"),
    "empty": (put(WEIGHTS, b""), "is no safetensors file, or only the beginning"),
    "cut in its length": (put(WEIGHTS, safetensors()[:5]), "only the beginning"),
    "cut in its header": (put(WEIGHTS, safetensors()[:40]), "only the beginning"),
    "cut in its data": (put(WEIGHTS, safetensors(7)), "bytes long, its header says"),
    "too long": (put(WEIGHTS, safetensors(9)), "bytes long, its header says"),
    "a pointer": (put(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\n"), "no safetensors"),
    "no header": (put(WEIGHTS, (2).to_bytes(8, "little") + b"{}"), "has no header"),
    "an odd header": (put(WEIGHTS, (7).to_bytes(8, "little") + b'{"w":1}'), "has no header"),
    "a part gone": (put(INDEX, b'{"weight_map": {"w": "part-2.safetensors"}}'), "part-2"),
    "an odd index": (put(INDEX, b"{}"), "has no weight_map"),
}


@pytest.mark.parametrize(("harm", "says"), BROKEN.values(), ids=BROKEN)
def test_a_broken_model_says_what_is_wrong(
    tmp_path: Path, harm: Callable[[Path], object], says: str
):
    harm(whole(tmp_path))
    assert says in fault(tmp_path)


def test_a_folder_that_is_not_there_is_no_model(tmp_path: Path):
    assert fault(tmp_path / "absent") == "it has no config.json"
