"""What plain search measured of a baseline engine in one job: each configuration beside default.

All configurations of a job got the same prompts, which follow from `bits`.
"""

from typing import Annotated, Literal

from pydantic import Field

from inferproof.core.candidate import EngineOptions
from inferproof.core.serving_facts import DeploymentFacts, FidelityFacts, LoadFacts
from inferproof.core.values import Digest, NonNegative, Value

Stage = Literal["explore", "confirm"]


class TrialFacts(Value):
    """One configuration. Number 0 is the contract's own; its facts are of arm `baseline`."""

    number: Annotated[int, Field(ge=0)]
    options: EngineOptions
    deployments: tuple[DeploymentFacts, ...]
    fidelity: tuple[FidelityFacts, ...]
    loads: tuple[LoadFacts, ...]


class SearchFacts(Value):
    """One round of search. What is not among `trials` was not reached before the time was up."""

    bits: Digest
    contract_seen: Digest
    model_name: str
    model_digest: Digest
    separation: Literal["separate-user", "container", "shared-account"]
    sandbox: str
    cpu_model: str
    cores: int
    versions: dict[str, str]
    stage: Stage
    trials: tuple[TrialFacts, ...]
    seconds: NonNegative
