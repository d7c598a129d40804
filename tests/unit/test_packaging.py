"""What is installed is what is pinned, and what is packaged is what is in the folders."""

import importlib.metadata
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
SOURCES = {
    "inferproof": ROOT / "mcp_server" / "inferproof",
    "inferproof_remote": ROOT / "remote" / "inferproof_remote",
    "inferproof.contracts": ROOT / "contracts",
    "inferproof.docs": ROOT / "docs",
    "inferproof.skills": ROOT / "skills",
}
COMES_WITH_PYTHON = {"pip", "inferproof"}


def same_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {same_name(name): version for name, _, version in (li.partition("==") for li in lines)}


def test_every_installed_version_is_the_pinned_one() -> None:
    installed = {
        same_name(package.name): package.version.partition("+")[0]
        for package in importlib.metadata.distributions()
        if same_name(package.name) not in COMES_WITH_PYTHON
    }
    assert {name: pins().get(name) for name in installed} == installed


def test_constraints_are_plain_pins_without_an_index() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", line), line


def test_every_requirement_is_pinned() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"], *extras["local"], *extras["dev"]]
    names = {same_name(re.split(r"[\[<>=~!]", requirement)[0]) for requirement in wanted}
    assert names <= set(pins())


def test_packages_are_the_folders_that_hold_modules() -> None:
    found = {"inferproof.contracts", "inferproof.docs", "inferproof.skills"}
    for root in (SOURCES["inferproof"], SOURCES["inferproof_remote"]):
        for init in root.rglob("__init__.py"):
            found.add(".".join(init.parent.relative_to(root.parent).parts))
    assert set(SETUPTOOLS["packages"]) == found


def test_every_data_file_is_packaged() -> None:
    for package, folder in SOURCES.items():
        patterns = SETUPTOOLS["package-data"].get(package, [])
        files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
        data = {path for path in files if path.suffix not in (".py", ".pyc")}
        lost = {path for path in data if not any(_matches(path, each) for each in patterns)}
        assert lost == set(), package


def _matches(path: Path, pattern: str) -> bool:
    return fnmatch(str(path), pattern) or fnmatch(str(path), pattern.removeprefix("**/"))


def test_only_candidates_lie_in_folders_without_init() -> None:
    for root in (SOURCES["inferproof"], SOURCES["inferproof_remote"]):
        for module in root.rglob("*.py"):
            beside = {path.name for path in module.parent.iterdir()}
            is_candidate = module.parent.parent == root / "demo" / "engines"
            assert "__init__.py" in beside or is_candidate, module


def test_the_two_packages_are_typed() -> None:
    assert (SOURCES["inferproof"] / "py.typed").is_file()
    assert (SOURCES["inferproof_remote"] / "py.typed").is_file()
