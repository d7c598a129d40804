"""Evidence in, verdicts out. Each file names what it changes in base.json."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from inferproof.gates import judge_all, overall
from unit.gates.cases import VERDICTS, changed

FILES = sorted(path for path in VERDICTS.glob("*.json") if path.name != "base.json")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_verdicts_are_as_reviewed(path: Path, golden: Callable[[Path, str], None]) -> None:
    changes = cast("dict[str, JsonValue]", json.loads(path.read_text())["changes"])
    verdicts = judge_all(changed(changes))
    outcome, deciding = overall(verdicts)
    document = {
        "changes": changes,
        "overall": {"outcome": outcome, "decided_by": deciding.gate, "code": deciding.code},
        "verdicts": [
            verdict.model_dump(mode="json", exclude={"gate_digest"}) for verdict in verdicts
        ],
    }
    golden(path, json.dumps(document, indent=2) + "\n")


def test_there_are_golden_verdicts() -> None:
    assert len(FILES) >= 20
