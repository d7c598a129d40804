"""CUDA C++ to one cubin and one PTX for each architecture; needs no GPU."""

import importlib.util
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from inferproof_remote import diagnostics
from inferproof_remote.cuda_driver import find_attributes
from inferproof_remote.cuda_sass import parse_sass
from inferproof_remote.diagnostics import KernelResources
from inferproof_remote.workshop import Built, Recipe, Tool, Workshop, explained, failure_code

DEFAULT_ARCHS = ("sm_90a", "sm_100a", "sm_103a", "sm_120a")
_FLAGS = ("-O3", "-std=c++17")
_FIRST_WITH_OWN = 9  # from compute capability 9 on, `a` names what only that chip has
_HELP = (
    "install nvcc on the target: pip install nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm"
    " nvidia-cuda-runtime nvidia-cuda-cccl, or apt-get install nvidia-cuda-toolkit"
)


def find_compiler() -> Path | None:
    """Return nvcc from PATH, else from /usr/local/cuda, else from a pip package, else nothing."""
    return _find("nvcc")


def find_disassembler() -> Path | None:
    """Return nvdisasm from the same places, else nothing."""
    return _find("nvdisasm")


def native_arch() -> str | None:
    """Return the architecture of the device that is here, None if there is none."""
    device = find_attributes()
    if device is None:
        return None
    major, minor = device["major"], device["minor"]
    own_instructions = "a" if major >= _FIRST_WITH_OWN else ""
    return f"sm_{major}{minor}{own_instructions}"


def _find(program: str) -> Path | None:
    on_path = shutil.which(program)
    packages = importlib.util.find_spec("nvidia")
    folders = list(packages.submodule_search_locations or ()) if packages else []
    from_pip = (path for folder in folders for path in Path(folder).glob(f"*/bin/{program}"))
    usual = Path("/usr/local/cuda/bin") / program
    places = ([Path(on_path)] if on_path else []) + [usual, *from_pip]
    return next((path for path in places if os.access(path, os.X_OK)), None)


def build(recipe: Recipe, workshop: Workshop, tool: Tool | None) -> Built:
    """Compile the candidate's source for each of its architectures, in parallel."""
    if tool is None:
        return Built(code="compiler_missing", compiler="", commands=(), help=_HELP)
    archs = recipe.archs or DEFAULT_ARCHS
    with ThreadPoolExecutor(max_workers=min(len(archs), os.cpu_count() or 1)) as pool:
        parts = list(pool.map(partial(_build_arch, recipe, workshop, tool), archs))
    return _joined(parts, tool)


def _build_arch(recipe: Recipe, workshop: Workshop, tool: Tool, arch: str) -> Built:
    """Compile for one architecture: the cubin first, then the PTX."""
    part = Built(code="accepted", compiler=tool.version, commands=())
    for form, extra in (("cubin", ("-Xptxas", "-v")), ("ptx", ())):
        product = f"{arch}.{form}"
        command = (
            *(str(tool.path), f"-{form}", f"-arch={arch}", *_FLAGS, *extra, *recipe.flags),
            *(recipe.source, "-o", f"{{out}}/{product}"),
        )
        completed = workshop.run(command, product=product, label=f"{arch}-{form}")
        text = completed.output.decode(errors="replace")
        found = diagnostics.parse_diagnostics(text, snapshot=PurePosixPath(workshop.source_dir))
        part = replace(
            part,
            commands=(*part.commands, command),
            diagnostics=part.diagnostics + explained(completed, found, f"nvcc {arch}"),
            resources=part.resources + diagnostics.parse_resources(text),
        )
        if completed.rc != 0 or not (workshop.out_dir / product).is_file():
            return replace(part, code=failure_code(completed, "compile_failed"))
        part = replace(part, artefacts=(*part.artefacts, product))
    return replace(part, resources=_with_code(part.resources, workshop, arch))


def _with_code(
    resources: tuple[KernelResources, ...], workshop: Workshop, arch: str
) -> tuple[KernelResources, ...]:
    """Return `resources` with what each kernel's machine code is made of, if it can be read."""
    disassembler = find_disassembler()
    if disassembler is None:
        return resources
    cubin = workshop.out_dir / f"{arch}.cubin"
    said = workshop.read([str(disassembler), "-c", str(cubin)], cubin, label=f"{arch}-sass")
    code = parse_sass(said.output.decode(errors="replace")) if said.rc == 0 else {}
    return tuple(replace(each, code=code.get(each.kernel)) for each in resources)


def _joined(parts: Sequence[Built], tool: Tool) -> Built:
    """Return one build from one for each architecture; repeated messages are told once."""
    failed = [part.code for part in parts if part.code != "accepted"]
    messages = dict.fromkeys(message for part in parts for message in part.diagnostics)
    return Built(
        code=failed[0] if failed else "accepted",
        compiler=tool.version,
        commands=tuple(command for part in parts for command in part.commands),
        diagnostics=tuple(messages)[: diagnostics.MOST_DIAGNOSTICS],
        resources=tuple(kernel for part in parts for kernel in part.resources),
        artefacts=tuple(name for part in parts for name in part.artefacts),
    )
