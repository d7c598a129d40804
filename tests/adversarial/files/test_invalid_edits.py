"""Every edit that makes a campaign invalid is refused, clearly, and no harmless edit is.

The edits are made to the fixture campaign of `tests/unit/campaign`. Each one must raise a
FileFormatError that names the file and the line or field; any other exception fails the test.
"""

import json
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

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "unit" / "campaign" / "data"
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


def table(part: str) -> Iterator[Edit]:
    """Yield the edits of edits.json, written there as [old, new, what the message says]."""
    for file, rows in json.loads((HERE / "edits.json").read_text())[part].items():
        for row in rows:
            yield Edit(file=file, old=row[0], new=row[1], says="".join(row[2:]))


LONG = [
    Edit(file=CAMPAIGN, old="goal: Make", new=f"goal: {'g' * 4001}", says="goal"),
    Edit(
        file=REFERENCE,
        old="def align(",
        new=f"def deep(): return {'(' * 300}1{')' * 300}\ndef align(",
        says="not Python",
    ),
]
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
TABLE = [*table("invalid"), *LONG]
HARMLESS = [*table("harmless")]
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
        assert [name for name in after if after[name] != before[name]] == [edit.file]
        before = after


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
