"""Check that an installed wheel has every module and data file of the checkout, and can start.

Run by the interpreter of the environment that the wheel was installed in: `check_wheel.py ROOT`.
"""

import importlib
import pkgutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

SOURCES = {
    "inferproof": "mcp_server/inferproof",
    "inferproof_remote": "remote/inferproof_remote",
    "inferproof.contracts": "contracts",
    "inferproof.docs": "docs",
    "inferproof.skills": "skills",
}


def main(root: Path) -> int:
    """Print what is missing and return 1, or return 0."""
    lost = [f"{package}: {path}" for package, path in _files(root) if not _is_in(package, path)]
    print(*lost or ["every file of the checkout is in the wheel"], sep="\n")
    _import_all()
    command = [str(Path(sys.executable).with_name("inferproof")), "--help"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return 1 if lost else 0


def _files(root: Path) -> list[tuple[str, str]]:
    tracked = subprocess.run(
        ["git", "-C", str(root), "ls-files"], check=True, capture_output=True, text=True
    )
    found: list[tuple[str, str]] = []
    for path in tracked.stdout.splitlines():
        for package, folder in SOURCES.items():
            if path.startswith(f"{folder}/"):
                found.append((package, path.removeprefix(f"{folder}/")))
    return found


def _is_in(package: str, path: str) -> bool:
    return resources.files(package).joinpath(*path.split("/")).is_file()


def _import_all() -> None:
    package = importlib.import_module("inferproof")
    for module in pkgutil.walk_packages(package.__path__, "inferproof."):
        if not module.name.startswith("inferproof.contracts."):
            importlib.import_module(module.name)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
