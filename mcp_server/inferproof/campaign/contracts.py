"""A contract folder as a sealed value: parsed, checked, and named by the digest of its files."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from inferproof.campaign.contract_rules import contract_problems, ranged_dims, shape_problems
from inferproof.campaign.parse import Parsed, Problem, parse_bytes
from inferproof.campaign.spaces import shipped_spaces
from inferproof.campaign.task_file import load_tasks
from inferproof.campaign.traces import trace_problems
from inferproof.campaign.tree import TreeLimits, read_tree
from inferproof.core.canonical import digest_bytes, digest_json
from inferproof.core.contract import Dim, KernelContract
from inferproof.core.errors import FileFormatError, UsageError
from inferproof.core.sealed import SealedContract
from inferproof.core.service import Search, ServiceContract
from inferproof.core.values import Value

CONTRACT_FILE = "contract.yaml"
GENERIC_MUTANTS = (
    "zeros",
    "mean",
    "copy_input",
    "stale",
    "half",
    "lower_precision",
    "cut_short",
    "one_bit_less",
)
SERVICES = "services"
_LEAST_CORPUS_BYTES = 4096
_LIMITS = TreeLimits(files=64, size_bytes=4 << 20)


class ResolvedDims(Value):
    """The extents of a contract for one model: those that are fixed, and the greatest of each."""

    fixed: dict[str, int]
    maxima: dict[str, int]


def load_contract(folder: Path) -> SealedContract:
    """Return the contract in `folder`; its Python files are read as text and never imported.

    Raises:
        FileFormatError: the folder, contract.yaml or a function it names is not as documented.
    """
    contents = read_tree(folder, limits=_LIMITS)
    path = folder / CONTRACT_FILE
    if CONTRACT_FILE not in contents:
        raise FileFormatError("there is no such file", path=str(path))
    read = _service if folder.resolve().parent.name == SERVICES else _kernel
    contract = read(folder, path, contents)
    files = {name: digest_bytes(data) for name, data in contents.items()}
    return SealedContract(
        contract=contract, digest=digest_json(files), folder=str(folder), files=files
    )


def _kernel(folder: Path, path: Path, contents: Mapping[str, bytes]) -> KernelContract:
    parsed = parse_bytes(KernelContract, contents[CONTRACT_FILE], path=str(path))
    parsed.require(_misnamed(parsed.value.name, folder))
    parsed.require(contract_problems(parsed.value))
    _require_functions(parsed, folder, contents)
    return parsed.value


def _service(folder: Path, path: Path, contents: Mapping[str, bytes]) -> ServiceContract:
    parsed = parse_bytes(ServiceContract, contents[CONTRACT_FILE], path=str(path))
    parsed.require(_misnamed(parsed.value.name, folder))
    parsed.require(list(trace_problems(parsed.value, contents)))
    corpus = parsed.value.fidelity.corpus
    if len(contents.get(corpus, b"")) < _LEAST_CORPUS_BYTES:
        what = f"fidelity.corpus: {corpus!r} is not a text of at least {_LEAST_CORPUS_BYTES} bytes"
        raise parsed.error([Problem(field=("fidelity", "corpus"), what=what)])
    tasks = parsed.value.tasks
    if tasks is not None:
        load_tasks(contents.get(tasks.file, b""), path=str(folder / tasks.file))
    parsed.require(_unshipped(parsed.value.search))
    return parsed.value


def _unshipped(search: Search | None) -> Iterator[Problem]:
    known = shipped_spaces()
    if search is not None and isinstance(search.space, str) and search.space not in known:
        what = f"search.space: no space {search.space!r} ships; known: {', '.join(known)}"
        yield Problem(field=("search", "space"), what=what)


def _misnamed(name: str, folder: Path) -> list[Problem]:
    if name == folder.resolve().name:
        return []
    what = f"name: {name!r} is not the folder's name {folder.resolve().name!r}"
    return [Problem(field=("name",), what=what)]


def resolve_dims(contract: KernelContract, config: Mapping[str, int]) -> ResolvedDims:
    """Return the contract's extents for a model whose config is `config`.

    Raises:
        UsageError: the config lacks a field that a dim reads, or gives a shape no sense.
    """
    fixed = {
        name: dim.value or _from_model(contract.name, name, dim, config)
        for name, dim in contract.dims.items()
        if dim.value is not None or dim.from_model is not None
    }
    ranged = ranged_dims(contract)
    least = {name: fixed.get(name) or ranged[name][0] for name in contract.dims}
    greatest = {name: fixed.get(name) or ranged[name][1] for name in contract.dims}
    for problem in (*shape_problems(contract, least), *shape_problems(contract, greatest)):
        raise UsageError(f"contract {contract.name} does not fit model.config: {problem.what}")
    return ResolvedDims(fixed=fixed, maxima=greatest)


def _from_model(contract: str, name: str, dim: Dim, config: Mapping[str, int]) -> int:
    field = dim.from_model or ""
    if field not in config:
        what = f"model.config has no {field!r}, which contract {contract} reads"
        raise UsageError(what, hint=f"add `{field}: <integer>` to model.config")
    extent, low, high = config[field], dim.min or 1, dim.max or config[field]
    if not low <= extent <= high:
        what = f"model.config.{field} is {extent}, beyond {low}..{high} of {contract}'s {name}"
        raise UsageError(what, hint=f"correct {field}, or leave {contract} out")
    return extent


def _require_functions(
    parsed: Parsed[KernelContract], folder: Path, contents: Mapping[str, bytes]
) -> None:
    contract = parsed.value
    wanted = {"reference": contract.reference, "yardstick": contract.yardstick}
    if contract.align is not None:
        wanted["align"] = contract.align
    missing = [
        Problem(field=(field,), what=f"{field}: there is no file {file!r} in the folder")
        for field, file in ((f, ref.partition(":")[0]) for f, ref in wanted.items())
        if file not in contents
    ]
    parsed.require(missing)
    trees = {
        file: _syntax(contents[file], folder / file)
        for file in sorted({ref.partition(":")[0] for ref in wanted.values()})
    }
    parsed.require(_missing_functions(wanted, trees))
    main = trees[contract.reference.partition(":")[0]]
    parsed.require(_missing_in_reference(contract, main))


def _missing_functions(
    wanted: Mapping[str, str], trees: Mapping[str, ast.Module]
) -> Iterator[Problem]:
    for field, reference in wanted.items():
        file, _, function = reference.partition(":")
        defined = _functions(trees[file])
        if function not in defined:
            what = f"{field}: {file} defines no function {function!r}"
            yield Problem(field=(field,), what=f"{what}; it defines: {', '.join(defined)}")


def _missing_in_reference(contract: KernelContract, module: ast.Module) -> Iterator[Problem]:
    file = contract.reference.partition(":")[0]
    if "baseline" not in _functions(module):
        yield Problem(field=("baselines",), what=f"baselines: {file} defines no `baseline`")
    known = (*GENERIC_MUTANTS, *_mutants(module))
    for index, name in enumerate(contract.mutants):
        if name not in known:
            what = f"mutants: {name!r} is neither generic nor a key of MUTANTS in {file}"
            yield Problem(field=("mutants", index), what=f"{what}; known: {', '.join(known)}")


def _syntax(source: bytes, path: Path) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        what = f"not Python: {error.msg}"
        raise FileFormatError(what, path=str(path), line=error.lineno or 1) from error
    except (ValueError, RecursionError, MemoryError) as error:
        what = f"not Python: {str(error) or 'nested too deeply'}"
        raise FileFormatError(what, path=str(path)) from error


def _functions(module: ast.Module) -> list[str]:
    return [node.name for node in module.body if isinstance(node, ast.FunctionDef)]


def _mutants(module: ast.Module) -> list[str]:
    """Return the text keys of the module's literal `MUTANTS = {...}`."""
    for node in module.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="MUTANTS")], value=ast.Dict(keys=keys))
                | ast.AnnAssign(target=ast.Name(id="MUTANTS"), value=ast.Dict(keys=keys))
            ):
                return [
                    key.value
                    for key in keys
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                ]
            case _:
                pass
    return []
