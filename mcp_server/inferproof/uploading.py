"""Handing a candidate to a server that opens no path of ours."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from inferproof.campaign.tree import read_tree
from inferproof.campaign.uploads import LIMITS, packed
from inferproof.console import error_of
from inferproof.core.errors import InfrastructureError, UsageError

_PATH = "/candidates"
_TIMEOUT_S = 60.0
_REFUSED = (400, 413)


def upload(folder: Path, server: str, token_file: Path) -> Mapping[str, Any]:
    """Return the server's answer to the candidate in `folder`.

    Raises:
        InferproofError: it is no candidate, the server refused it, or it cannot be reached.
    """
    data = packed(read_tree(folder, limits=LIMITS))
    try:
        token = token_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        what = f"cannot read the token in {token_file}: {exc}"
        hint = "ask who runs the server for its token; name its file: --token-file FILE"
        raise UsageError(what, hint=hint) from exc
    try:
        url = httpx.URL(server).join(_PATH)
        answer = httpx.post(
            url, content=data, headers={"Authorization": f"Bearer {token}"}, timeout=_TIMEOUT_S
        )
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        what = f"cannot reach {server}: {exc}"
        raise InfrastructureError(what, hint="start it: inferproof serve --http") from exc
    return _read(answer)


def _read(answer: httpx.Response) -> Mapping[str, Any]:
    try:
        told: object = answer.json()
    except json.JSONDecodeError:
        told = None
    if answer.is_success and isinstance(told, dict):
        return told  # pyright: ignore[reportUnknownVariableType]
    if answer.status_code in _REFUSED and isinstance(told, dict) and "error_code" in told:
        raise error_of(answer.text)
    raise UsageError(
        f"the server answered {answer.status_code}: {answer.text[:200]}",
        hint="is it `inferproof serve --http`, and is the token its own?",
    )
