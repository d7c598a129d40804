"""Device code compiles without a GPU, for the chip at hand and the next, to what it should be."""

import re
from pathlib import Path

import pytest
import yaml

from gpu.overlay import laid_out
from gpu.zoo import KERNELS, load_rows
from inferproof.core.evidence import BuildFacts
from inferproof.core.values import Outcome, Reason, Verdict
from inferproof.gates.compiled import Compiled
from inferproof_remote import build, build_cuda
from shipped_kernels import read_contract
from unit.gates.cases import honest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(build_cuda.find_compiler() is None, reason="nvcc is not installed"),
]
ARCHS = ("sm_90a", "sm_100a")
LIMITS = {"memory_mib": 2048, "tmp_mib": 256, "processes": 64}
HONEST = [row.folder for row in load_rows() if not row.expect and "triton" not in row.folder]
# What the machine code of these holds on both chips.
MATRIX, WIDE, BULK = "matrix instructions", "128-bit loads", "asynchronous copies"
FP8, NARROW = "e4m3 matrix instructions", "conversions to narrow formats"
HOLDS = {
    "honest-matmul-tensor-cores": MATRIX,
    "honest-matmul-persistent": MATRIX,
    "honest-rms-norm-fast": WIDE,
    "honest-fused-add-fast": WIDE,
    "honest-silu-and-mul-fast": WIDE,
    "honest-decode-split-kv": WIDE,
    "honest-cache-vectors": WIDE,
    "honest-rms-norm-bulk-copy": BULK,
    "honest-rms-norm-async-copy": BULK,
    "honest-rms-norm-tensor-map": BULK,
    "honest-fp8-matmul": FP8,
    "honest-nvfp4-quantize": NARROW,
}
# By architecture: what a 4-bit product is made of where the chip has it, and where it has not.
FOUR_BITS = {"sm_90a": "HMMA.16816.F32.BF16", "sm_100a": "UTCOMMA.4X"}

SMOKE = ("honest-matmul-tensor-cores", "honest-silu-and-mul-fast")


def built(tmp_path: Path, folder: str) -> BuildFacts:
    source = laid_out(KERNELS / folder, tmp_path)
    manifest = yaml.safe_load((source / "candidate.yaml").read_text(encoding="utf-8"))
    facts = build.build(
        manifest=manifest, source_dir=source, out_dir=tmp_path / "out", limits=LIMITS, archs=ARCHS
    )
    return BuildFacts.model_validate(facts)


@pytest.mark.zoo
@pytest.mark.parametrize("folder", HONEST)
def test_every_honest_candidate_compiles_for_both_chips_and_spills_nothing(
    tmp_path: Path, folder: str
):
    facts = built(tmp_path, folder)
    assert facts.code == "accepted", facts.diagnostics
    assert {each.arch for each in facts.resources} == set(ARCHS)
    assert not [each for each in facts.resources if each.spill_store_bytes]


@pytest.mark.skipif(build_cuda.find_disassembler() is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize(
    "folder",
    [
        folder if folder in SMOKE else pytest.param(folder, marks=pytest.mark.zoo)
        for folder in HOLDS
    ],
)
def test_machine_code_holds_the_instructions_it_should_on_both_chips(tmp_path: Path, folder: str):
    resources = built(tmp_path, folder).resources
    for arch in ARCHS:
        kernels = [each.code for each in resources if each.arch == arch]
        codes = [code for code in kernels if code is not None]
        assert codes
        found = {
            MATRIX: any("BF16" in name for code in codes for name in code.tensor),
            WIDE: any(code.loads.get("128") for code in codes),
            BULK: any(code.bulk for code in codes),
            FP8: any(re.match("QGMMA|UTCQMMA", name) for code in codes for name in code.tensor),
            NARROW: any(code.opcodes.get("F2FP") for code in codes),
        }
        assert found[HOLDS[folder]], (arch, codes)
        assert not any(code.local for code in codes)


def engaged(tmp_path: Path, folder: str) -> Verdict:
    """Return what the gate says of a candidate's build for both chips."""
    manifest = yaml.safe_load((KERNELS / folder / "candidate.yaml").read_text(encoding="utf-8"))
    contract, case = read_contract(manifest["contract"]), honest()
    evidence = case.evidence.model_copy(update={"grade": None, "build": built(tmp_path, folder)})
    return Compiled().judge(case.model_copy(update={"contract": contract, "evidence": evidence}))


@pytest.mark.zoo
@pytest.mark.skipif(build_cuda.find_disassembler() is None, reason="nvdisasm is not installed")
def test_a_four_bit_product_uses_four_bit_units_where_there_are_any(tmp_path: Path):
    for each in built(tmp_path, "honest-nvfp4-matmul").resources:
        assert each.code is not None
        assert set(each.code.tensor) == {FOUR_BITS[each.arch]}
    assert engaged(tmp_path, "honest-nvfp4-matmul").outcome is Outcome.PASS


@pytest.mark.skipif(build_cuda.find_disassembler() is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize(
    ("folder", "code"),
    [
        ("w4-fp8-raised", Reason.PRECISION_RAISED),
        pytest.param("honest-fp8-matmul", Reason.ACCEPTED, marks=pytest.mark.zoo),
    ],
)
def test_a_raised_precision_is_refused_before_it_runs(tmp_path: Path, folder: str, code: Reason):
    assert engaged(tmp_path, folder).code is code
