"""Candidate folders that are an honest one with a few words changed, as `edits.yaml` says.

of: honest-rms-norm
edits:
  - was: text that stands once in the honest source
    now: what stands there instead
"""

import shutil
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field

from inferproof.core.values import Value

EDITS = "edits.yaml"


class Edit(Value):
    """One place of the source, and what stands there instead."""

    was: Annotated[str, Field(min_length=1)]
    now: str


class Edits(Value):
    """How a candidate differs from the one whose source it shares."""

    of: str
    edits: tuple[Edit, ...] = ()


def laid_out(folder: Path, into: Path) -> Path:
    """Return `folder` as it is submitted: itself, or below `into` its base with its edits."""
    if not (folder / EDITS).is_file():
        return folder
    whole = into / folder.name
    shutil.copytree(folder, whole, ignore=shutil.ignore_patterns(EDITS))
    manifest = yaml.safe_load((folder / "candidate.yaml").read_text(encoding="utf-8"))
    (whole / manifest["source"]).write_text(edited(folder, manifest["source"]), encoding="utf-8")
    return whole


def edited(folder: Path, source: str) -> str:
    """Return the source of a candidate, whether its folder holds it or edits another's."""
    if not (folder / EDITS).is_file():
        return (folder / source).read_text(encoding="utf-8")
    told = Edits.model_validate(yaml.safe_load((folder / EDITS).read_text(encoding="utf-8")))
    text = edited(folder.with_name(told.of), source)
    for edit in told.edits:
        if text.count(edit.was) != 1:
            raise ValueError(f"{folder.name}: {edit.was!r} stands {text.count(edit.was)} times")
        text = text.replace(edit.was, edit.now)
    return text
