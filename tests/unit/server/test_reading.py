"""The documentation is there for whoever installed the package and has no checkout."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferproof.cli import main

SOURCES = sorted((Path(__file__).parents[3] / "mcp_server").rglob("*.py"))


def texts_for_users(path: Path) -> Iterator[str]:
    """Yield the strings of a module that document nothing: a bare string is no text for users."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    bare = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


def test_no_text_for_users_names_a_page_that_they_may_not_have():
    texts = [text for path in SOURCES for text in texts_for_users(path)]
    assert not [text for text in texts if "docs/" in text]
    named = {name for text in texts for name in re.findall(r"inferproof docs (\w+)", text)}
    assert "formats" in named
    assert all(main(["docs", name]) == 0 for name in named)


def test_a_page_is_shown_and_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["docs", "--json"]) == 0
    pages = json.loads(capsys.readouterr().out)["pages"]
    assert {"formats", "cheats", "architecture"} <= set(pages)
    assert main(["docs", "formats"]) == 0
    assert capsys.readouterr().out.startswith(f"# {pages['formats']}\n")


def test_a_page_that_is_not_there_is_told_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
):
    assert main(["docs", "../README"]) == 2
    assert "the pages are: architecture, cheats, formats" in capsys.readouterr().err
