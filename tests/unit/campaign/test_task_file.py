"""A task file is read strictly, line by line."""

import json
from pathlib import Path

import pytest

from inferproof.campaign.task_file import LEAST, load_tasks
from inferproof.core.errors import FileFormatError

SHIPPED = Path(__file__).parents[3] / "contracts" / "services" / "completions" / "tasks.jsonl"
GOOD: tuple[dict[str, object], ...] = (
    {"prompt": "1 + 1 =", "checker": {"exact": ["2"]}},
    {"prompt": "Copy", "checker": {"regex": "^ [a-z]+"}, "stop": ["\n"], "max_tokens": 8},
    {"prompt": "[", "checker": {"json_schema": {"type": "array", "items": {"type": "integer"}}}},
    {"prompt": "An", "checker": {"choice": {"options": [" owl", " fox"], "answer": 0}}},
    {"checker": {"needle": {"depth": 0.5, "tokens": 64}}},
    {
        "messages": [{"role": "user", "content": "What is the weather?"}],
        "tools": [{"type": "function", "function": {"name": "weather"}}],
        "checker": {"tool_call": {"name": "weather", "arguments": {"city": "Ghent"}}},
    },
)
BAD: tuple[tuple[dict[str, object], str], ...] = (
    ({"prompt": "a", "checker": {}}, "exactly one"),
    ({"prompt": "a", "checker": {"exact": ["b"], "regex": "b"}}, "exactly one"),
    ({"prompt": "a", "checker": {"regex": "("}}, "regular expression"),
    ({"prompt": "a", "checker": {"json_schema": {"$ref": "#"}}}, "not understood"),
    ({"prompt": "a", "checker": {"choice": {"options": ["b", "c"], "answer": 2}}}, "none of 2"),
    ({"checker": {"exact": ["b"]}}, "one of prompt and messages"),
    ({"prompt": "a", "checker": {"needle": {"depth": 0, "tokens": 64}}}, "one of prompt"),
    ({"checker": {"needle": {"depth": 2, "tokens": 64}}}, "depth"),
    ({"checker": {"needle": {"depth": 0, "tokens": 64, "fact": "no"}}}, "{key} and {value}"),
    ({"prompt": "a", "checker": {"exact": ["b"]}, "seed": 1}, "Extra inputs"),
    ({"prompt": "a", "checker": {"tool_call": {"name": "x"}}}, "tools and messages"),
)


def lines(*rows: dict[str, object]) -> bytes:
    return "\n".join(json.dumps({"id": f"t{n}", **row}) for n, row in enumerate(rows)).encode()


def test_every_kind_of_task_is_read() -> None:
    tasks = load_tasks(lines(*GOOD, *GOOD), path="tasks.jsonl")
    kinds = {task.checker.kind for task in tasks}
    assert kinds == {"exact", "regex", "json_schema", "choice", "needle", "tool_call"}


@pytest.mark.parametrize(("row", "what"), BAD, ids=lambda value: str(value)[:40])
def test_a_line_that_is_not_as_documented_is_refused_by_its_number(
    row: dict[str, object], what: str
) -> None:
    with pytest.raises(FileFormatError, match=r"tasks\.jsonl:9: ") as refused:
        load_tasks(lines(*GOOD, *GOOD[:2], row, *GOOD), path="tasks.jsonl")
    assert what in str(refused.value)


def test_an_id_that_comes_twice_is_refused() -> None:
    twice = lines(*GOOD, *GOOD) + b"\n" + lines(GOOD[0])
    with pytest.raises(FileFormatError, match="'t0' comes twice"):
        load_tasks(twice, path="tasks.jsonl")


def test_too_few_tasks_prove_nothing() -> None:
    with pytest.raises(FileFormatError, match=f"from {LEAST}"):
        load_tasks(lines(*GOOD), path="tasks.jsonl")


def test_the_shipped_tasks_are_enough_for_their_margin() -> None:
    assert len(load_tasks(SHIPPED.read_bytes(), path=str(SHIPPED))) == 60
