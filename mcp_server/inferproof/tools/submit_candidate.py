"""The tool that takes a snapshot of a folder."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from inferproof.core.candidate import Candidate, EngineManifest
from inferproof.core.values import Digest
from inferproof.tools.results import Fact, ToolResult, fitted
from inferproof.tools.spec import Call, Tool


class SubmitResult(ToolResult):
    """The result of a submission: `candidate` is what the other tools take."""

    candidate: Digest
    contract: str
    language: str


async def submit_candidate(
    call: Call,
    folder: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4096,
            description="Folder with candidate.yaml and the sources, absolute or relative to the "
            "folder the server was started in. At most 4096 characters.",
        ),
    ],
) -> SubmitResult:
    """Snapshot a folder with candidate.yaml and sources as an immutable candidate.

    Comes before compile_kernel, check_numerics, profile and promote, which take the returned
    candidate digest (64 hex digits). Regular files only; links are refused. The same bytes give
    the same digest; an edited folder must be submitted again.
    """
    candidate = call.keeper.submit_candidate(Path(folder))
    manifest = candidate.manifest
    return fitted(
        SubmitResult(
            summary=f"candidate {candidate.digest} for contract {manifest.contract} "
            f"({candidate.made_of}, {len(candidate.files)} files) is committed",
            ok=True,
            next_steps=_next_steps(candidate),
            facts=(
                Fact(name="files", value=len(candidate.files)),
                *(Fact(name=f"file {path}", value=sha) for path, sha in candidate.files.items()),
            ),
            entry=call.keeper.entry_of(candidate.digest),
            head=call.keeper.head(),
            candidate=candidate.digest,
            contract=manifest.contract,
            language=candidate.made_of,
        )
    )


def _next_steps(candidate: Candidate) -> tuple[str, ...]:
    check = f"call check_numerics with candidate {candidate.digest}, purpose practice"
    if isinstance(candidate.manifest, EngineManifest):
        return (check, f"call run_aiperf with candidate {candidate.digest}, purpose practice")
    return (f"call compile_kernel with candidate {candidate.digest}", check)


TOOL = Tool(function=submit_candidate, title="Submit a candidate", read_only=False, idempotent=True)
