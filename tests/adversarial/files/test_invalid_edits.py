"""Every edit that makes a campaign invalid is refused, clearly, and no harmless edit is.

The edits are made to the fixture campaign of `tests/unit/campaign`. Each one must raise a
FileFormatError that names the file and the line or field; any other exception fails the test.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferproof.campaign.files import open_campaign, sealable_files
from inferproof.core.errors import FileFormatError

DATA = Path(__file__).parents[2] / "unit" / "campaign" / "data"
FOLDER = "contracts/kernels/rms_norm"
CAMPAIGN, TARGETS = "campaign.yaml", "targets.yaml"
CONTRACT, REFERENCE = f"{FOLDER}/contract.yaml", f"{FOLDER}/reference.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replace `old` by `new` once in `file`; `says` must be in the message."""

    file: str
    old: str
    new: str
    says: str = ""

    @property
    def name(self) -> str:
        return f"{Path(self.file).name}: {self.old[:30]!r} -> {self.new[:30]!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Give `file` this content."""

    file: str
    name: str
    content: bytes
    says: str = ""


def edits(file: str, table: list[tuple[str, str, str]]) -> list[Edit]:
    return [Edit(file=file, old=old, new=new, says=says) for old, new, says in table]


CAMPAIGN_EDITS = edits(
    CAMPAIGN,
    [
        ("kind: campaign", "kind: kernel", "kind"),
        ("kind: campaign", "Kind: campaign", "did you mean 'kind'"),
        ("name: fixture", "name: Fix Ture", "name"),
        ("name: fixture", "name: .hidden", "name"),
        ("name: fixture", "name: ../../escape", "name"),
        ("name: fixture", "name: /etc/passwd", "name"),
        ("name: fixture", 'name: "fixture\\n"', "name"),
        ("name: fixture", f"name: {'n' * 65}", "name"),
        ("name: fixture", "name: fixture\nname: fixture", "appears twice"),
        ("goal: Make", "goal: !!python/name:os.system Make", "python/name"),
        ("goal: Make RMS norm faster than torch.", "goal: ''", "goal"),
        ("goal: Make RMS norm faster than torch.", f"goal: {'g' * 4001}", "goal"),
        ("goal: Make RMS norm faster than torch.", 'goal: "\\e[2Jgone"', "control"),
        ("goal: Make RMS norm faster than torch.", "goal: *other", "alias"),
        ("goal: Make RMS norm faster than torch.", "goal: &g it", "anchor"),
        ("goal: Make", "goal: {{ 7*7 }} Make", ""),
        ("hidden_size: 64", "hidden_size: 64.5", "hidden_size"),
        ("hidden_size: 64", "hidden_size: -64", "hidden_size"),
        ("hidden_size: 64", "hidden_size: 1e3", "hidden_size"),
        ("hidden_size: 64", "hidden_size: 2147483649", "hidden_size"),
        ("hidden_size: 64", "hidden_size: .inf", "finite"),
        ("hidden_size: 64", "hidden_size: 64\n    hidden_size: 128", "appears twice"),
        ("hidden_size: 64", "'': 64", "hidden_size"),
        ("hidden_size: 64", "1: 64", "a key must be text"),
        ("    hidden_size: 64", "\thidden_size: 64", "tab"),
        ("target: local", "target: gpu9", "targets.yaml"),
        ("target: local", "target: ../local", "target"),
        ("contract: rms_norm", "contract: ../../rms_norm", "contract"),
        ("contract: rms_norm", "contract: rms_norm/", "contract"),
        ("contract: rms_norm", "contract: softmax", "contracts/kernels/softmax"),
        ("contract: rms_norm", "contract: /etc", "contract"),
        ("  - {contract: rms_norm, speedup_at_least: 1.05}", "  []", "components"),
        ("  - {contract: rms_norm", "    {contract: rms_norm", "components"),
        ("speedup_at_least: 1.05", "speedup_at_least: 0", "greater than 0"),
        ("speedup_at_least: 1.05", "speedup_at_least: -1.05", "greater than 0"),
        ("speedup_at_least: 1.05", "speedup_at_least: 1e6", "less than"),
        ("speedup_at_least: 1.05", "speedup_at_least: '1.05'", "speedup_at_least"),
        ("speedup_at_least: 1.05", "speedup_at_least: 1,05", ""),
        ("speedup_at_least: 1.05", "speedup_at_least: .NaN", "finite"),
        ("required_for: [promote]", "required_for: promote", "required_for"),
        ("required_for: [promote]", "required_for: [promote, launch]", "launch"),
        ("required_for: [promote]", "required_for: {promote: true}", "required_for"),
        ("expire_after_h: 72", "expire_after_h: 0", "greater than 0"),
        ("expire_after_h: 72", "expire_after_h: 1e9", "less than"),
        ("expire_after_h: 72", "expire_after_h: 3 days", "3 days"),
        ("expire_after_h: 72", "expire_after_h: 2026-01-01", "2026-01-01"),
        ("job_wall_s: 600", "job_wall_s: -600", "greater than 0"),
        ("job_wall_s: 600", "job_wall_s: 86401", "less than"),
        ("job_wall_s: 600", "job_wall_s: 10:00", "10:00"),
        ("job_wall_s: 600", "jobwall_s: 600", "did you mean 'job_wall_s'"),
        ("jobs: 1000", "jobs: 0", "jobs"),
        ("jobs: 1000", "jobs: 1_000", "1_000"),
        ("jobs: 1000", "jobs: 1000.0", "jobs"),
        ("jobs: 1000", "jobs: 0b11", "0b11"),
        ("accelerator_hours: 8.5", "accelerator_hours: 0", "greater than 0"),
        ("accelerator_hours: 8.5", "accelerator_hours: 1e13", "less than"),
        ("memory_mib: 4096", "memory_mib: 4 GiB", "4 GiB"),
        ("memory_mib: 4096", "memory_mib: 63", "memory_mib"),
        ("memory_mib: 4096", "memory: 4096", "did you mean 'memory_mib'"),
        ("processes: 64", "processes: 3", "processes"),
        ("call_s: 20", "call_s: 0", "call_s"),
        ("call_s: 20", "call_s: null", "call_s"),
        ("call_s: 20", "call_s: 20\n  root: true", "limits.root: unknown key"),
        ("notify: [notify-send", "notify: [[notify-send]", ""),
        ("notify: [notify-send, inferproof]", "notify: notify-send", "notify"),
        ("notify: [notify-send, inferproof]", "notify: [1]", "notify"),
        ("notify: [notify-send, inferproof]", "<<: {jobs: 1}", "unknown key"),
        ("limits:", "limits: 5\nlimit:", "limit"),
        ("limits:", "tolerance: 100\nlimits:", "tolerance: unknown key"),
        ("limits:", "seed: 1\nlimits:", "seed: unknown key"),
        ("limits:", "---\nlimits:", ""),
        ("limits:", " limits:", ""),
        ("limits:", "? [a, b]\n: c\nlimits:", "a key must be text"),
        ("limits:", "%YAML 9.9\nlimits:", ""),
    ],
)

TARGETS_EDITS = edits(
    TARGETS,
    [
        ("host: local", "host: ssh", "host"),
        ("host: local", "host: gpu.example.org", "host"),
        ("host: local", "hots: local", "did you mean 'host'"),
        ("sandbox: auto", "sandbox: none", "sandbox"),
        ("deployer: process", "deployer: docker", "deployer"),
        ("python: /usr/bin/python3", "python: python3", "python"),
        ("python: /usr/bin/python3", "python: ''", "python"),
        ("threads: 2", "threads: 0", "threads"),
        ("threads: 2", "threads: all", "threads"),
        ("threads: 2", "threads: true", "threads"),
        ("local:\n", "Local Machine:\n", "Local Machine"),
        ("local:\n", "other:\n", "'local' is not in targets.yaml"),
        ("local:\n", "local:\n  host: local\nlocal:\n", "appears twice"),
        ("local:\n", "- local:\n", ""),
    ],
)

CONTRACT_EDITS = edits(
    CONTRACT,
    [
        ("kind: kernel", "kind: module", "kind"),
        ("name: rms_norm", "name: rms-norm", "folder"),
        ("name: rms_norm", "name: other", "folder"),
        ("tokens: {min: 1, max: 16384}", "tokens: {min: 16384, max: 1}", "is above max"),
        ("tokens: {min: 1, max: 16384}", "tokens: {min: -5, max: 16384}", "dims.tokens.min"),
        ("tokens: {min: 1, max: 16384}", "tokens: {min: 1}", "dims.tokens"),
        ("tokens: {min: 1, max: 16384}", "tokens: {}", "dims.tokens"),
        ("tokens: {min: 1, max: 16384}", "tokens: {min: 1, max: 4, value: 2}", "dims.tokens"),
        ("tokens: {min: 1, max: 16384}", "tokens: {min: 1, max: 99999999999}", "dims.tokens.max"),
        ("tokens: {min: 1, max: 16384}", "tokens: [1, 16384]", "dims.tokens"),
        ("tokens: {min: 1, max: 16384}", "to-kens: {min: 1, max: 16384}", "to-kens"),
        ("tokens: {min: 1, max: 16384}", "tokens: {minimum: 1, max: 2}", "did you mean 'min'"),
        ("hidden: {from_model: hidden_size}", "hidden: {from_model: width}", "has no 'width'"),
        ("hidden: {from_model: hidden_size}", "hidden: {from_model: a.b}", "from_model"),
        (
            "hidden: {from_model: hidden_size}",
            "hidden: {from_model: hidden_size, min: 65, max: 99}",
            "beyond 65..99",
        ),
        ("rows: {value: 4}", "rows: {value: 0}", "dims.rows.value"),
        ("rows: {value: 4}", "x: {value: 4}", "has that name already"),
        ("rows: {value: 4}", "lambda: {value: 4}", "reserved word"),
        ("x: {dtype: bf16", "x: {dtype: bfloat16", "dtype"),
        ("x: {dtype: bf16", "x: {dtyp: bf16", "did you mean 'dtype'"),
        ("x: {dtype: bf16", "hidden: {dtype: bf16", "has that name already"),
        ("x: {dtype: bf16", "prepared: {dtype: bf16", "reserved word"),
        ("layout: contiguous", "layout: strided", "layout"),
        ("shape: [hidden]}", "shape: hidden}", "shape"),
        ("shape: [hidden]}", "shape: []}", "at least one axis"),
        ("shape: [hidden]}", "shape: [0]}", "shape"),
        ("shape: [hidden]}", "shape: [-1]}", "shape"),
        ("shape: [hidden]}", "shape: [width]}", "unknown name 'width'"),
        ("shape: [hidden]}", 'shape: ["hidden.real"]}', "weight.shape[0]"),
        ("shape: [hidden]}", 'shape: ["int(hidden)"]}', "weight.shape[0]"),
        ("shape: [hidden]}", "shape: [\"__import__('os')\"]}", "weight.shape[0]"),
        ("shape: [hidden]}", 'shape: ["hidden**99"]}', "weight.shape[0]"),
        ("shape: [hidden]}", 'shape: ["hidden/2"]}', "weight.shape[0]"),
        ("shape: [hidden]}", 'shape: ["hidden//0"]}', "weight.shape[0]"),
        ("shape: [hidden]}", 'shape: ["hidden*99999999999999999"]}', "weight.shape[0]"),
        ("shape: [hidden]}", 'shape: ["lambda: 1"]}', "weight.shape[0]"),
        ("shape: [hidden]}", 'shape: ["[1][0]"]}', "weight.shape[0]"),
        ("shape: [hidden]}", 'shape: ["hidden if 1 else 2"]}', "weight.shape[0]"),
        ("shape: [hidden]}", 'shape: ["(hidden"]}', "weight.shape[0]"),
        ("shape: [hidden]}", f'shape: ["{"(" * 99}1{")" * 98}"]}}', "weight"),
        ("shape: [hidden]}", f'shape: ["{"-" * 199}1"]}}', "weight"),
        ("shape: [hidden]}", f'shape: ["{"1" * 201}"]}}', "shape"),
        ("shape: [hidden]}", "shape: ['']}", "shape"),
        ("shape: [hidden]}", "shape: [1.5]}", "shape"),
        ("shape: [hidden]}", "shape: [true]}", "shape"),
        ("shape: [hidden]}", 'shape: ["hidden - 64"]}', "elements"),
        ("shape: [hidden]}", 'shape: ["hidden*9000000000"]}', "elements"),
        ("shape: [hidden]}", "shape: [hidden], range: [0, 4]}", "only integer inputs"),
        (", range: [0, rows]", "", "needs `range"),
        ("range: [0, rows]", "range: [rows, 0]", "holds no integer"),
        ("range: [0, rows]", "range: [0]", "range"),
        ("range: [0, rows]", "range: [0, rows, 1]", "range"),
        ("range: [0, rows]", "range: [0, os.sep]", "range"),
        ("range: [0, rows]", "range: rows", "range"),
        ("eps: {dtype: f32, value: 1.0e-6}", "eps: {dtype: f64, value: 1.0e-6}", "dtype"),
        ("eps: {dtype: f32, value: 1.0e-6}", "eps: {dtype: i64, value: 1.5}", "is no integer"),
        ("eps: {dtype: f32, value: 1.0e-6}", "eps: {dtype: f32, value: '1e-6'}", "value"),
        ("eps: {dtype: f32, value: 1.0e-6}", "eps: {dtype: f32, value: .nan}", "finite"),
        ("eps: {dtype: f32, value: 1.0e-6}", "eps: {dtype: f32, value: 1e400}", "finite"),
        ("eps: {dtype: f32, value: 1.0e-6}", "eps: 1.0e-6", "params.eps"),
        ("eps: {dtype: f32, value: 1.0e-6}", "y: {dtype: f32, value: 1}", "name already"),
        ("y: {dtype: bf16", "x: {dtype: bf16", "has that name already"),
        ("mutates: []", "mutates: [y]", "'y' is no input"),
        ("mutates: []", "mutates: [weight]", "cannot be prepared once"),
        ("mutates: []", "mutates: [x, x]", "appears 2 times"),
        ("mutates: []", "mutates: x", "mutates"),
        ("prepare: [weight]", "prepare: [bias]", "'bias' is no input"),
        ("prepare: [weight]", "prepare: [../weight]", "prepare"),
        ("prepare: [weight]", "prepares: [weight]", "did you mean 'prepare'"),
        ("allow: [flashinfer, cublas]", "allow: all", "allow"),
        ("record: [version, licence]", "record: [price]", "record"),
        ("reference.py:rms_norm\n", "../reference.py:rms_norm\n", "reference"),
        ("reference.py:rms_norm\n", "/tmp/reference.py:rms_norm\n", "reference"),
        ("reference.py:rms_norm\n", "sub/reference.py:rms_norm\n", "reference"),
        ("reference.py:rms_norm\n", "reference.py\n", "reference"),
        ("reference.py:rms_norm\n", "reference.py:no_such\n", "defines no function"),
        ("reference.py:rms_norm\n", "reference.py:MUTANTS\n", "defines no function"),
        ("reference.py:rms_norm\n", "other.py:rms_norm\n", "there is no file"),
        ("reference.py:rms_norm\n", "reference.sh:rms_norm\n", "reference"),
        ("reference.py:rms_norm_bf16", "reference.py:rms_norm_f8", "yardstick"),
        ("reference.py:align", "reference.py:misalign", "align"),
        ("[torch, torch.compile]", "[]", "baselines"),
        ("[torch, torch.compile]", "[numpy]", "baselines"),
        ("[torch, torch.compile]", "[torch, torch]", "appears 2 times"),
        ("{tokens: 128}", "{tokens: 0}", "practice[1].tokens"),
        ("{tokens: 128}", "{tokens: 16385}", "is not within 1..16384"),
        ("{tokens: 128}", "{token: 128}", "must name the dims"),
        ("{tokens: 128}", "{}", "must name the dims"),
        ("{tokens: 128}", "{tokens: 128, hidden: 4}", "must name the dims"),
        ("{tokens: 128}", "128", "practice[1]"),
        ("draw: 12", "draw: 0", "draw"),
        ("draw: 12", "draw: 65", "draw"),
        ("draw: 12", "draw: 12\n    seed: 7", "graded.seed: unknown key"),
        ("from: {tokens: log_uniform}", "from: {tokens: gaussian}", "from"),
        ("from: {tokens: log_uniform}", "from: {hidden: log_uniform}", "must name the dims"),
        ("from: {tokens: log_uniform}", "from: {}", "must name the dims"),
        ("from: {tokens: log_uniform}", "form: {tokens: log_uniform}", "did you mean 'from'"),
        ("neighbours: [-1, 1]", "neighbours: [0]", "is no neighbour"),
        ("neighbours: [-1, 1]", "neighbours: [5000]", "is no neighbour"),
        ("neighbours: [-1, 1]", "neighbors: [-1, 1]", "did you mean 'neighbours'"),
        ("{tokens: [1, 8]}", "{tokens: [8, 1]}", "is not within"),
        ("{tokens: [1, 8]}", "{tokens: [0, 8]}", "tokens"),
        ("{tokens: [1, 8]}", "{tokens: [1, 99999]}", "is not within"),
        ("{tokens: [1, 8]}", "{tokens: 8}", "tokens"),
        ("{tokens: [1, 8]}", "{tokens: [1, 2, 3]}", "tokens"),
        ("{tokens: [1, 8]}", "{rows: [1, 8]}", "must name the dims"),
        ("pairs: 20", "pairs: 4", "pairs"),
        ("pairs: 20", "pairs: 201", "pairs"),
        ("inputs_like: [normal,", "inputs_like: [gaussian,", "inputs_like"),
        ("inputs_like: [normal,", "inputs_like: [normal, normal,", "appears 2 times"),
        ("inputs_like: [normal, log_uniform, constant]", "inputs_like: []", "inputs_like"),
        ("rms_over_yardstick: 2.0", "rms_over_yardstick: 0.5", "yardstick itself would fail"),
        ("rms_over_yardstick: 2.0", "rms_over_yardstick: 101", "rms_over_yardstick"),
        ("rms_over_yardstick: 2.0", "rms_over_yardstick: .inf", "finite"),
        ("p999_over_yardstick: 4.0", "p99_over_yardstick: 4.0", "did you mean"),
        ("floor: bf16", "floor: f16", "is no floating dtype of this contract"),
        ("floor: bf16", "floor: i32", "is no floating dtype"),
        ("floor: bf16", "floor: 1.0e-2", "floor"),
        ("mutants: [zeros,", "mutants: [zero,", "'zero' is neither generic"),
        ("mutants: [zeros,", "mutants: [zeros, zeros,", "appears 2 times"),
        ("mutants: [zeros,", "mutants: [../zeros,", "mutants"),
        ("mutants: [zeros, mean, stale, half, lower_precision, skip_weight]", "mutants: []", ""),
        ('flops: "4*tokens*hidden"', 'flops: "4*tokens*width"', "unknown name 'width'"),
        ('flops: "4*tokens*hidden"', 'flops: "print(1)"', "roofline.flops"),
        ('flops: "4*tokens*hidden"', 'ops: "4*tokens*hidden"', "roofline.ops: unknown key"),
        ("{id: eps-outside,", "{id: cross-layer-weight,", "appears 2 times"),
        ("{id: eps-outside,", "{id: Eps Outside,", "failure_modes[1].id"),
        ("failure_modes:", "failure_modes: many\nmodes:", "failure_modes"),
    ],
)

REFERENCE_EDITS = edits(
    REFERENCE,
    [
        ("def rms_norm(", "def rms(", "defines no function 'rms_norm'"),
        ("def rms_norm(", "async def rms_norm(", "defines no function 'rms_norm'"),
        ("def rms_norm(", "rms_norm = lambda x: x\ndef other(", "defines no function"),
        ("def rms_norm_bf16(", "def bf16(", "yardstick"),
        ("def baseline(", "def base(", "baseline"),
        ("def align(", "def align)(", "not Python"),
        ('{"skip_weight": _skip_weight}', "dict(skip_weight=_skip_weight)", "skip_weight"),
        ('{"skip_weight": _skip_weight}', "{}", "skip_weight"),
        ('"""Reference', '"Reference', "not Python"),
        ("def align(", f"def deep(): return {'(' * 300}1{')' * 300}\ndef align(", "not Python"),
    ],
)

ALL_FILES = (CAMPAIGN, TARGETS, CONTRACT)
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "only a comment": b"# nothing\n",
    "only null": b"null\n",
    "a list": b"- 1\n- 2\n",
    "a word": b"campaign\n",
    "a number": b"42\n",
    "binary": bytes(range(256)),
    "zeros": bytes(4096),
    "utf-16": "kind: campaign\n".encode("utf-16"),
    "a pickle": b"\x80\x04\x95\x00.",
    "deep": b"a: " + b"[" * 5000,
    "deep mapping": b"{a: " * 5000,
    "indented deep": b"".join(b" " * i + b"a:\n" for i in range(500)),
    "alias bomb": b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n",
    "self reference": b"&a [*a]\n",
    "python object": b"!!python/object/apply:os.system [id]\n",
    "python module": b"!!python/module:os {}\n",
    "two documents": b"kind: campaign\n---\nkind: campaign\n",
    "too large": b"# " + b"x" * (257 << 10),
    "json with comments": b'{"kind": "campaign" /* x */}\n',
    "unclosed": b'kind: "campaign\n',
    "tabs": b"kind:\n\t- campaign\n",
}
REWRITES = [
    Rewrite(file=file, name=f"{Path(file).name}: {name}", content=content)
    for file in ALL_FILES
    for name, content in CONTENTS.items()
]
# The values that no field of any file may have, put in the place of each scalar in turn.
POISONS = (".nan", "!!python/object/new:os.system [id]", "99999999999999999999", "{surprise: 1}")
MARK = "put-the-poison-here"
OPTIONAL = frozenset({"accelerator_hours", "python", "threads", "align"})

Data = dict[str, "Data"] | list["Data"] | str | int | float | None


def leaves(data: Data, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(data, dict):
        for key, item in data.items():
            yield from leaves(item, (*path, key))
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from leaves(item, (*path, index))
    else:
        yield path


def poisoned(file: str) -> Iterator[Rewrite]:
    text = (DATA / file).read_text()
    for number, path in enumerate(leaves(yaml.safe_load(text))):
        data = yaml.safe_load(text)
        place = data
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = MARK
        marked = yaml.safe_dump(data, sort_keys=False)
        where = ".".join(map(str, path))
        poisons = [POISONS[number % len(POISONS)]]
        if path[-1] not in OPTIONAL:
            poisons.append("null")
        for poison in poisons:
            content = marked.replace(MARK, poison).encode()
            yield Rewrite(file=file, name=f"{Path(file).name}: {where} = {poison}", content=content)


POISONED = [rewrite for file in ALL_FILES for rewrite in poisoned(file)]
TABLE = [*CAMPAIGN_EDITS, *TARGETS_EDITS, *CONTRACT_EDITS, *REFERENCE_EDITS]
INVALID = [*TABLE, *REWRITES, *POISONED]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "campaign"))


def apply(edit: Edit | Rewrite, folder: Path) -> None:
    path = folder / edit.file
    if isinstance(edit, Rewrite):
        path.write_bytes(edit.content)
        return
    text = path.read_text()
    assert edit.old in text
    path.write_text(text.replace(edit.old, edit.new, 1))


def test_the_fixture_itself_is_valid(folder: Path) -> None:
    assert open_campaign(folder).campaign.name == "fixture"


def test_there_are_at_least_two_hundred_invalid_edits() -> None:
    assert len(TABLE) >= 200
    assert len({edit.name for edit in INVALID}) == len(INVALID)


@pytest.mark.parametrize("edit", INVALID, ids=lambda edit: edit.name)
def test_an_invalid_edit_is_refused_with_its_place(folder: Path, edit: Edit | Rewrite) -> None:
    apply(edit, folder)
    with pytest.raises(FileFormatError) as caught:
        open_campaign(folder)
    error = caught.value
    assert edit.says in error.what
    assert Path(error.path).is_relative_to(folder)
    assert error.what.startswith(error.path)
    named_whole = "larger than" in error.what or "not YAML" in error.what
    assert error.line is not None or named_whole
    assert "\x1b" not in str(error)
    assert len(str(error)) < 2000


@pytest.mark.parametrize("place", ["campaign.yaml", "targets.yaml", CONTRACT, REFERENCE])
@pytest.mark.parametrize("kind", ["symlink", "folder", "fifo", "missing"])
def test_only_regular_files_are_read(folder: Path, tmp_path: Path, place: str, kind: str) -> None:
    path = folder / place
    path.rename(tmp_path / "moved")
    match kind:
        case "symlink":
            path.symlink_to(tmp_path / "moved")
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case _:
            pass  # it stays away
    with pytest.raises(FileFormatError, match=path.name):
        open_campaign(folder)


HARMLESS = [
    *edits(
        CAMPAIGN,
        [
            ("# A small", "# Another small", ""),
            ("kind: campaign", "kind: 'campaign'", ""),
            ("kind: campaign", '"kind": "campaign"   # a comment', ""),
            ("kind: campaign\nname: fixture", "name: fixture\nkind: campaign", ""),
            ("name: fixture\n", "\n\nname:    fixture   \n\n", ""),
            (
                "goal: Make RMS norm faster than torch.",
                "goal: >-\n  Make RMS norm\n  faster than torch.",
                "",
            ),
            ("  config:\n    hidden_size: 64", "  config: {hidden_size: 64}", ""),
            ("hidden_size: 64", "hidden_size: 0x40", ""),
            ("hidden_size: 64", "hidden_size: +64", ""),
            ("speedup_at_least: 1.05", "speedup_at_least: 105e-2", ""),
            ("expire_after_h: 72", "expire_after_h: 72.0", ""),
            ("[promote]", "\n    - promote", ""),
            ("job_wall_s: 600\n  jobs: 1000", "jobs: 1000\n  job_wall_s: 600", ""),
            ("# A small", "%YAML 1.2\n---\n# A small", ""),
            ("# A small", "\ufeff# A small", ""),
            (
                "{contract: rms_norm, speedup_at_least: 1.05}",
                "{speedup_at_least: 1.05, contract: rms_norm}",
                "",
            ),
            ("notify: [notify-send, inferproof]", "notify:\n- notify-send\n- inferproof\n...", ""),
        ],
    ),
    *edits(
        CONTRACT,
        [
            ("# A small", "# Another small", ""),
            ("layout: contiguous", "layout: 'contiguous'", ""),
            ("[tokens, hidden], layout: contiguous", "[tokens, hidden]", ""),
            ("mutates: []\n", "", ""),
            ("1.0e-6", "1e-6", ""),
            ("{min: 1, max: 16384}", "{max: 16384, min: 1}", ""),
            ("prepare: [weight]", "prepare:\n  - weight", ""),
            ("rms_over_yardstick: 2.0", "rms_over_yardstick: 2", ""),
            ("  practice:", "  # open\n  practice:", ""),
        ],
    ),
    *edits(TARGETS, [("  sandbox: auto\n", "", ""), ("host: local", "host: local  # here", "")]),
]


@pytest.mark.parametrize("edit", HARMLESS, ids=lambda edit: edit.name)
def test_a_harmless_edit_loads_to_the_same_value(folder: Path, edit: Edit) -> None:
    before = open_campaign(folder)
    apply(edit, folder)
    after = open_campaign(folder)
    assert after.campaign == before.campaign
    assert after.targets == before.targets
    assert after.contracts["rms_norm"].contract == before.contracts["rms_norm"].contract


def test_the_seal_sees_even_harmless_edits(folder: Path) -> None:
    before = sealable_files(folder)
    for edit in (HARMLESS[0], HARMLESS[-1]):
        apply(edit, folder)
    after = sealable_files(folder)
    assert {name for name in after if after[name] != before[name]} == {CAMPAIGN, TARGETS}


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    file=st.sampled_from((*ALL_FILES, REFERENCE)),
    start=st.integers(0, 1500),
    cut=st.integers(0, 30),
    put=st.binary(max_size=12) | st.text("{}[]:,&*!|>'\"%@`#-? \n\t~.0123456789", max_size=12),
)
def test_any_splice_loads_or_is_a_format_error(
    folder: Path, file: str, start: int, cut: int, put: bytes | str
) -> None:
    shutil.copytree(DATA, folder, dirs_exist_ok=True)
    data = (folder / file).read_bytes()
    start %= len(data)
    spliced = put if isinstance(put, bytes) else put.encode()
    (folder / file).write_bytes(data[:start] + spliced + data[start + cut :])
    with suppress(FileFormatError):
        open_campaign(folder)
