from pathlib import Path

import pytest

from inferproof.campaign.parse import parse, parse_bytes
from inferproof.core.campaign import Campaign, Inventory
from inferproof.core.contract import KernelContract
from inferproof.core.errors import FileFormatError


def refusal(folder: Path, old: str, new: str) -> str:
    path = folder / "campaign.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(FileFormatError) as caught:
        parse(Campaign, path)
    assert str(caught.value).startswith(f"{path}:{caught.value.line}: ")
    return f"{caught.value.line} {caught.value.what.removeprefix(f'{path}:')}"


def test_a_campaign_becomes_a_value(campaign_folder: Path) -> None:
    campaign = parse(Campaign, campaign_folder / "campaign.yaml")
    assert campaign.components[0].speedup_at_least == 1.05
    assert campaign.notify == ("notify-send", "inferproof")
    with pytest.raises(ValueError, match="frozen"):
        campaign.name = "other"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("jobs:", "jbos:", 17, "budget.jbos: unknown key; did you mean 'jobs'?"),
        ("tmp_mib:", "tmp_mb:", 21, "limits.tmp_mb: unknown key; did you mean 'tmp_mib'?"),
        ("speedup_at_least", "speedup", 11, "did you mean 'speedup_at_least'?"),
        ("kind: campaign", "zzzz: 1", 2, "zzzz: unknown key; valid here: kind, name, goal"),
        ("kind: campaign", "zzzz: 1", 2, "kind: is missing"),
        ("jobs: 1000", 'jobs: "1000"', 17, 'valid integer, not "1000" (text)'),
        ("jobs: 1000", "jobs: true", 17, "valid integer, not true (a boolean)"),
        ("jobs: 1000", "jobs: 10.5", 17, "integer"),
        ("expire_after_h: 72", "expire_after_h: no", 14, 'valid number, not "no" (text)'),
        ("expire_after_h: 72", "expire_after_h: false", 14, "valid number, not false (a boolean)"),
        ("expire_after_h: 72", "expire_after_h: -1", 14, "greater than 0, not -1"),
        ("name: fixture", "name: 5", 3, "valid string, not 5 (a number)"),
        ("name: fixture", "name: ../up", 3, "../up"),
        ("[promote]", "[deploy]", 13, "'promote', not \"deploy\""),
        ("target: local", "target: [local]", 9, 'valid string, not ["local"]'),
        ("hidden_size: 64", "hidden_size: 0", 8, "model.config.hidden_size"),
    ],
)
def test_errors_say_what_was_expected_and_what_came(
    campaign_folder: Path, old: str, new: str, line: int, says: str
) -> None:
    told = refusal(campaign_folder, old, new)
    assert told.startswith(f"{line} ")
    assert says in told


def test_only_the_first_three_problems_are_told(campaign_folder: Path) -> None:
    told = refusal(
        campaign_folder,
        "  memory_mib: 4096\n  tmp_mib: 256\n  processes: 64\n  call_s: 20\n",
        "  memory_mib: a\n  tmp_mib: b\n  processes: c\n  call_s: d\n",
    )
    assert told.count("not ") == 3
    assert "line 21: limits.tmp_mib" in told
    assert told.endswith("and 1 more")


def test_names_of_nested_unknown_keys_are_found() -> None:
    text = b"kind: kernel\ninputs:\n  dtype: {dtpe: bf16, shape: [x]}\n"
    with pytest.raises(FileFormatError) as caught:
        parse_bytes(KernelContract, text, path="c.yaml")
    assert caught.value.line == 3
    assert "inputs.dtype.dtpe: unknown key; did you mean 'dtype'?" in caught.value.what


def test_aliases_are_the_names_that_files_use() -> None:
    text = b"kind: kernel\nworkloads:\n  graded: {draw: 1, form: {}}\n"
    with pytest.raises(FileFormatError, match=r"graded\.form: unknown key; did you mean 'from'"):
        parse_bytes(KernelContract, text, path="c.yaml")


def test_hosts_of_an_unknown_kind_are_refused() -> None:
    text = b"gpu:\n  host: telnet\n"
    with pytest.raises(FileFormatError, match=r"t.yaml:2: gpu.host: .*'slurm', not \"telnet\""):
        parse_bytes(Inventory, text, path="t.yaml")
