"""Triton: does the source import in the sandbox; and its kernels as cubins, for drawn shapes."""

import base64
import binascii
import importlib.metadata
import json
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TypeAlias, cast

from inferproof_remote import diagnostics
from inferproof_remote.diagnostics import Diagnostic
from inferproof_remote.job import JobFormatError, as_number, as_table
from inferproof_remote.kernel import Kernel
from inferproof_remote.launches import LaunchPlan, Resolved, UnfitLaunch
from inferproof_remote.workshop import Built, Recipe, Workshop, explained, failure_code

_PRODUCT = "variants.json"
_HELP = "install triton on the target: pip install triton"
_TYPES = {
    "bf16": "*bf16",
    "f16": "*fp16",
    "f32": "*fp32",
    "f64": "*fp64",
    "i32": "*i32",
    "i64": "*i64",
    "u8": "*u8",
    "f8e4m3": "*fp8e4nv",
    "f8e5m2": "*fp8e5",
    "ue4m3": "*fp8e4nv",
    "ue8m0": "*u8",
    "f4e2m1x2": "*u8",
}
_ALIGNED = 16
_WARP = 32

Json: TypeAlias = dict[str, object]


class NotCompiled(Exception):
    """The kernels do not compile for a drawn shape; `diagnostics` say why."""

    def __init__(self, code: str, found: tuple[Diagnostic, ...]) -> None:
        super().__init__(code)
        self.code = code
        self.diagnostics = found


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One compiled kernel and how it must be launched."""

    cubin: bytes
    name: str
    shared_bytes: int
    parameters: int


def build(recipe: Recipe, workshop: Workshop) -> Built:
    """Check that the candidate's source imports and defines its kernel; shapes come later."""
    if not version():
        return Built(code="compiler_missing", compiler="", commands=(), help=_HELP)
    argv = [*_program(), recipe.source, recipe.entry]
    completed = workshop.run(argv, product=None, label="triton")
    told = ((sys.executable, "-I", "triton_compile.py", recipe.source, recipe.entry),)
    if completed.rc == 0:
        return Built(code="accepted", compiler=version(), commands=told)
    found = _messages(completed.output, workshop)
    return Built(
        code=failure_code(completed, "import_failed"),
        compiler=version(),
        commands=told,
        diagnostics=explained(completed, found, "triton"),
    )


def version() -> str:
    """Return what Triton this is; empty if there is none."""
    try:
        return f"Triton {importlib.metadata.version('triton')}"
    except importlib.metadata.PackageNotFoundError:
        return ""


def compile_variants(
    source: str, entry: str, variants: Sequence[Mapping[str, object]], workshop: Workshop
) -> list[Variant]:
    """Return each variant's cubin, compiled in the sandbox.

    Raises:
        NotCompiled: one does not compile.
    """
    argv = [*_program(), source, entry, f"{{out}}/{_PRODUCT}", json.dumps(list(variants))]
    completed = workshop.run(argv, product=_PRODUCT, label="triton-shapes")
    product = workshop.out_dir / _PRODUCT
    if completed.rc != 0 or not product.is_file():
        found = explained(completed, _messages(completed.output, workshop), "triton")
        raise NotCompiled(failure_code(completed, "compile_failed"), found)
    try:
        rows = cast("list[object]", json.loads(product.read_text(encoding="utf-8")))
        return [_variant(as_table(row, "variant")) for row in rows]
    except (ValueError, KeyError, TypeError, binascii.Error, JobFormatError) as error:
        message = f"what the compilation left is not readable: {error}"[:300]
        said = Diagnostic(file="", line=None, severity="error", message=message)
        raise NotCompiled("compile_failed", (said,)) from error
    finally:
        product.unlink(missing_ok=True)


def variant_of(launch: Resolved, kernel: Kernel, capability: int) -> dict[str, object]:
    """Return what to compile for one launch: types, constants, and which arguments are aligned."""
    tensors = {each.name: each.dtype for each in (*kernel.inputs, *kernel.outputs)}
    types: list[str] = []
    aligned: list[int] = []
    for place, (kind, value) in enumerate(launch.args):
        if kind == "tensor":
            types.append(_TYPES[tensors.get(str(value), "u8")])
            aligned.append(place)
        elif kind == "integer":
            types.append("i32" if -(1 << 31) <= int(value) < 1 << 31 else "i64")
            aligned += [place] if int(value) % _ALIGNED == 0 else []
        else:
            types.append("fp32")
    constants = dict(launch.constants)
    options = {"num_warps": max(1, launch.block[0] // _WARP)}
    if "num_stages" in constants:
        options["num_stages"] = constants.pop("num_stages")
    return {
        "kernel": launch.kernel,
        "types": types,
        "aligned": aligned,
        "constants": constants,
        "capability": capability,
        "options": options,
    }


def launched_as(plan: LaunchPlan, variants: Sequence[tuple[int, Variant]]) -> LaunchPlan:
    """Return `plan` with each launch as its variant must be launched; numbers are module's places.

    Raises:
        UnfitLaunch: a variant has fewer parameters than arguments.
    """
    launches: list[Resolved] = []
    for launch, (module, variant) in zip(plan.launches, variants, strict=True):
        spare = variant.parameters - len(launch.args)
        if spare < 0:
            raise UnfitLaunch(f"kernel {launch.kernel} has fewer parameters than arguments")
        launches.append(
            replace(
                launch,
                kernel=variant.name,
                module=module,
                shared_bytes=variant.shared_bytes,
                args=(*launch.args, *((("integer", 0),) * spare)),  # scratch that it does not use
            )
        )
    return replace(plan, launches=tuple(launches))


def _program() -> list[str]:
    script = (pkgutil.get_data("inferproof_remote", "triton_compile.py") or b"").decode()
    return [sys.executable, "-I", "-c", script]


def _messages(output: bytes, workshop: Workshop) -> tuple[Diagnostic, ...]:
    text = output.decode(errors="replace")
    found = diagnostics.parse_diagnostics(text, snapshot=PurePosixPath(workshop.source_dir))
    last = text.strip().splitlines()[-1:]
    said = (Diagnostic(file="", line=None, severity="error", message=line[:500]) for line in last)
    return (*found, *said)


def _variant(row: Mapping[str, object]) -> Variant:
    if as_number(row["scratch_bytes"], "scratch_bytes"):
        raise JobFormatError("the kernel needs global scratch memory, which our launcher has not")
    return Variant(
        cubin=base64.b64decode(str(row["cubin"]), validate=True),
        name=str(row["name"]),
        shared_bytes=int(as_number(row["shared_bytes"], "shared_bytes")),
        parameters=int(as_number(row["parameters"], "parameters")),
    )
