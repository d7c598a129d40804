"""docs/formats.md shows one real example of each file and names every field."""

import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel

from inferproof.campaign.contract_rules import contract_problems
from inferproof.campaign.parse import parse_bytes
from inferproof.core.campaign import (
    Approvals,
    Budget,
    Campaign,
    Component,
    Inventory,
    Limits,
    Model,
    Target,
)
from inferproof.core.candidate import EngineManifest, Manifest
from inferproof.core.canonical import canonical_bytes, digest_bytes
from inferproof.core.contract import (
    DType,
    Family,
    GradedDraw,
    KernelContract,
    Tensor,
    TimedDraw,
    Tolerance,
    Workloads,
)
from inferproof.core.evidence import Evidence
from inferproof.core.service import (
    Audit,
    Believability,
    Conformance,
    Fidelity,
    Search,
    ServiceContract,
    Tasks,
    Traffic,
)
from inferproof.core.space import Parameter, Space
from inferproof.core.values import Entry
from inferproof.ledger.bodies import parse_body

TEXT = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
EXAMPLES = dict(re.findall(r"^```(?:yaml|json) (\w+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE))
FILES: dict[str, type[BaseModel]] = {
    "campaign": Campaign,
    "targets": Inventory,
    "contract": KernelContract,
    "candidate": Manifest,
    "engine": EngineManifest,
    "service": ServiceContract,
    "space": Space,
}


def test_each_format_has_one_example() -> None:
    assert EXAMPLES.keys() == {*FILES, "evidence", "entry"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_example_is_what_the_parser_takes(name: str) -> None:
    parse_bytes(FILES[name], EXAMPLES[name].encode(), path=f"{name}.yaml")


def test_the_contract_example_keeps_every_rule() -> None:
    contract = parse_bytes(KernelContract, EXAMPLES["contract"].encode(), path="c").value
    assert contract_problems(contract) == []


def test_the_evidence_example_is_evidence() -> None:
    evidence = Evidence.model_validate_json(EXAMPLES["evidence"], strict=True)
    assert getattr(evidence, {"compile": "build"}.get(evidence.kind, evidence.kind)) is not None


def test_the_entry_example_has_its_digest_and_signature() -> None:
    entry = Entry.model_validate_json(EXAMPLES["entry"], strict=True)
    signed = entry.model_dump(mode="json", exclude={"digest", "sig"})
    assert digest_bytes(canonical_bytes(signed)) == entry.digest
    assert parse_body(entry.body).kind == "seal"
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(str(entry.body["keeper_public_key"])))
    key.verify(bytes.fromhex(entry.sig), bytes.fromhex(entry.digest))


@pytest.mark.parametrize(
    ("model", "before"),
    [
        (Campaign, ""),
        (Model, "model."),
        (Component, "components[]."),
        (Approvals, "approvals."),
        (Budget, "budget."),
        (Limits, "limits."),
        (Target, ""),
        (KernelContract, ""),
        (Workloads, "workloads."),
        (GradedDraw, ""),
        (TimedDraw, ""),
        (Tolerance, ""),
        (Manifest, ""),
        (EngineManifest, ""),
        (ServiceContract, ""),
        (Fidelity, "fidelity."),
        (Believability, "believability."),
        (Audit, "audit."),
        (Conformance, "conformance."),
        (Tasks, "tasks."),
        (Traffic, ""),
        (Search, "search."),
        (Space, ""),
        (Parameter, ""),
        (Evidence, ""),
        (Entry, ""),
    ],
)
def test_every_field_is_documented(model: type[BaseModel], before: str) -> None:
    groups = {"model", "approvals", "budget", "limits", "workloads", "fidelity"}
    groups |= {"believability", "audit", "sampler", "quality", "tasks"}
    names = {info.alias or name for name, info in model.model_fields.items()} - groups
    assert [name for name in names if f"`{before}{name}`" not in TEXT] == []


@pytest.mark.parametrize("values", [DType, Family])
def test_every_closed_set_is_listed(values: type[DType] | type[Family]) -> None:
    assert ", ".join(values) in TEXT


def test_every_tensor_field_is_documented() -> None:
    assert [name for name in Tensor.model_fields if f"`{name}" not in TEXT] == []
