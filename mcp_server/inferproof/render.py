"""Contracts become skills and a goal text: sandboxed templates over plain, sealed data.

Contract strings are data. They are never templates, never YAML by string paste, and stay on the
line they were put on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import yaml
from jinja2 import BaseLoader, StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from inferproof.campaign.contracts import load_contract
from inferproof.campaign.files import CampaignFiles
from inferproof.core.campaign import Campaign, Component
from inferproof.core.canonical import Json, digest_json
from inferproof.core.contract import Dim, DType, KernelContract
from inferproof.core.errors import FileFormatError, NotFound, SealBroken
from inferproof.core.sealed import SealedContract
from inferproof.core.service import ServiceContract

MAX_BODY_LINES = 500
MAX_DESCRIPTION = 1024
GENERATOR: Final = "inferproof"
C_TYPES: Final[Mapping[DType, str]] = {
    DType.BF16: "uint16_t",
    DType.F16: "uint16_t",
    DType.F32: "float",
    DType.F64: "double",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.U8: "uint8_t",
    DType.F8E4M3: "uint8_t",
    DType.F8E5M2: "uint8_t",
    DType.UE4M3: "uint8_t",
    DType.UE8M0: "uint8_t",
    DType.F4E2M1X2: "uint8_t",
}
PARAM_C_TYPES: Final[Mapping[str, str]] = {"f32": "float", "i64": "int64_t"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A skill to render: its folder's name and when a host should open it."""

    name: str
    description: str


SKILLS: Final = (
    Skill(
        name="start-campaign",
        description="Use when beginning or resuming an inferproof campaign: the user asks to "
        "optimise inference kernels with inferproof, gives a /goal that names it, asks where the "
        "campaign stands, or a result says approval_required, inconclusive or seal_broken.",
    ),
    Skill(
        name="implement-component",
        description="Use when writing, speeding up or repairing a kernel candidate for an "
        "inferproof contract: choosing the C ABI or Python signature, writing candidate.yaml, or "
        "after check_numerics or compile_kernel said fail, with codes such as precision_lost, "
        "stale_output, not_faster or compile_failed.",
    ),
    Skill(
        name="implement-engine",
        description="Use when writing, speeding up or repairing an inference engine for an "
        "inferproof service contract: candidate.yaml with engine and start, the endpoint it must "
        "offer, or after check_numerics, deploy or run_aiperf said fail, with codes such as "
        "unfaithful, wrong_tokens, audit_failed, mixed_result or not_serving.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is rendered: contracts, and the campaign that sealed them (none for the library)."""

    contracts: tuple[SealedContract, ...]
    campaign: Campaign | None = None
    demo: bool = False


def subject(sealed: CampaignFiles, *, demo: bool) -> Subject:
    """Return a sealed campaign as what is rendered."""
    return Subject(contracts=tuple(sealed.contracts.values()), campaign=sealed.campaign, demo=demo)


def library_subject() -> Subject:
    """Return the contracts that are shipped, without a campaign."""
    library = Path(str(files("inferproof.contracts")))
    folders = sorted(path.parent for path in library.glob("*/*/contract.yaml"))
    return Subject(contracts=tuple(load_contract(folder) for folder in folders))


def kernels_of(subject: Subject) -> tuple[SealedContract, ...]:
    """Return the contracts about kernels."""
    return tuple(c for c in subject.contracts if isinstance(c.contract, KernelContract))


def services_of(subject: Subject) -> tuple[SealedContract, ...]:
    """Return the contracts about services."""
    return tuple(c for c in subject.contracts if isinstance(c.contract, ServiceContract))


def rendered_files(subject: Subject) -> dict[str, str]:
    """Return every skill file as {path under skills/: text}.

    Raises:
        FileFormatError: a value cannot stand in a skill, or a skill breaks the format's rules.
    """
    texts: dict[str, str] = {}
    for skill in SKILLS:
        texts[f"{skill.name}/SKILL.md"] = skill_text(skill, subject)
        for path, text in _references(skill.name, subject):
            texts[f"{skill.name}/references/{path}"] = text
    return texts


def skill_text(skill: Skill, subject: Subject) -> str:
    """Return SKILL.md: frontmatter from a YAML dumper, then the rendered body."""
    body = skill_body(skill.name, subject)
    metadata = {
        "generator": GENERATOR,
        "contracts": ", ".join(c.contract.name for c in subject.contracts),
        "contracts-digest": digest_json([c.digest for c in subject.contracts]),
    }
    _require_valid(skill, (skill.name, skill.description, *metadata.values()), body)
    head = {"name": skill.name, "description": skill.description, "metadata": metadata}
    front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=100)
    return f"---\n{front}---\n\n{body}"


def skill_body(name: str, subject: Subject) -> str:
    """Return the body of a skill, as a prompt would show it.

    Raises:
        NotFound: there is no skill of that name.
    """
    if name not in {skill.name for skill in SKILLS}:
        raise NotFound(f"no skill {name!r}", hint="there are: " + ", ".join(s.name for s in SKILLS))
    return _rendered(_skills() / name / "SKILL.md.j2", _context(subject))


def goal(subject: Subject) -> str:
    """Return the goal text, whose condition a judge can decide from the transcript alone."""
    if subject.campaign is None:
        raise SealBroken("there is no campaign to render a goal from", hint="run: inferproof seal")
    return _rendered(_skills() / "GOAL.md.j2", _context(subject))


def drift(folder: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths under `folder` that are missing or differ from `texts`."""
    return tuple(
        path
        for path, text in texts.items()
        if not (folder / path).is_file() or (folder / path).read_text(encoding="utf-8") != text
    )


def c_signature(contract: KernelContract, entry: str = "ENTRY") -> str:
    """Return the C declaration that a cpp candidate must define."""
    arguments = [
        f"{'' if name in contract.mutates else 'const '}{C_TYPES[tensor.dtype]}* {name}"
        for name, tensor in contract.inputs.items()
    ]
    arguments += [f"{C_TYPES[tensor.dtype]}* {name}" for name, tensor in contract.outputs.items()]
    return f'extern "C" void {entry}({", ".join(arguments + _scalars(contract))})'


def c_prepare_signature(contract: KernelContract) -> str | None:
    """Return the C declaration of the untimed preparation, if the contract allows one."""
    if not contract.prepare:
        return None
    arguments = [f"const {C_TYPES[contract.inputs[n].dtype]}* {n}" for n in contract.prepare]
    return f'extern "C" void* PREPARE({", ".join(arguments + _scalars(contract))})'


def python_signature(contract: KernelContract) -> str:
    """Return the Python declaration that a python candidate must define."""
    tensors = ", ".join((*contract.inputs, *contract.outputs))
    scalars = f", *, {', '.join(contract.params)}" if contract.params else ""
    return f"def ENTRY({tensors}{scalars})"


def _scalars(contract: KernelContract) -> list[str]:
    dims = [f"int64_t {name}" for name in contract.dims]
    return dims + [f"{PARAM_C_TYPES[p.dtype]} {name}" for name, p in contract.params.items()]


def _references(name: str, subject: Subject) -> Iterator[tuple[str, str]]:
    template = _skills() / name / "references" / "contract.md.j2"
    if template.is_file():
        for sealed in kernels_of(subject):
            context = {"contract": _contract_view(sealed, subject)}
            yield f"{sealed.contract.name}.md", _rendered(template, context)


def _skills() -> Traversable:
    return files("inferproof.skills")


def _rendered(template: Traversable, context: Mapping[str, object]) -> str:
    environment = SandboxedEnvironment(
        loader=BaseLoader(),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    try:
        text = environment.from_string(template.read_text(encoding="utf-8")).render(context)
    except TemplateError as exc:
        raise FileFormatError(f"the template does not render: {exc}", path=str(template)) from exc
    return text.rstrip() + "\n"


def _context(subject: Subject) -> dict[str, object]:
    campaign = subject.campaign
    return {
        "campaign": None if campaign is None else _one_line(campaign.model_dump(mode="json")),
        "demo": subject.demo,
        "contracts": [_contract_view(sealed, subject) for sealed in kernels_of(subject)],
        "services": [_service_view(sealed, subject) for sealed in services_of(subject)],
    }


def _contract_view(sealed: SealedContract, subject: Subject) -> dict[str, object]:
    contract = sealed.kernel
    component = _component(contract.name, subject)
    config = subject.campaign.model.config if subject.campaign is not None else {}
    fields: dict[str, Json] = contract.model_dump(mode="json", by_alias=True)
    return {
        **{key: _one_line(item) for key, item in fields.items()},
        "digest": sealed.digest,
        "c_signature": c_signature(contract),
        "c_prepare": c_prepare_signature(contract),
        "python_signature": python_signature(contract),
        "extents": {name: _extent(dim, config) for name, dim in contract.dims.items()},
        "speedup_at_least": component.speedup_at_least if component else None,
    }


def _service_view(sealed: SealedContract, subject: Subject) -> dict[str, object]:
    component = _component(sealed.contract.name, subject)
    fields: dict[str, Json] = sealed.contract.model_dump(mode="json")
    return {
        **{key: _one_line(item) for key, item in fields.items()},
        "digest": sealed.digest,
        "speedup_at_least": component.speedup_at_least if component else None,
    }


def _component(name: str, subject: Subject) -> Component | None:
    if subject.campaign is None:
        return None
    return next((c for c in subject.campaign.components if c.contract == name), None)


def _extent(dim: Dim, config: Mapping[str, int]) -> str:
    if dim.value is not None:
        return str(dim.value)
    if dim.from_model is not None:
        known = config.get(dim.from_model)
        return f"model.config.{dim.from_model}" + (f" = {known}" if known is not None else "")
    return f"{dim.min} to {dim.max}"


def _one_line(value: Json) -> Json:
    """Return plain data whose strings have no line breaks and cannot close a code span."""
    if isinstance(value, str):
        return " ".join(value.split()).replace("`", "'")
    if isinstance(value, Mapping):
        return {key: _one_line(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_one_line(item) for item in value]
    return value


def _require_valid(skill: Skill, values: Sequence[str], body: str) -> None:
    path = f"skills/{skill.name}/SKILL.md"
    for value in values:
        if "\n" in value or "\r" in value or "---" in value:
            raise FileFormatError(
                f"frontmatter value {value[:80]!r} has a line break or '---'",
                path=path,
                hint="use one plain line",
            )
    if len(skill.description) > MAX_DESCRIPTION:
        raise FileFormatError("the description is over 1024 characters", path=path)
    lines = body.count("\n")
    if lines >= MAX_BODY_LINES:
        what = f"the body has {lines} lines, at most {MAX_BODY_LINES - 1} are allowed"
        raise FileFormatError(what, path=path, hint="move detail to references/")
