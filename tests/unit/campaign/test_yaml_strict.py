from pathlib import Path

import pytest

from inferproof.campaign.yaml_strict import SIZE_LIMIT_BYTES, load, loads
from inferproof.core.errors import FileFormatError


def refusal(text: str | bytes) -> FileFormatError:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(FileFormatError) as caught:
        loads(data, path="a.yaml")
    return caught.value


def test_values_follow_the_core_schema() -> None:
    text = (
        "a: 1\nb: 1.5\nc: 1e-6\nd: true\ne: null\nf: ~\ng:\nh: 0x10\ni: 0o17\nj: '5'\nk: -3\n"
        "l: no\nm: 1_000\nn: 2026-01-01\no: 1:30\np: 010\nq: [x, {y: z}]\n"
    )
    assert loads(text.encode(), path="a.yaml").data == {
        "a": 1,
        "b": 1.5,
        "c": 1e-6,
        "d": True,
        "e": None,
        "f": None,
        "g": None,
        "h": 16,
        "i": 15,
        "j": "5",
        "k": -3,
        "l": "no",
        "m": "1_000",
        "n": "2026-01-01",
        "o": "1:30",
        "p": 10,
        "q": ["x", {"y": "z"}],
    }


def test_every_key_and_item_has_its_line() -> None:
    lines = loads(b"# head\na:\n  b: 1\n  c:\n    - x\n    - y\n", path="a.yaml").lines
    assert lines == {
        (): 2,
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "c"): 4,
        ("a", "c", 0): 5,
        ("a", "c", 1): 6,
    }


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "'a' appears twice"),
        ("a: &x 1\nb: *x\n", 1, "anchors and aliases"),
        ("a: 1\nb: *x\n", 2, "anchors and aliases"),
        ("a: 1\nb: .nan\n", 2, "finite"),
        ("b: .NaN\n", 1, "finite"),
        ("b: -.inf\n", 1, "finite"),
        ("b: 1e999\n", 1, "finite"),
        ("b: 9223372036854775808\n", 1, "2**63"),
        ("b: -9223372036854775808\n", 1, "2**63"),
        (f"b: {'9' * 10_000}\n", 1, "2**63"),
        ("b: !!python/object:os.system x\n", 1, "python/object"),
        ("b: !!python/object/apply:os.system [x]\n", 1, "python/object"),
        ("b: !mine {x: 1}\n", 1, "!mine"),
        ("b: !!binary aGk=\n", 1, "binary"),
        ("b: !!timestamp 2026-01-01\n", 1, "timestamp"),
        ("b: !!set {x}\n", 1, "set"),
        ("b: !!int abc\n", 1, "'abc' is no int"),
        ("b: !!float 1_0\n", 1, "'1_0' is no float"),
        ("b: !!bool 2\n", 1, "'2' is no bool"),
        ("1: x\n", 1, "a key must be text"),
        ("[x]: y\n", 1, "a key must be text"),
        ("a:\n\tb: 1\n", 2, "tab"),
        ("a: b: c\n", 1, "mapping values"),
        ("a: [1, 2\n", 2, "flow sequence"),
        ("a: 'open\n", 2, "quoted scalar"),
        ("a: 1\n---\nb: 2\n", 2, "document"),
        ("a: \x00\n", 1, "U+0000"),
        ("a: 1\nb: \x1b[31m\n", 2, "U+001B"),
        ("a: \u202e\n", 1, "U+202E"),
        ('a: "\\0"\n', 1, "control characters"),
        ('a: "\\uD800"\n', 1, "control characters"),
        ("a: " + "[" * 200 + "]" * 200, 1, "nested more than"),
        ("", 1, "empty"),
        ("# only a comment\n", 1, "empty"),
    ],
)
def test_refusals_name_the_line(text: str, line: int, says: str) -> None:
    error = refusal(text)
    assert says in error.what
    assert error.line == line
    assert error.what.startswith(f"a.yaml:{line}: ")


def test_bytes_that_are_not_text_are_refused() -> None:
    assert "not UTF-8" in refusal(b"a: 1\nb: \xff\xfe\n").what
    assert "a.yaml:2" in refusal(b"a: 1\nb: \xff\xfe\n").what
    assert "U+0000" in refusal("a: 1\n".encode("utf-16-le")).what


def test_impossible_escapes_are_refused() -> None:
    assert "not YAML" in refusal('a: "\\UFFFFFFFF"\n').what


def test_large_files_are_refused() -> None:
    assert "larger than 256 KiB" in refusal("a: " + "x" * SIZE_LIMIT_BYTES).what


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "anchors" in refusal(bomb).what


def test_files_are_read_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("a: 1\n")
    (tmp_path / "link.yaml").symlink_to("real.yaml")
    assert load(tmp_path / "real.yaml").data == {"a": 1}
    with pytest.raises(FileFormatError, match="symbolic links"):
        load(tmp_path / "link.yaml")
    with pytest.raises(FileFormatError, match="not a regular file"):
        load(tmp_path)
    with pytest.raises(FileFormatError, match="no such file"):
        load(tmp_path / "missing.yaml")
