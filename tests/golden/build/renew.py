"""Write the expected values beside the captured compiler output; review the diff."""

import json
from pathlib import Path, PurePosixPath

from inferproof_remote import diagnostics


def expected(captured: Path) -> dict[str, list[dict[str, object]]]:
    """Return what the parsers make of one captured output."""
    text = captured.read_text(encoding="utf-8")
    found = diagnostics.parse_diagnostics(text, snapshot=PurePosixPath("/snapshot"))
    resources = diagnostics.parse_resources(text)
    return {
        "diagnostics": [diagnostics.as_json(value) for value in found],
        "resources": [diagnostics.as_json(value) for value in resources],
    }


if __name__ == "__main__":
    for path in sorted(Path(__file__).parent.glob("*.txt")):
        text = json.dumps(expected(path), indent=1)
        path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
