"""The reference of a FlashInfer-Trace definition as the reference.py of a contract.

`run` appears twice: as it was given, which is the yardstick and the baseline, and with every
floating-point type widened to float64, which is the reference. Nothing of it is run here.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_FLOATS = frozenset({"float", "float16", "float32", "half", "bfloat16"})
_NARROWING = frozenset({"float", "half", "bfloat16"})
_IMPORTS = frozenset({"torch", "torch.nn.functional", "math", "typing", "__future__"})
_REACHING_OUT = frozenset({"open", "exec", "eval", "compile", "__import__", "input", "breakpoint"})
_RANDOM = frozenset(
    {
        *("rand", "randn", "randint", "rand_like", "randn_like", "randperm", "multinomial"),
        *("bernoulli", "normal", "normal_", "uniform_", "exponential_", "random_", "dropout"),
    }
)
_BEYOND_TORCH = frozenset({"cuda", "jit", "compile", "load", "save", "hub", "ops", "os", "sys"})
_SAME_AXES = frozenset({"to", "float", "half", "bfloat16", "double", "contiguous", "clone"})
_SAME_VALUES = frozenset({"to", "long", "int", "contiguous", "clone", "flatten", "view", "reshape"})
_TOLD_BY_TYPE = frozenset({"shape", "dtype", "device", "ndim", "size", "numel", "dim"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One output: its name in the definition, in the contract, and its torch dtype."""

    given: str
    name: str
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The contract's arguments in order, and which params are truth values."""

    inputs: Sequence[str]
    params: Sequence[str]
    bools: frozenset[str]
    outputs: Sequence[Output]


def run_of(module: ast.Module) -> ast.FunctionDef:
    """Return the last function `run`, which is the one that counts."""
    found = [n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "run"]
    return found[-1]


def obstacles(module: ast.Module, inputs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (piece of source, why) of all that a contract's reference cannot do."""
    for node in ast.walk(module):
        why = _why_not(node)
        if why:
            yield _shown(node), why
    run = run_of(module)
    names = {argument.arg for argument in (*run.args.args, *run.args.kwonlyargs)}
    if names != set(inputs) or run.args.posonlyargs or run.args.vararg or run.args.kwarg:
        wanted = ", ".join(inputs)
        yield f"run({ast.unparse(run.args)})", f"its arguments are not the inputs: {wanted}"
    yield from _mutations(run, inputs)


def _why_not(node: ast.AST) -> str:
    match node:
        case ast.Import(names=names) if any(
            n.name not in _IMPORTS or (n.name == "torch" and n.asname) for n in names
        ):
            return "a reference imports torch and math alone"
        case ast.ImportFrom(module=module, level=level) if level or module not in {
            *("torch.nn", "math", "typing", "__future__"),
        }:
            return "a reference imports torch and math alone"
        case ast.Name(id=name) if name in _REACHING_OUT:
            return "a reference computes and does nothing else"
        case ast.Global():
            return "a reference keeps nothing between calls"
        case ast.Constant(value=str() as text) if text.startswith("cuda"):
            return "a reference runs where its inputs are"
        case ast.Attribute(attr=name):
            return _why_not_attribute(name)
        case ast.Call(func=ast.Attribute(attr="view"), args=[ast.Attribute(attr=name)]) if (
            name != "shape"
        ):
            return "it reads the bits of a number, which float64 does not have"
        case _:
            return ""


def _why_not_attribute(name: str) -> str:
    if name in _RANDOM:
        return "it draws random numbers: a contract compares with one right answer"
    if name.startswith(("float8", "float4")):
        return "contracts have no such dtype"
    if name in _BEYOND_TORCH:
        return "a reference runs as plain torch where its inputs are"
    return "a reference computes and does nothing else" if name.startswith("__") else ""


def _mutations(run: ast.FunctionDef, inputs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what changes an argument; a name that is assigned anew no longer stands for one."""
    kept = set(inputs) - {n.id for n in ast.walk(run) if _stores(n) and isinstance(n, ast.Name)}
    for node in ast.walk(run):
        match node:
            case (
                ast.Subscript(value=ast.Name(id=name), ctx=ast.Store())
                | ast.AugAssign(target=ast.Name(id=name))
            ) if name in inputs:
                changed = True
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if name in kept:
                changed = method.endswith("_") and not method.endswith("__")
            case _:
                changed = False
        if changed:
            yield _shown(node), "it changes an input, and the definition does not say so"


def _stores(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def index_targets(
    module: ast.Module, inputs: Sequence[str], integers: Sequence[str]
) -> dict[str, set[str]]:
    """Return {integer input: inputs of which its values choose along the first axis}.

    Only integer inputs that `run` uses for nothing else, and whole: of those, any value below that
    axis's extent is right. An empty set is an input that is used for nothing.
    """
    run = run_of(module)
    parents = {child: node for node in ast.walk(run) for child in ast.iter_child_nodes(node)}
    tensors = {
        alias: name
        for name in inputs
        if name not in integers
        for alias in _aliases(run, name, _SAME_AXES)
    }
    found: dict[str, set[str]] = {}
    for name in integers:
        indices = _aliases(run, name, _SAME_VALUES)
        uses = [
            _chosen(node, parents, indices, tensors)
            for node in ast.walk(run)
            if isinstance(node, ast.Name) and node.id in indices and not _stores(node)
        ]
        if indices and None not in uses:
            found[name] = {target for target in uses if target}
    return found


def _aliases(run: ast.FunctionDef, name: str, casts: frozenset[str]) -> set[str]:
    """Return the names that stand for an input throughout; none if its own name does not."""
    assigned = _assigned(run)

    def stands(target: str) -> bool:
        values = assigned.get(target, [])
        return all(value is not None and _behind(value, casts) in aliases for value in values)

    aliases = {name}
    for _ in assigned:
        aliases |= {target for target in assigned if stands(target)}
    return aliases if stands(name) else set()


def _assigned(run: ast.FunctionDef) -> dict[str, list[ast.expr | None]]:
    """Return {name: what is assigned to it}; None for a loop, an unpacking and the like."""
    plain = {
        node.targets[0]: node.value
        for node in ast.walk(run)
        if isinstance(node, ast.Assign) and len(node.targets) == 1
    }
    found: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(run):
        if isinstance(node, ast.Name) and _stores(node):
            found.setdefault(node.id, []).append(plain.get(node))
    return found


def _behind(node: ast.expr, casts: frozenset[str]) -> str | None:
    """Return the name that an expression casts, None if it does anything else."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in casts:
            return None
        node = node.func.value
    return node.id if isinstance(node, ast.Name) else None


def _chosen(
    node: ast.AST,
    parents: Mapping[ast.AST, ast.AST],
    indices: set[str],
    tensors: Mapping[str, str],
) -> str | None:
    """Return the input that this use chooses from, "" for a use that shows no value, else None."""
    above = parents[node]
    while isinstance(above, ast.Attribute) and above.attr in _SAME_VALUES:
        node = parents[above]
        above = parents[node]
    match above:
        case ast.Attribute(attr=name) if name in _TOLD_BY_TYPE:
            return ""
        case ast.Assign(targets=[ast.Name(id=name)]) if name in indices:
            return ""
        case ast.Tuple(elts=[first, *_]) if first is node:
            above, node = parents[above], above
        case _:
            pass
    match above:
        case ast.Subscript(value=chosen, slice=index, ctx=ast.Load()) if index is node:
            return tensors.get(_behind(chosen, _SAME_AXES) or "")
        case _:
            return None


class _Widen(ast.NodeTransformer):
    """Makes float64 of every floating-point type that is named."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Widen `torch.bfloat16`."""
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "torch" and node.attr in _FLOATS:
            node.attr = "float64"
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Widen `x.float()`."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _NARROWING and not node.args:
            node.func.attr = "double"
        return node


_FILE = """\
\"\"\"What {name} must compute; imported from FlashInfer-Trace, to be read by a person.

`_as_given` is the definition's own code. `_widened` is the same code in float64.
\"\"\"

from __future__ import annotations

import torch

_OUTPUTS = {{{outputs}}}


{as_given}


{widened}


_RUN, _WIDE = _as_given(), _widened()


def _wide(**given):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return _WIDE(**given)
    finally:
        torch.set_default_dtype(before)


def _named(made, dtype=None):
    if isinstance(made, dict):
        made = [made[name] for name in _OUTPUTS]
    values = made if isinstance(made, (tuple, list)) else [made]
    pairs = zip(_OUTPUTS.values(), values, strict=True)
    return {{name: value.to(dtype or narrow) for (name, narrow), value in pairs}}


def reference({arguments}):
    return _named(_wide({passed}), torch.float64)


def yardstick({arguments}):
    return _named(_RUN({passed}))


def baseline({arguments}):
    return _named(_RUN({passed}))
"""


def reference_file(name: str, module: ast.Module, signature: Signature) -> str:
    """Return reference.py of contract `name`: the reference, the yardstick and the baseline."""
    wide = ast.fix_missing_locations(_Widen().visit(ast.parse(ast.unparse(module))))
    stars = ["*", *signature.params] if signature.params else []
    return _FILE.format(
        name=name,
        outputs=", ".join(f'"{o.given}": ("{o.name}", torch.{o.dtype})' for o in signature.outputs),
        as_given=_function("_as_given", module),
        widened=_function("_widened", wide),
        arguments=", ".join([*signature.inputs, *stars]),
        passed=", ".join(_passed(signature)),
    )


def _passed(signature: Signature) -> Iterator[str]:
    for name in (*signature.inputs, *signature.params):
        yield f"{name}=bool({name})" if name in signature.bools else f"{name}={name}"


def _function(name: str, module: ast.Module) -> str:
    """Return a function that defines all that `module` does, and returns its `run`."""
    future = [n for n in module.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    body = [node for node in module.body if node not in future]
    made = ast.parse(f"def {name}():\n    return run").body[0]
    if isinstance(made, ast.FunctionDef):
        made.body = [*body, *made.body]
    return ast.unparse(ast.fix_missing_locations(made))


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
