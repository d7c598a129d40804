"""Timed traces in a contract's folder: read strictly, before anything is sealed by them."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated

from pydantic import Field, ValidationError

from inferproof.campaign.parse import Problem
from inferproof.core.service import ServiceContract
from inferproof.core.traffic import Trace, Traffic
from inferproof.core.values import NonNegative, Value

Tokens = Annotated[int, Field(ge=1, le=1 << 20)]


class TracedRequest(Value):
    """One line of a trace in mooncake's format; `hash_ids` has one for each block of the input."""

    timestamp: NonNegative
    input_length: Tokens
    output_length: Tokens
    hash_ids: Annotated[tuple[int, ...], Field(min_length=1)]


def trace_problems(contract: ServiceContract, contents: Mapping[str, bytes]) -> Iterator[Problem]:
    """Yield what is wrong with the traces that a contract names."""
    tiers = {"practice": contract.practice, "graded": contract.graded, "final": contract.final}
    for tier, shapes in tiers.items():
        for index, shape in enumerate(shapes):
            what = _problem(shape, shape.trace, contents) if shape.trace else ""
            if what:
                yield Problem(field=(tier, index, "trace"), what=f"{tier}: {shape.name}: {what}")


def _problem(shape: Traffic, trace: Trace, contents: Mapping[str, bytes]) -> str:
    """Return the first thing that is wrong with a shape's trace; empty if nothing is."""
    if trace.file not in contents:
        return f"there is no file {trace.file!r} in the folder"
    lines = [each for each in contents[trace.file].splitlines() if each.strip()]
    if len(lines) < shape.requests:
        return f"{trace.file} has {len(lines)} requests, not {shape.requests}"
    rows: list[TracedRequest] = []
    for number, line in enumerate(lines[: shape.requests], 1):
        try:
            rows.append(TracedRequest.model_validate_json(line))
        except ValidationError as error:
            told = error.errors()[0]
            field = ".".join(map(str, told["loc"])) or "the line"
            return f"{trace.file}:{number}: {field}: {told['msg']}"
    if any(later.timestamp < earlier.timestamp for earlier, later in pairwise(rows)):
        return f"{trace.file}: timestamps go back"
    return ""
