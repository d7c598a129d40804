"""The campaign folder as one value, and the digests that a seal covers."""

from collections.abc import Mapping
from pathlib import Path

from inferproof.campaign.contracts import load_contract, resolve_dims
from inferproof.campaign.parse import Parsed, Problem, parse, parse_file
from inferproof.campaign.tree import TreeLimits, read_file, read_tree
from inferproof.core.campaign import Campaign, Inventory, Target
from inferproof.core.canonical import digest_bytes
from inferproof.core.contract import KernelContract
from inferproof.core.errors import FileFormatError, UsageError
from inferproof.core.sealed import SealedContract
from inferproof.core.values import Value

CAMPAIGN_FILE = "campaign.yaml"
TARGETS_FILE = "targets.yaml"
CONTRACTS_FOLDER = "contracts"
KINDS = ("kernels", "services")
STATE_FOLDER = ".inferproof"
_MENDED_BY = {TARGETS_FILE: "write it, at least the line: local: {host: local}"}
_FILE_LIMIT_BYTES = 256 << 10
_CONTRACTS_LIMITS = TreeLimits(files=2000, size_bytes=64 << 20)


class CampaignFiles(Value):
    """All that a person wrote for one campaign, checked together."""

    root: Path
    campaign: Campaign
    contracts: dict[str, SealedContract]
    targets: dict[str, Target]

    @property
    def state_dir(self) -> Path:
        """Where ledger, candidates and jobs of this campaign live."""
        return self.root / STATE_FOLDER


def open_campaign(folder: Path) -> CampaignFiles:
    """Return the campaign in `folder` with its contracts and targets.

    Raises:
        FileFormatError: a file is missing or wrong, or the files do not fit together.
    """
    root = folder.resolve()
    _require_parts(root)
    parsed = parse_file(Campaign, root / CAMPAIGN_FILE)
    targets = parse(Inventory, root / TARGETS_FILE).root
    parsed.require(_target_problems(parsed.value, targets))
    contracts = _contracts(parsed, root)
    return CampaignFiles(root=root, campaign=parsed.value, contracts=contracts, targets=targets)


def sealable_files(folder: Path) -> dict[str, str]:
    """Return {relative path: SHA-256} of every file that a seal covers.

    Raises:
        FileFormatError: one is missing, a link, or anything else than a regular file.
    """
    root = folder.resolve()
    _require_parts(root)
    contents = {
        name: read_file(root / name, limit_bytes=_FILE_LIMIT_BYTES)
        for name in (CAMPAIGN_FILE, TARGETS_FILE)
    }
    below = read_tree(root / CONTRACTS_FOLDER, limits=_CONTRACTS_LIMITS)
    contents |= {f"{CONTRACTS_FOLDER}/{name}": data for name, data in below.items()}
    return {name: digest_bytes(data) for name, data in contents.items()}


def _require_parts(root: Path) -> None:
    kinds = [f"{CONTRACTS_FOLDER}/{kind}" for kind in KINDS]
    for name in (CAMPAIGN_FILE, TARGETS_FILE, CONTRACTS_FOLDER, *kinds):
        path = root / name
        if path.is_symlink():
            raise FileFormatError("symbolic links are refused", path=str(path))
        if not path.exists() and name not in kinds:
            hint = _MENDED_BY.get(name, f"run: inferproof init --campaign {root}")
            raise FileFormatError("there is no such file or folder", path=str(path), hint=hint)


def _target_problems(campaign: Campaign, targets: Mapping[str, Target]) -> list[Problem]:
    if campaign.target in targets:
        return []
    what = f"target: {campaign.target!r} is not in {TARGETS_FILE}, which has {', '.join(targets)}"
    return [Problem(field=("target",), what=what)]


def _contracts(parsed: Parsed[Campaign], root: Path) -> dict[str, SealedContract]:
    contracts: dict[str, SealedContract] = {}
    for index, component in enumerate(parsed.value.components):
        name, field = component.contract, ("components", index, "contract")
        if name in contracts:
            raise parsed.error([Problem(field=field, what=f"contract {name!r} appears twice")])
        places = [f"{CONTRACTS_FOLDER}/{kind}/{name}" for kind in KINDS]
        found = [root / place for place in places if (root / place).is_dir()]
        if len(found) != 1 or found[0].is_symlink():
            what = f"there is no contract folder {' or '.join(places)}"
            raise parsed.error(
                [Problem(field=field, what=what if not found else "has two folders")]
            )
        contracts[name] = load_contract(found[0])
        try:
            _require_fit(contracts[name], parsed.value)
        except UsageError as error:
            problem = Problem(field=("model", "config"), what=error.what)
            raise parsed.error([problem]) from error
    return contracts


def _require_fit(sealed: SealedContract, campaign: Campaign) -> None:
    if isinstance(sealed.contract, KernelContract):
        resolve_dims(sealed.contract, campaign.model.config)
