"""A candidate: an immutable snapshot of sources and the manifest that says how to use them."""

from typing import Annotated, Literal

from pydantic import Field

from inferproof.core.values import Digest, Name, Value

RelativePath = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$", max_length=200),
]
Flag = Annotated[str, Field(pattern=r"^-[A-Za-z0-9_=+.,:-]{1,100}$")]


class Manifest(Value):
    """candidate.yaml. File form and C ABI: docs/formats.md.

    `entry` is the C function or the Python function in `source`; `prepare` optionally names one
    that is called, untimed, with the contract's `prepare` inputs.
    """

    contract: Name
    language: Literal["cpp", "cuda", "python"]
    source: RelativePath
    entry: Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]{0,63}$")]
    prepare: Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]{0,63}$")] | None = None
    flags: Annotated[tuple[Flag, ...], Field(max_length=32)] = ()
    archs: Annotated[
        tuple[Annotated[str, Field(pattern=r"^sm_[0-9]{2,3}[af]?$")], ...], Field(max_length=16)
    ] = ()
    parent: Digest | None = None
    note: Annotated[str, Field(max_length=2000)] = ""


class Candidate(Value):
    """A stored snapshot. `digest` covers the manifest and every file's path and bytes."""

    digest: Digest
    manifest: Manifest
    files: dict[str, Digest]
