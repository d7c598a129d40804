"""FlashInfer-Trace definitions become contracts that judge, or nothing; what is left is told."""

import ast
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import cast

import pytest
import torch

from inferproof.campaign.contracts import load_contract
from inferproof.campaign.flashinfer.reference import index_targets, obstacles
from inferproof.cli import main
from inferproof.core.canonical import Json
from inferproof.core.contract import KernelContract
from inferproof.core.evidence import MutantFacts
from inferproof.gates.armed import survivors
from inferproof_remote.inputs import InputMaker
from inferproof_remote.kernel import parse_kernel
from inferproof_remote.mutants import mutant_facts
from inferproof_remote.oracle import Oracle
from shipped_kernels import seeded
from traced_definitions import (
    EPS,
    FUSED_ADD,
    GATED,
    GEMM,
    MOE,
    PAGED_DECODE,
    RMS_NORM,
    ROPE,
    SAMPLING,
    Spec,
    trace,
    write,
)

Capture = pytest.CaptureFixture[str]
FILES = ["contract.yaml", "definition.json", "not-mapped.md", "reference.py"]
PLAIN: Spec = {"interleaved": {"type": "scalar", "value": False}}
SCALE: Spec = {"sm_scale": {"type": "scalar", "value": 0.125}}
JUDGEABLE: dict[str, tuple[Spec, Spec]] = {
    "rms_norm": (RMS_NORM, trace(RMS_NORM, EPS, rows=64)),
    "fused_add": (FUSED_ADD, trace(FUSED_ADD, rows=64)),
    "gemm": (GEMM, trace(GEMM, M=90)),
    "rope": (ROPE, trace(ROPE, PLAIN, tokens=50, positions_known=300)),
    "gated": (GATED, trace(GATED, rows=30, wide=200, inner=100)),
}


def changed(definition: Spec, **fields: Json) -> Spec:
    return {**deepcopy(definition), **fields}


def told(folder: Path, capsys: Capture, definition: Spec, *traces: Spec) -> tuple[int, Spec]:
    """Import into folder/made; return the exit code and what --json prints."""
    arguments = ["contracts", "import", *write(folder, definition, traces)]
    code = main([*arguments, "--out", str(folder / "made"), "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out or printed.err)


def made(folder: Path, capsys: Capture, definition: Spec, *traces: Spec) -> KernelContract:
    code, facts = told(folder, capsys, definition, *traces)
    assert code == 0, facts
    assert sorted(path.name for path in (folder / "made").iterdir()) == FILES
    contract = load_contract(folder / "made").contract
    assert isinstance(contract, KernelContract)
    return contract


def listed(facts: Spec, *, blocks: bool) -> dict[str, tuple[str, str]]:
    entries = cast("list[dict[str, str | bool]]", facts["not_mapped"])
    return {
        str(each["field"]): (str(each["value"]), str(each["why"]))
        for each in entries
        if each["blocks"] is blocks
    }


def test_a_norm_becomes_a_contract_with_its_shapes_scalars_and_words(
    tmp_path: Path, capsys: Capture
) -> None:
    traces = [trace(RMS_NORM, EPS, rows=rows) for rows in (512, 8, 3000, 8, 70)]
    contract = made(tmp_path, capsys, RMS_NORM, *traces)
    assert contract.doc.startswith("Not reviewed: imported from FlashInfer-Trace (rmsnorm_h4096")
    assert contract.doc.endswith("Each row over its root mean square, times a weight.")
    dims = {name: dim.model_dump(exclude_none=True) for name, dim in contract.dims.items()}
    assert dims == {"rows": {"min": 4, "max": 3000}, "hidden": {"value": 4096}}
    assert contract.params["eps"].value == 1e-6
    assert contract.workloads.practice == ({"rows": 8}, {"rows": 70}, {"rows": 512}, {"rows": 3000})
    timed = contract.workloads.timed.ranges
    assert timed == ({"rows": (384, 512)}, {"rows": (2250, 3000)})
    assert contract.roofline.bytes == "2*(rows*hidden + rows*hidden + hidden)"
    assert contract.roofline.flops == "0"


@pytest.mark.parametrize("name", JUDGEABLE)
def test_an_imported_contract_refuses_every_generic_mutant_and_passes_its_own_yardstick(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    contract = made(tmp_path, capsys, *JUDGEABLE[name])
    raw = contract.model_dump(mode="json", by_alias=True)
    kernel = parse_kernel(raw, fixed={}, most={})
    oracle, maker = Oracle(kernel, tmp_path / "made"), InputMaker(seeded(5), kernel)
    facts = mutant_facts(seeded(5), oracle, maker)
    mutants = tuple(MutantFacts.model_validate_json(json.dumps(each)) for each in facts)
    assert len(mutants) == 6
    assert survivors(contract, mutants) == ()
    dims = kernel.order({each: extent.high for each, extent in kernel.extents.items()})
    question = oracle.ask(maker.make("call", dims, "normal"), dims)
    errors = question.judge(question.yardstick, oracle.bars)
    assert errors.keys() == contract.outputs.keys()
    assert all(error.within(oracle.bars) for error in errors.values())
    assert all(value.dtype == torch.float64 for value in question.expected.values())


def test_the_reference_is_float64_all_through_and_leaves_torch_as_it_was(
    tmp_path: Path, capsys: Capture
) -> None:
    contract = made(tmp_path, capsys, *JUDGEABLE["rope"])
    kernel = parse_kernel(contract.model_dump(mode="json", by_alias=True), fixed={}, most={})
    dims = kernel.order({"tokens": 40, "positions_known": 200, "width": 64, "half": 32})
    inputs = InputMaker(seeded(1), kernel).make("call", dims, "normal")
    expected = Oracle(kernel, tmp_path / "made").ask(inputs, dims).expected["turned"]
    cos, sin = inputs["cos_sin"].double()[inputs["positions"]].chunk(2, dim=-1)
    first, second = inputs["q"].double().chunk(2, dim=-1)
    right = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    assert torch.equal(expected, right)
    assert torch.get_default_dtype() is torch.float32


def test_an_output_with_the_name_of_an_input_gets_one_of_its_own(
    tmp_path: Path, capsys: Capture
) -> None:
    code, facts = told(tmp_path, capsys, *JUDGEABLE["fused_add"])
    assert code == 0
    assert "residual_out" in listed(facts, blocks=False)["outputs.residual"][1]
    contract = load_contract(tmp_path / "made").contract
    assert isinstance(contract, KernelContract)
    assert list(contract.outputs) == ["y", "residual_out"]


def test_operations_of_a_gemm_follow_from_its_axes_and_missing_workloads_are_told(
    tmp_path: Path, capsys: Capture
) -> None:
    code, facts = told(tmp_path, capsys, GEMM)
    assert code == 0
    assert "1 to 1024 is assumed" in listed(facts, blocks=False)["axes.M"][1]
    contract = load_contract(tmp_path / "made").contract
    assert isinstance(contract, KernelContract)
    assert contract.roofline.flops == "2*M*N*K"
    assert (contract.dims["M"].min, contract.dims["M"].max) == (1, 1024)


def test_integers_that_only_index_get_the_range_of_what_they_index(
    tmp_path: Path, capsys: Capture
) -> None:
    contract = made(tmp_path, capsys, *JUDGEABLE["rope"])
    assert contract.inputs["positions"].range == (0, "positions_known")
    assert "positions_known" not in contract.roofline.bytes
    assert contract.params["interleaved"].value == 0


def test_an_axis_that_a_constraint_ties_to_another_is_an_expression_of_it(
    tmp_path: Path, capsys: Capture
) -> None:
    traces = [trace(GATED, rows=3, wide=20, inner=10), trace(GATED, rows=5, wide=21, inner=10)]
    code, facts = told(tmp_path, capsys, GATED, *traces, trace(GATED, rows=0, wide=2, inner=1))
    assert code == 0
    contract = load_contract(tmp_path / "made").contract
    assert isinstance(contract, KernelContract)
    assert list(contract.dims) == ["rows", "inner"]
    assert contract.inputs["x"].shape == ("rows", "2 * inner")
    assert contract.workloads.practice == ({"rows": 3, "inner": 10},)
    left_out = listed(facts, blocks=False)
    assert left_out["workload w36"][0] == "rows=5, wide=21, inner=10"
    assert "workload w3" in left_out


@pytest.mark.parametrize(
    ("definition", "source", "fields"),
    [
        (
            PAGED_DECODE,
            trace(PAGED_DECODE, SCALE, batch=2, pages=9, len_indptr=3, num_indices=7),
            {"constraints", "inputs.kv_indptr", "inputs.kv_indices"},
        ),
        (
            SAMPLING,
            trace(SAMPLING, batch=2),
            {"inputs.top_k", "outputs.samples", "reference"},
        ),
        (
            MOE,
            trace(MOE, tokens=4),
            {"inputs.x", "inputs.gate", "inputs.scaling", "reference"},
        ),
    ],
    ids=["paged_decode", "sampling", "moe"],
)
def test_what_makes_no_contract_is_listed_and_nothing_is_written(
    definition: Spec, source: Spec, fields: set[str], tmp_path: Path, capsys: Capture
) -> None:
    code, facts = told(tmp_path, capsys, definition, source)
    assert code == 2
    assert (facts["ok"], facts["contract"]) == (False, None)
    assert listed(facts, blocks=True).keys() == fields
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "definition.json",
        "workloads.jsonl",
    ]


def test_a_scalar_that_workloads_disagree_on_is_no_param(tmp_path: Path, capsys: Capture) -> None:
    other: Spec = {"eps": {"type": "scalar", "value": 1e-5}}
    traces = [trace(RMS_NORM, EPS, rows=8), trace(RMS_NORM, other, rows=9)]
    code, facts = told(tmp_path, capsys, RMS_NORM, *traces)
    assert code == 2
    assert listed(facts, blocks=True)["inputs.eps"][0] == "1e-05, 1e-06"


def test_a_scalar_that_is_the_same_in_float32_is_one_param(tmp_path: Path, capsys: Capture) -> None:
    other: Spec = {"eps": {"type": "scalar", "value": 9.999999974752427e-07}}
    traces = [trace(RMS_NORM, EPS, rows=8), trace(RMS_NORM, other, rows=9)]
    assert made(tmp_path, capsys, RMS_NORM, *traces).params["eps"].value == 1e-6


def test_what_has_no_place_in_a_contract_is_listed_there_and_on_the_screen(
    tmp_path: Path, capsys: Capture
) -> None:
    definition = changed(
        RMS_NORM,
        origin="a | table",
        axes={
            "rows": {"type": "var", "description": "tokens of a batch"},
            "hidden": {"type": "const", "value": 4096},
        },
    )
    kept: Spec = {"x": {"type": "safetensors", "path": "x.safetensors", "tensor_key": "x"}}
    line = trace(definition, {**EPS, **kept}, rows=8) | {"solution": "mine"}
    code, facts = told(tmp_path, capsys, definition, line)
    assert code == 0
    assert listed(facts, blocks=False).keys() == {
        *("origin", "tags", "axes.rows.description", "workload.inputs.x", "workload.solution"),
        *("workload.uuid", "roofline.flops"),
    }
    page = (tmp_path / "made" / "not-mapped.md").read_text(encoding="utf-8")
    assert '| origin | "a \\| table" | not known of this format |' in page
    assert "| workload.inputs.x | safetensors in 1 of 1 workloads |" in page
    assert "before you seal it" in page


def test_a_key_of_a_tensor_that_is_not_known_may_change_it_so_there_is_no_contract(
    tmp_path: Path, capsys: Capture
) -> None:
    definition = deepcopy(GEMM)
    cast("dict[str, Spec]", definition["inputs"])["B"]["optional"] = True
    code, facts = told(tmp_path, capsys, definition)
    assert code == 2
    assert listed(facts, blocks=True)["inputs.B.optional"][0] == "true"


def test_people_are_told_to_review_and_to_add_mutants(tmp_path: Path, capsys: Capture) -> None:
    definition, line = JUDGEABLE["rms_norm"]
    arguments = ["contracts", "import", *write(tmp_path, definition, [line])]
    assert main([*arguments, "--out", str(tmp_path / "made")]) == 0
    printed = capsys.readouterr().out
    assert "which nobody has reviewed" in printed
    assert "add to MUTANTS" in printed
    assert "tags = status:draft" in printed


def _spoilt(change: Callable[[Spec], object]) -> Spec:
    definition = deepcopy(GEMM)
    change(definition)
    return definition


MALFORMED: dict[str, tuple[Spec, str]] = {
    "no axes": (changed(GEMM, axes={}), "axes"),
    "a const axis without a value": (changed(GEMM, axes={"M": {"type": "const"}}), "axes.M"),
    "a var axis with a value": (changed(GEMM, axes={"M": {"type": "var", "value": 3}}), "axes.M"),
    "an axis of size 0": (changed(GEMM, axes={"M": {"type": "const", "value": 0}}), "axes.M.value"),
    "another kind of axis": (changed(GEMM, axes={"M": {"type": "ragged"}}), "axes.M.type"),
    "an axis that is not there": (changed(GEMM, axes={"M": {"type": "var"}}), "'K' is no axis"),
    "a size for an axis": (
        changed(GEMM, outputs={"C": {"shape": ["M", 64], "dtype": "float16"}}),
        "outputs.C.shape.1",
    ),
    "no shape": (changed(GEMM, outputs={"C": {"dtype": "float16"}}), "outputs.C.shape"),
    "no outputs": (changed(GEMM, outputs={}), "outputs"),
    "code that is none": (changed(GEMM, reference="def run(:"), "not Python"),
    "code nested too deeply": (changed(GEMM, reference="x = 1" + " + 1" * 3000), "not Python"),
    "code without run": (changed(GEMM, reference="def walk(A, B): ..."), "no function `run`"),
    "no reference": (_spoilt(lambda each: each.pop("reference")), "reference: field required"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_definition_is_an_error_that_names_the_field(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    definition, named = MALFORMED[name]
    code, facts = told(tmp_path, capsys, definition)
    assert (code, facts["error_code"]) == (2, "file_format")
    assert named in str(facts["what"])
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"name": "a", "name": "b"}', "twice"),
        ('{"name": NaN}', "NaN is no number"),
        ("[]", "the object"),
    ],
)
def test_a_file_that_is_no_definition_is_an_error(
    text: str, named: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "definition.json"
    path.write_text(text, encoding="utf-8")
    assert main(["contracts", "import", str(path), "--out", str(tmp_path / "made")]) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (trace(FUSED_ADD, rows=3), "is a workload of 'fused_add_rmsnorm_h512'"),
        (trace(RMS_NORM, EPS), "'rows' has no value"),
        (trace(RMS_NORM, EPS, rows=3, columns=4), "'columns' is no axis"),
        (trace(RMS_NORM, EPS, rows=3, hidden=5), "axes.hidden: is 5"),
        (trace(RMS_NORM, EPS, rows=-1), "workload.axes.rows"),
        (trace(RMS_NORM, {"bias": {"type": "random"}}, rows=3), "'bias' is no input"),
    ],
)
def test_a_line_that_is_no_workload_of_the_definition_is_named(
    line: Spec, named: str, tmp_path: Path, capsys: Capture
) -> None:
    code, facts = told(tmp_path, capsys, RMS_NORM, trace(RMS_NORM, EPS, rows=3), line)
    assert code == 2
    assert "workloads.jsonl:2: " in str(facts["what"])
    assert named in str(facts["what"])


def test_workloads_that_stand_alone_are_read_too(tmp_path: Path, capsys: Capture) -> None:
    bare = trace(RMS_NORM, EPS, rows=40)["workload"]
    assert isinstance(bare, dict)
    contract = made(tmp_path, capsys, RMS_NORM, bare)
    assert contract.workloads.practice == ({"rows": 40},)


@pytest.mark.parametrize(
    ("constraint", "why"),
    [
        ("N == K * 0 + 64", None),
        ("N < K", None),
        ("N % 64 == 0", None),
        ("N > K", "drawn one by one"),
        ("M % 4 == 0", "drawn one by one"),
        ("M == A.sum()", "values of inputs"),
        ("M = 4", "drawn one by one"),
        ("M == N // (K - 128)", "drawn one by one"),
        ("-" * 90 + "M == 4", "drawn one by one"),
    ],
)
def test_a_constraint_holds_for_all_that_is_drawn_or_there_is_no_contract(
    constraint: str, why: str | None, tmp_path: Path, capsys: Capture
) -> None:
    code, facts = told(tmp_path, capsys, changed(GEMM, constraints=[constraint]))
    blocking = listed(facts, blocks=True)
    assert code == (0 if why is None else 2)
    assert blocking.keys() == (set() if why is None else {"constraints"})
    assert why is None or why in blocking["constraints"][1]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("import os\n", "imports torch and math alone"),
        ("from numpy import dot\n", "imports torch and math alone"),
        ("    open('/etc/passwd')\n", "does nothing else"),
        ("    A.__class__\n", "does nothing else"),
        ("    torch.rand_like(A)\n", "random numbers"),
        ("    A.view(torch.int16)\n", "bits of a number"),
        ("    A.to(torch.float8_e4m3fn)\n", "no such dtype"),
        ("    A = A.to('cuda:0')\n", "where its inputs are"),
        ("    A[0] = 1\n", "changes an input"),
        ("    A += 1\n", "changes an input"),
        ("    A.mul_(2)\n", "changes an input"),
        ("    global seen\n", "keeps nothing"),
        ("    torch.hub.list('a')\n", "plain torch"),
        ("def run(A, other):\n", "not the inputs: A, B"),
        ("def run(A, B, /):\n", "not the inputs: A, B"),
        ("def run(A, *B):\n", "not the inputs: A, B"),
        ("    C = A.clone()\n    C.mul_(2)\n    C[0] = 1\n", None),
        ("    A = A.clone()\n    A.mul_(2)\n", None),
        ("import math\n", None),
    ],
)
def test_a_reference_that_does_more_than_compute_makes_no_contract(
    body: str, why: str | None
) -> None:
    start = "" if body.startswith("def run") else "def run(A, B):\n"
    source = f"{body}{start}    return A" if body[0] != " " else f"{start}{body}    return A"
    found = [why for _, why in obstacles(ast.parse(source), ["A", "B"])]
    assert len(found) == (why is not None)
    assert why is None or why in found[0]


INDEXING: dict[str, set[str] | None] = {
    "return table[rows]": {"table"},
    "wide = table.float()\n    at = rows.long()\n    return wide[at.view(-1), :]": {"table"},
    "rows = rows.long()\n    assert rows.shape[0] > 1\n    return table[rows]": {"table"},
    "return table[rows + 1]": None,
    "return table[rows[1:]]": None,
    "return table[:, rows]": None,
    "return table[rows] * rows": None,
    "table = table.T\n    return table[rows]": None,
    "rows = rows - 1\n    return table[rows]": None,
    "out = table.clone()\n    out[rows] = 0\n    return out": None,
    "for rows in table:\n        pass\n    return table[rows]": None,
    "return table": set(),
}


@pytest.mark.parametrize("body", INDEXING)
def test_an_index_has_a_range_only_if_its_values_are_used_for_nothing_else(
    body: str,
) -> None:
    module = ast.parse(f"def run(table, rows):\n    {body}")
    assert index_targets(module, ["table", "rows"], ["rows"]).get("rows") == INDEXING[body]


@pytest.mark.parametrize("name", ["Upper", "a b", "-x"])
def test_out_must_be_the_name_of_a_contract(name: str, tmp_path: Path, capsys: Capture) -> None:
    arguments = ["contracts", "import", *write(tmp_path, GEMM)]
    assert main([*arguments, f"--out={tmp_path / name}"]) == 2
    assert "is no name of one" in capsys.readouterr().err


def test_what_is_there_is_never_overwritten(tmp_path: Path, capsys: Capture) -> None:
    made(tmp_path, capsys, GEMM)
    before = {path: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    code, facts = told(tmp_path, capsys, GEMM)
    assert code == 2
    assert "never overwritten" in str(facts["what"])
    assert {path: path.read_bytes() for path in (tmp_path / "made").iterdir()} == before


def test_what_the_loader_refuses_is_listed_and_leaves_nothing_behind(
    tmp_path: Path, capsys: Capture
) -> None:
    tensor: Json = {"shape": ["M", "K"], "dtype": "float16"}
    code, facts = told(
        tmp_path,
        capsys,
        changed(
            GEMM,
            inputs={"A": tensor, "A_out": tensor},
            outputs={"A": tensor},
            reference="def run(A, A_out):\n    return A + A_out\n",
        ),
    )
    assert code == 2
    assert "outputs.A_out" in listed(facts, blocks=True)["contract"][1]
    assert [path.name for path in tmp_path.iterdir()] == ["definition.json"]


@pytest.mark.parametrize("name", ["lambda", "prepared", "torch", "_x", "M"])
def test_an_input_whose_name_is_taken_makes_no_contract(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    tensor: Json = {"shape": ["M", "K"], "dtype": "float16"}
    code, facts = told(tmp_path, capsys, changed(GEMM, inputs={name: tensor}))
    assert code == 2
    assert "rename" in listed(facts, blocks=True)[f"inputs.{name}"][1]


@pytest.mark.parametrize(("size", "why"), [(1 << 31, "beyond 2**62"), (1 << 20, "2**36 elements")])
def test_sizes_beyond_all_measure_are_listed_and_make_no_contract(
    size: int, why: str, tmp_path: Path, capsys: Capture
) -> None:
    definition = changed(
        GATED, axes={name: {"type": "var"} for name in ("rows", "wide", "inner")}, constraints=[]
    )
    line = trace(definition, rows=size, wide=size, inner=size)
    code, facts = told(tmp_path, capsys, definition, line)
    assert code == 2
    assert why in listed(facts, blocks=True)["contract"][1]
