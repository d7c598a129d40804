"""Traces: what a contract names is there, whole and in order, before it is sealed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from inferproof.campaign.contracts import load_contract
from inferproof.core.errors import FileFormatError

SHIPPED = Path(__file__).parents[3] / "contracts" / "services" / "completions"
LINE = {"timestamp": 5, "input_length": 20, "output_length": 4, "hash_ids": [1, 2]}


def contract(folder: Path, lines: Sequence[Mapping[str, object]] | None) -> Path:
    """Return a contract whose practice is a trace of two requests."""
    place = folder / "services" / "completions"
    place.mkdir(parents=True)
    whole = yaml.safe_load((SHIPPED / "contract.yaml").read_text(encoding="utf-8"))
    trace = {"file": "trace.jsonl", "block_tokens": 16}
    whole["practice"] = [{"name": "timed", "requests": 2, "trace": trace, "cache": "natural"}]
    (place / "contract.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    for path in (each for each in SHIPPED.iterdir() if each.name != "contract.yaml"):
        (place / path.name).write_bytes(path.read_bytes())
    if lines is not None:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (place / "trace.jsonl").write_text(text, encoding="utf-8")
    return place


def test_a_whole_trace_is_taken(tmp_path: Path) -> None:
    sealed = load_contract(contract(tmp_path, [LINE, {**LINE, "timestamp": 9.5}]))
    assert "trace.jsonl" in sealed.files


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (None, "there is no file"),
        ([LINE], "has 1 requests, not 2"),
        ([LINE, {**LINE, "input_length": 0}], "trace.jsonl:2: input_length"),
        ([LINE, {**LINE, "hash_ids": []}], "trace.jsonl:2: hash_ids"),
        ([{**LINE, "said": 1}, LINE], "trace.jsonl:1: said"),
        ([{**LINE, "timestamp": 9}, LINE], "timestamps go back"),
    ],
)
def test_a_trace_that_is_not_is_named_with_its_line(
    tmp_path: Path, lines: Sequence[Mapping[str, object]] | None, what: str
) -> None:
    with pytest.raises(FileFormatError, match=what):
        load_contract(contract(tmp_path, lines))
