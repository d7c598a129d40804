"""A new campaign folder from a template; files that exist are never touched."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal, TypeAlias

from inferproof.campaign.files import CAMPAIGN_FILE, CONTRACTS_FOLDER, KINDS, TARGETS_FILE
from inferproof.campaign.parse import parse_bytes
from inferproof.campaign.tree import IGNORED
from inferproof.core.campaign import Campaign
from inferproof.core.errors import InfrastructureError, UsageError
from inferproof_remote.model_folder import fault

Template: TypeAlias = Literal["kernel", "cpu-tiny", "engine-tiny", "demo"]
TEMPLATES: tuple[Template, ...] = ("kernel", "cpu-tiny", "engine-tiny", "demo")


@dataclass(frozen=True, slots=True)
class Model:
    """The model that engines serve: its name in the campaign, its folder on this machine."""

    name: str
    folder: Path


def shipped_model() -> Model:
    """Return the tiny trained Qwen3 that comes with the package."""
    folder = Path(str(resources.files("inferproof.demo").joinpath("model")))
    return Model("tiny-qwen3", folder)


def named_model(told: str) -> Model:
    """Return the model of `FOLDER`, named like its folder, or of `NAME=FOLDER`."""
    name, _, folder = told.rpartition("=")
    place = Path(folder).expanduser().resolve()
    return Model(name or place.name, place)


def init(folder: Path, template: Template, model: Model | None = None) -> tuple[Path, ...]:
    """Write campaign.yaml, targets.yaml and the contracts of a template; return what was written.

    Without a `model`, templates for engines serve the one that is shipped.

    Raises:
        UsageError: one of the files is there already, the template serves no model, or the model's
            folder has no config.json; then nothing is written.
        InfrastructureError: the folder cannot be written.
    """
    return write_new(folder, _contents(folder, template, model))


def write_new(folder: Path, contents: Mapping[str, bytes]) -> tuple[Path, ...]:
    """Write files that are not there yet; return their paths.

    Raises:
        UsageError: one is there already; then nothing is written.
        InfrastructureError: the folder cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder", hint="name one with --campaign DIR")
    for name in contents:
        if (folder / name).exists() or (folder / name).is_symlink():
            hint = "choose another folder, or edit what is there"
            raise UsageError(f"{folder / name} exists and is never overwritten", hint=hint)
    try:
        return tuple(_write_new(folder / name, data) for name, data in contents.items())
    except OSError as error:
        what = f"cannot write {error.filename or folder}: {error.strerror}"
        raise InfrastructureError(what) from error


# A small campaign is timed on two cores: one for the kernel, one for the clock.
_ALL_CORES = frozenset({"kernel"})
_SERVING = frozenset({"engine-tiny", "demo"})


def _contents(folder: Path, template: Template, model: Model | None) -> dict[str, bytes]:
    served = _served(template, model)
    values = {"name": _name(folder), "model": json.dumps(served.name) if served else ""}
    campaign = _rendered(f"{template}.yaml.j2", values)
    parsed = parse_bytes(Campaign, campaign, path=CAMPAIGN_FILE)
    threads = "null" if template in _ALL_CORES else "1"
    models = {served.name: str(served.folder)} if served else {}
    target = {"threads": threads, "models": json.dumps(models)}
    contents = {TARGETS_FILE: _rendered("targets.yaml.j2", target)}
    for component in parsed.value.components:
        contents |= shipped_contract(component.contract)
    # Last, so that a folder with a campaign.yaml is complete.
    return contents | {CAMPAIGN_FILE: campaign}


def shipped_contracts() -> tuple[str, ...]:
    """Return the names of the contracts that come with the package."""
    library = resources.files("inferproof.contracts")
    return tuple(
        sorted(
            each.name
            for kind in KINDS
            for each in library.joinpath(kind).iterdir()
            if each.is_dir()
        )
    )


def shipped_contract(name: str) -> dict[str, bytes]:
    """Return the files of a contract that comes with the package, as paths of a campaign.

    Raises:
        InfrastructureError: this installation has no such contract.
    """
    library = resources.files("inferproof.contracts")
    places = [f"{kind}/{name}" for kind in KINDS]
    place = next((p for p in places if library.joinpath(p).is_dir()), places[0])
    found = _files(library.joinpath(place))
    return {f"{CONTRACTS_FOLDER}/{place}/{file}": data for file, data in found}


def _served(template: Template, model: Model | None) -> Model | None:
    """Return the model that the template's engines serve, None where it has no engine."""
    if template not in _SERVING:
        if model is not None:
            what = f"template {template} serves no model, so {model.name} has no place in it"
            raise UsageError(what, hint=f"take --template {' or '.join(sorted(_SERVING))}")
        return None
    served = model or shipped_model()
    if wrong := fault(served.folder):
        what = f"{served.folder} is no whole folder of a model: {wrong}"
        raise UsageError(what, hint="name the folder with config.json, weights and tokenizer")
    return served


def _rendered(template: str, values: Mapping[str, str]) -> bytes:
    import jinja2  # only a new campaign needs it

    source = resources.files("inferproof.campaign").joinpath("templates", template).read_text()
    page = jinja2.Template(source, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return page.render(values).encode()


def _name(folder: Path) -> str:
    slug = re.sub(r"[^a-z0-9_.-]+", "-", folder.resolve().name.lower())
    return slug.strip("_.-")[:64] or "campaign"


def _files(folder: Traversable) -> Iterator[tuple[str, bytes]]:
    if not folder.is_dir():
        what = f"contract {folder.name!r} is missing from this installation"
        raise InfrastructureError(what, hint="install inferproof again")
    for item in folder.iterdir():
        if item.name in IGNORED:
            continue
        if item.is_dir():
            yield from ((f"{item.name}/{name}", data) for name, data in _files(item))
        else:
            yield item.name, item.read_bytes()


def _write_new(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)
    return path
