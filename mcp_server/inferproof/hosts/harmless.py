"""Text that a target sent, as it may be shown: it can say anything and do nothing."""

import re

# C0 and C1 controls but newline and tab, and what reorders or hides text around it.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def harmless(text: str) -> str:
    """Return `text` with each control, escape and direction character spelled out."""
    return _HARMFUL.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
