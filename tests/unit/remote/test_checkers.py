"""Answers to tasks are read as their checkers say, whatever the answers are."""

import pytest

from inferproof_remote.serving.checkers import CheckerTimeout, calls_tool, fits, is_right

CALL = {"function": {"name": "weather", "arguments": '{"city": "Ghent", "days": 2}'}}


@pytest.mark.parametrize(
    ("kind", "rule", "answer", "right"),
    [
        ("exact", ["salt"], " salt\n", True),
        ("exact", ["salt", "brine"], "brine", True),
        ("exact", ["salt"], "salty", False),
        ("regex", "^ [0-9]+$", " 42", True),
        ("regex", "^ [0-9]+$", " 42!", False),
        ("json_schema", {"type": "array", "minItems": 2}, "[1, 2]", True),
        ("json_schema", {"type": "array", "minItems": 2}, "[1, 2", False),
        ("json_schema", {}, "", False),
        ("needle", "773201", " 773201. And so on", True),
        ("needle", "773201", " 773210", False),
    ],
)
def test_an_answer_is_right_or_wrong(kind: str, rule: object, answer: str, right: bool) -> None:
    assert is_right(kind, rule, answer) is right


def test_a_pattern_that_takes_for_ever_decides_nothing() -> None:
    with pytest.raises(CheckerTimeout):
        is_right("regex", "^(a+)+$", "a" * 64 + "!")


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        ([CALL], True),
        ([], False),
        (["weather"], False),
        ([{"function": {"name": "news", "arguments": '{"city": "Ghent"}'}}], False),
        ([{"function": {"name": "weather", "arguments": '{"city": "Bruges"}'}}], False),
        ([{"function": {"name": "weather", "arguments": "{"}}], False),
        ([{"function": {"name": "weather"}}], False),
    ],
)
def test_a_call_has_the_name_and_the_expected_arguments(calls: list[object], right: bool) -> None:
    rule = {"name": "weather", "arguments": {"city": "Ghent"}}
    assert calls_tool(rule, calls) is right


@pytest.mark.parametrize(
    ("value", "schema", "right"),
    [
        ({"a": 1}, {"type": "object", "required": ["a"]}, True),
        ({"b": 1}, {"type": "object", "required": ["a"]}, False),
        ({"a": 1}, {"properties": {"a": {"type": "string"}}}, False),
        ({"a": 1, "b": 2}, {"properties": {"a": {}}, "additionalProperties": False}, False),
        ([1, "x"], {"items": {"type": "integer"}}, False),
        (True, {"type": "integer"}, False),
        (1, {"type": "number"}, True),
        (3, {"minimum": 4}, False),
        (3, {"maximum": 2}, False),
        ("abc", {"minLength": 2, "maxLength": 3}, True),
        ("abcd", {"maxLength": 3}, False),
        ("red", {"enum": ["red", "blue"]}, True),
        ("green", {"const": "red"}, False),
        (None, {"type": ["null", "string"]}, True),
    ],
)
def test_a_schema_is_met_or_not(value: object, schema: dict[str, object], right: bool) -> None:
    assert fits(value, schema) is right
