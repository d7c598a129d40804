"""Registering with a host never costs the user anything that was there."""

import json
import tomllib
from pathlib import Path

import pytest

from inferproof.core.errors import FileFormatError, UsageError
from inferproof.install import Host, Registration, apply, place_of, plan

HERE = Registration(command="inferproof", args=("serve",))
ELSEWHERE = Registration(command="/opt/in ferproof", args=("serve", "--campaign", '/a "b"'))
OURS = "---\nname: start-campaign\nmetadata:\n  generator: inferproof\n---\n\nbody\n"
SKILLS = {"start-campaign/SKILL.md": OURS, "start-campaign/references/a.md": "a\n"}
CODEX_BEFORE = """# my settings
model = "gpt"  # the good one

[mcp_servers.other]
command = "other"

# about tools
[tools]
web = true
"""


def install(
    host: Host, folder: Path, registration: Registration = HERE, *, force: bool = False
) -> list[str]:
    changes = plan(place_of(host, folder), registration, SKILLS, force=force)
    apply(changes)
    return [change.action for change in changes]


def test_claude_gets_the_documented_entry(tmp_path: Path) -> None:
    assert install("claude", tmp_path) == ["write", "write", "write"]
    assert json.loads((tmp_path / ".mcp.json").read_text()) == {
        "mcpServers": {
            "inferproof": {
                "type": "stdio",
                "command": "inferproof",
                "args": ["serve"],
                "env": {},
                "alwaysLoad": True,
                "timeout": 3600000,
            }
        }
    }
    assert (tmp_path / ".claude/skills/start-campaign/SKILL.md").read_text() == OURS


def test_codex_gets_the_documented_table(tmp_path: Path) -> None:
    install("codex", tmp_path)
    config = tomllib.loads((tmp_path / ".codex/config.toml").read_text())
    assert config == {
        "mcp_servers": {
            "inferproof": {
                "command": "inferproof",
                "args": ["serve"],
                "required": True,
                "startup_timeout_sec": 30,
                "tool_timeout_sec": 600,
                "env_vars": ["SSH_AUTH_SOCK"],
            }
        }
    }
    assert (tmp_path / ".agents/skills/start-campaign/references/a.md").read_text() == "a\n"


@pytest.mark.parametrize("host", ["claude", "codex"])
def test_installing_twice_changes_nothing(tmp_path: Path, host: Host) -> None:
    install(host, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert install(host, tmp_path) == ["same", "same", "same"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_foreign_servers_and_settings_of_claude_stay(tmp_path: Path) -> None:
    foreign = {"mcpServers": {"other": {"command": "x"}}, "more": [1, 2]}
    (tmp_path / ".mcp.json").write_text(json.dumps(foreign))
    install("claude", tmp_path)
    after = json.loads((tmp_path / ".mcp.json").read_text())
    assert after["mcpServers"].pop("inferproof")
    assert after == foreign


def test_every_byte_of_a_codex_config_stays_in_front_of_ours(tmp_path: Path) -> None:
    path = tmp_path / ".codex/config.toml"
    path.parent.mkdir()
    path.write_text(CODEX_BEFORE)
    install("codex", tmp_path)
    assert path.read_text().startswith(CODEX_BEFORE)
    assert tomllib.loads(path.read_text())["mcp_servers"]["other"] == {"command": "other"}


@pytest.mark.parametrize("host", ["claude", "codex"])
def test_a_differing_entry_of_our_name_is_refused_without_force(tmp_path: Path, host: Host) -> None:
    install(host, tmp_path)
    config = place_of(host, tmp_path).config
    before = config.read_bytes()
    with pytest.raises(UsageError, match="another server named inferproof"):
        install(host, tmp_path, ELSEWHERE)
    assert config.read_bytes() == before


def test_force_replaces_our_codex_table_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / ".codex/config.toml"
    path.parent.mkdir()
    path.write_text(
        "[mcp_servers.inferproof]\ncommand = 'old'\n\n"
        "[mcp_servers.inferproof.env]\nA = '1'\n\n" + CODEX_BEFORE
    )
    with pytest.raises(UsageError):
        install("codex", tmp_path)
    # A key after our table would belong to it, so the model line must move with its table.
    path.write_text(
        CODEX_BEFORE + "\n[mcp_servers.inferproof]\ncommand = 'old'\n\n"
        "[mcp_servers.inferproof.env]\nA = '1'\n\n# kept\n[last]\nx = 1\n"
    )
    install("codex", tmp_path, ELSEWHERE, force=True)
    text = path.read_text()
    assert text.startswith(CODEX_BEFORE)
    assert "# kept\n[last]\nx = 1\n" in text
    assert "old" not in text
    servers = tomllib.loads(text)["mcp_servers"]
    assert servers["inferproof"]["args"] == list(ELSEWHERE.args)
    assert "env" not in servers["inferproof"]


def test_force_keeps_foreign_servers_of_claude(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"inferproof": {}, "other": {"a": 1}}}')
    install("claude", tmp_path, force=True)
    servers = json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]
    assert servers["other"] == {"a": 1}
    assert servers["inferproof"]["command"] == "inferproof"


def test_an_inline_table_is_refused_with_the_text_to_add(tmp_path: Path) -> None:
    path = tmp_path / ".codex/config.toml"
    path.parent.mkdir()
    path.write_text('mcp_servers = { other = { command = "x" } }\n')
    with pytest.raises(UsageError) as caught:
        install("codex", tmp_path)
    assert "[mcp_servers.inferproof]" in caught.value.hint
    assert path.read_text() == 'mcp_servers = { other = { command = "x" } }\n'


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("claude", "{"),
        ("claude", "[]"),
        ("claude", '{"mcpServers": []}'),
        ("codex", "a = "),
        ("codex", "mcp_servers = 3"),
    ],
)
def test_a_broken_config_is_refused_and_kept(tmp_path: Path, host: Host, text: str) -> None:
    config = place_of(host, tmp_path).config
    config.parent.mkdir(exist_ok=True)
    config.write_text(text)
    with pytest.raises((FileFormatError, UsageError)):
        install(host, tmp_path)
    assert config.read_text() == text


@pytest.mark.parametrize("host", ["claude", "codex"])
def test_a_foreign_skill_of_the_same_name_is_left_alone(tmp_path: Path, host: Host) -> None:
    skill = place_of(host, tmp_path).skills_dir / "start-campaign/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: start-campaign\n---\nmine\n")
    assert install(host, tmp_path, force=True) == ["write", "keep", "keep"]
    assert skill.read_text() == "---\nname: start-campaign\n---\nmine\n"
    assert not (skill.parent / "references/a.md").exists()


def test_an_older_skill_of_ours_is_renewed(tmp_path: Path) -> None:
    install("claude", tmp_path)
    skill = tmp_path / ".claude/skills/start-campaign/SKILL.md"
    skill.write_text(OURS.replace("body", "old body"))
    assert install("claude", tmp_path) == ["same", "write", "same"]
    assert skill.read_text() == OURS


def test_a_plan_writes_nothing(tmp_path: Path) -> None:
    plan(place_of("claude", tmp_path), HERE, SKILLS)
    assert list(tmp_path.iterdir()) == []


def test_a_linked_config_is_written_through_the_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    (tmp_path / ".mcp.json").symlink_to(real)
    install("claude", tmp_path)
    assert (tmp_path / ".mcp.json").is_symlink()
    assert "inferproof" in real.read_text()


def test_another_file_for_the_config_may_be_named(tmp_path: Path) -> None:
    config = tmp_path / "home/config.toml"
    apply(plan(place_of("codex", tmp_path, user_config=config), ELSEWHERE, {}))
    assert tomllib.loads(config.read_text())["mcp_servers"]["inferproof"]["command"] == (
        "/opt/in ferproof"
    )
