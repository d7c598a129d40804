from pathlib import Path

import pytest

from inferproof.campaign.contracts import GENERIC_MUTANTS, load_contract, resolve_dims
from inferproof.core.canonical import digest_bytes, digest_json
from inferproof.core.errors import FileFormatError, UsageError

LIBRARY = Path(__file__).parents[3] / "contracts" / "kernels"


def edited(folder: Path, old: str, new: str, *, file: str = "contract.yaml") -> Path:
    path = folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return folder


def test_a_contract_is_named_by_all_its_files(contract_folder: Path) -> None:
    (contract_folder / "shapes").mkdir()
    (contract_folder / "shapes" / "more.txt").write_text("1 2\n")
    (contract_folder / "__pycache__").mkdir()
    (contract_folder / "__pycache__" / "reference.pyc").write_bytes(b"x")
    sealed = load_contract(contract_folder)
    assert sealed.contract.name == "rms_norm"
    assert list(sealed.files) == ["contract.yaml", "reference.py", "shapes/more.txt"]
    assert sealed.files["shapes/more.txt"] == digest_bytes(b"1 2\n")
    assert sealed.digest == digest_json(sealed.files)
    (contract_folder / "shapes" / "more.txt").write_text("1 3\n")
    assert load_contract(contract_folder).digest != sealed.digest


def test_loading_does_not_run_the_reference(contract_folder: Path) -> None:
    assert "raise SystemExit" in (contract_folder / "reference.py").read_text()
    assert load_contract(contract_folder).kernel.mutants[-1] == "skip_weight"


def test_dims_are_resolved_from_the_model(contract_folder: Path) -> None:
    contract = load_contract(contract_folder).kernel
    dims = resolve_dims(contract, {"hidden_size": 64, "unused": 1})
    assert dims.fixed == {"hidden": 64, "rows": 4}
    assert dims.maxima == {"tokens": 16384, "hidden": 64, "rows": 4}


def test_a_missing_config_field_is_named(contract_folder: Path) -> None:
    contract = load_contract(contract_folder).kernel
    with pytest.raises(UsageError, match="has no 'hidden_size', which contract rms_norm reads"):
        resolve_dims(contract, {"hidden": 64})


def test_a_model_outside_the_contract_is_refused(contract_folder: Path) -> None:
    edited(
        contract_folder, "{from_model: hidden_size}", "{from_model: hidden_size, min: 8, max: 32}"
    )
    contract = load_contract(contract_folder).kernel
    assert resolve_dims(contract, {"hidden_size": 32}).fixed["hidden"] == 32
    with pytest.raises(UsageError, match=r"hidden_size is 64, beyond 8\.\.32"):
        resolve_dims(contract, {"hidden_size": 64})


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ("[tokens, hidden - 64]", "must have 1 to 2\\*\\*36 elements, has 0"),
        ("[tokens, 64 - hidden]", "must have 1 to"),
        ("[tokens, hidden * 1000000]", "must have 1 to"),
        ("[tokens, 8 // (hidden - 64)]", "not an integer expression"),
    ],
)
def test_shapes_must_make_sense_for_the_model(contract_folder: Path, shape: str, says: str) -> None:
    edited(contract_folder, "shape: [tokens, hidden], layout", f"shape: {shape}, layout")
    contract = load_contract(contract_folder).kernel
    with pytest.raises(UsageError, match=says):
        resolve_dims(contract, {"hidden_size": 64})


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("reference.py", "def rms_norm(", "def other(", "defines no function 'rms_norm'"),
        ("reference.py", "def align(", "def unaligned(", "align: reference.py defines no function"),
        ("reference.py", "def baseline(", "def base(", "defines no `baseline`"),
        ("reference.py", '"skip_weight"', '"skip"', "'skip_weight' is neither generic nor a key"),
        ("reference.py", "MUTANTS = ", "OTHERS = ", "'skip_weight' is neither generic"),
        ("reference.py", "def align(", "def align((", "reference.py:18: not Python"),
        ("contract.yaml", "reference.py:rms_norm\n", "missing.py:rms_norm\n", "'missing.py'"),
        ("contract.yaml", "name: rms_norm", "name: other", "not the folder's name 'rms_norm'"),
    ],
)
def test_functions_are_found_without_running_them(
    contract_folder: Path, file: str, old: str, new: str, says: str
) -> None:
    edited(contract_folder, old, new, file=file)
    with pytest.raises(FileFormatError) as caught:
        load_contract(contract_folder)
    assert says in caught.value.what


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"x = {'-' * 100_000}1", "nested too deeply"),
        (f"x = a{'.a' * 100_000}", "recursion"),
        ("x = '\0'", "null bytes"),
        ("# coding: bogus", ":1: not Python: unknown encoding"),
    ],
    ids=["unary", "attributes", "null", "coding"],
)
def test_a_reference_that_no_parser_takes_is_refused(
    contract_folder: Path, line: str, says: str
) -> None:
    path = contract_folder / "reference.py"
    path.write_text(f"{line}\n{path.read_text()}")
    with pytest.raises(FileFormatError, match=says):
        load_contract(contract_folder)


def test_an_annotated_mutants_table_counts(contract_folder: Path) -> None:
    edited(contract_folder, "MUTANTS = ", "MUTANTS: dict[str, object] = ", file="reference.py")
    assert load_contract(contract_folder).kernel.mutants


def test_a_linked_reference_is_refused(contract_folder: Path, tmp_path: Path) -> None:
    (contract_folder / "reference.py").rename(tmp_path / "elsewhere.py")
    (contract_folder / "reference.py").symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(FileFormatError, match=r"reference\.py: symbolic links are refused"):
        load_contract(contract_folder)


def test_the_bench_knows_every_generic_mutant() -> None:
    source = LIBRARY.parents[1] / "remote" / "inferproof_remote" / "mutants.py"
    text = source.read_text()
    assert [name for name in GENERIC_MUTANTS if f'"{name}"' not in text] == []


@pytest.mark.parametrize(
    "folder", sorted(LIBRARY.glob("*/contract.yaml")), ids=lambda p: p.parent.name
)
def test_shipped_contracts_load(folder: Path) -> None:
    config = {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_experts": 128,
        "vocab_size": 32000,
        "num_experts_per_tok": 8,
    }
    sealed = load_contract(folder.parent)
    assert resolve_dims(sealed.kernel, config).maxima.keys() == sealed.kernel.dims.keys()
