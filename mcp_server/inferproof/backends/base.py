"""What every way to produce evidence shares: what a job is about, and strict reading of results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from inferproof.core.campaign import Limits
from inferproof.core.candidate import Candidate
from inferproof.core.canonical import Json
from inferproof.core.deploy_facts import DeployFacts
from inferproof.core.errors import InfrastructureError
from inferproof.core.evidence import BuildFacts, GradeFacts, ProfileFacts, RunFacts
from inferproof.core.sealed import SealedContract
from inferproof.core.search_facts import SearchFacts
from inferproof.core.serving_facts import ServeFacts

Kind: TypeAlias = Literal["compile", "grade", "profile", "run", "serve", "deploy", "search"]
Slot: TypeAlias = Literal["build", "grade", "profile", "run", "serve", "deploy", "search"]
Facts: TypeAlias = (
    BuildFacts | GradeFacts | ProfileFacts | RunFacts | ServeFacts | DeployFacts | SearchFacts
)
Parsed = TypeVar("Parsed", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The candidate a job is about. `contents` are its files' bytes as they were re-hashed."""

    job_id: str
    wall_s: float
    candidate: Candidate
    contents: Mapping[str, bytes]
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """The contract a job measures against, resolved for the campaign's model.

    `contents` are the sealed files' bytes and nothing else: what lies beside them stays behind.
    """

    sealed: SealedContract
    contents: Mapping[str, bytes]
    dims_fixed: Mapping[str, int]
    dims_max: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One way to produce evidence: the field of `Evidence` it fills, and its result's reader."""

    kind: Kind
    slot: Slot
    parse: Callable[[bytes], Facts]


def parse_as(model: type[Parsed], data: bytes, *, what: str) -> Parsed:
    """Return a bench's JSON as a value; unknown keys and non-finite numbers are refused.

    Raises:
        InfrastructureError: `data` has another form; the first problem is named.
    """
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise InfrastructureError(
            f"the {what} result of the bench cannot be read: {where}: {first['msg']}",
            hint="the target's code and this server's differ, or the disk is full; run it again",
        ) from error


def below(folder: str, contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return `contents` with `folder/` before each name."""
    return {f"{folder}/{name}": data for name, data in contents.items()}


def subject(work: Work, against: Against) -> dict[str, Json]:
    """Return the part of a job's spec that says what is measured against what."""
    sealed = against.sealed
    return {
        "manifest": work.candidate.manifest.model_dump(mode="json"),
        "candidate_digest": work.candidate.digest,
        "candidate_files": dict(work.candidate.files),
        "contract": sealed.contract.model_dump(mode="json", by_alias=True),
        "contract_digest": sealed.digest,
        "contract_files": dict(sealed.files),
        "dims_fixed": dict(against.dims_fixed),
        "dims_max": dict(against.dims_max),
        "limits": work.limits.model_dump(mode="json"),
    }


def inputs(work: Work, against: Against, artefacts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files a measuring job gets: candidate, contract and earlier artefacts."""
    return (
        below("candidate", work.contents)
        | below("contract", against.contents)
        | below("build", artefacts)
    )
