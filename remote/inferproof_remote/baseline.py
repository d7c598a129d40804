"""The contract's own baselines, dressed as candidates so that they run under the same regime."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inferproof_remote.kernel import Kernel
from inferproof_remote.targets import PythonTarget

COMPILED = "torch.compile"
_SOURCE = '''"""Runs the contract's baseline and leaves its outputs where the harness wants them."""

import importlib.util
import sys
from pathlib import Path

import torch

_spec = importlib.util.spec_from_file_location("contract", Path(__file__).with_name({file}))
_contract = importlib.util.module_from_spec(_spec)
sys.modules["contract"] = _contract  # where torch.compile looks for it
_spec.loader.exec_module(_contract)


def entry(*tensors, **params):
    results = _contract.baseline(*tensors[:{inputs}], **params)
    for name, output in zip({outputs}, tensors[{inputs}:]):
        output.copy_(results[name])
'''
# A compiled header lands in a folder that does not outlive the sandbox: 4 s each time, for nothing.
_COMPILE = """

from torch._inductor import config

config.cpp_cache_precompile_headers = False
entry = torch.compile(entry, dynamic=True)
"""
_FILE = "inferproof_baseline.py"
_CACHE_VARIABLE = "INFERPROOF_CACHE_DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One baseline, ready for a session; `cache` is a folder it may write to."""

    name: str
    target: PythonTarget
    cache: Path | None
    env: Mapping[str, str]


def absence(name: str) -> str:
    """Return why this machine cannot run the baseline at all; empty if it can."""
    if name == COMPILED and not (shutil.which("g++") or shutil.which("clang++")):
        return "torch.compile needs a C++ compiler: apt-get install g++"
    return ""


def make_baseline(
    name: str, kernel: Kernel, contract: Path, folder: Path, *, cache: Path
) -> Baseline:
    """Return the baseline `name` of the contract in `contract`, laid out in `folder`.

    What it compiles goes to `cache`.
    """
    shutil.copytree(contract, folder, copy_function=shutil.copyfile)
    source = _SOURCE.format(
        file=json.dumps(kernel.reference.partition(":")[0]),
        inputs=len(kernel.inputs),
        outputs=tuple(output.name for output in kernel.outputs),
    )
    compiled = name == COMPILED
    (folder / _FILE).write_text(source + (_COMPILE if compiled else ""), encoding="utf-8")
    target = PythonTarget(folder=folder, source=_FILE, entry="entry")
    if not compiled:
        return Baseline(name=name, target=target, cache=None, env={})
    cache.mkdir(parents=True, exist_ok=True)
    env = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return Baseline(name=name, target=target, cache=cache, env=env)


def cache_folder(contract: Path) -> Path:
    """Return where compiled baselines outlive a job, for the contract of `jobs/ID/in/contract`."""
    given = os.environ.get(_CACHE_VARIABLE)
    base = Path(given) if given else contract.parents[3] / "cache"
    return base / "torch-compile"
