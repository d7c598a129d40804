"""Compile a candidate's Triton kernels to cubins; runs in the sandbox, from its own text alone.

    python -I -c TEXT SOURCE ENTRY               does the source import, and is ENTRY a kernel?
    python -I -c TEXT SOURCE ENTRY OUT VARIANTS  one cubin for each variant, as one JSON file

The candidate's Python runs in this process, so nothing this leaves is believed: it is a cubin and
numbers, like any other candidate's, and our own launcher decides what it is good for.
"""

import base64
import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any


def load(source: str, entry: str) -> Any:  # noqa: ANN401 (whatever the candidate defines)
    """Return the candidate's kernels."""
    spec = importlib.util.spec_from_file_location("candidate", Path(source).resolve())
    if spec is None or spec.loader is None:
        raise SystemExit(f"{source} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    if not hasattr(getattr(module, entry, None), "arg_names"):
        raise SystemExit(f"{entry} is no @triton.jit function of {source}")
    return module


def compiled(module: Any, variant: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 (as above)
    """Return one variant's cubin, and how it must be launched."""
    compiler: Any = importlib.import_module("triton.compiler")
    backends: Any = importlib.import_module("triton.backends.compiler")
    function = getattr(module, variant["kernel"])
    names = list(function.arg_names)
    constants = variant["constants"]
    given = [name for name in names if name not in constants]
    if len(given) != len(variant["types"]):
        what = f"takes {given} beside constants, {len(variant['types'])} arguments are given"
        raise SystemExit(f"kernel {variant['kernel']} {what}")
    signature = dict(zip(given, variant["types"], strict=True))
    signature |= dict.fromkeys(constants, "constexpr")
    aligned = {given[place] for place in variant["aligned"]}
    source = compiler.ASTSource(
        fn=function,
        signature={name: signature[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={
            (names.index(name),): [["tt.divisibility", 16]] for name in given if name in aligned
        },
    )
    target = backends.GPUTarget("cuda", variant["capability"], 32)
    kernel = compiler.compile(source, target=target, options=variant["options"])
    parameters = re.search(r"\.entry\s+\w+\((.*?)\)", kernel.asm["ptx"], re.DOTALL)
    return {
        "cubin": base64.b64encode(kernel.asm["cubin"]).decode(),
        "name": kernel.metadata.name,
        "shared_bytes": kernel.metadata.shared,
        "scratch_bytes": getattr(kernel.metadata, "global_scratch_size", 0),
        "parameters": parameters[1].count(".param") if parameters else len(given),
    }


def main() -> None:
    """Do what the command line asks."""
    source, entry, *more = sys.argv[1:]
    module = load(source, entry)
    if more:
        made = [compiled(module, each) for each in json.loads(more[1])]
        Path(more[0]).write_text(json.dumps(made), encoding="utf-8")


if __name__ == "__main__":
    main()
