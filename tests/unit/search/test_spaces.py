"""Spaces: what ships can be planned, every choice of it; a wrong declaration is refused."""

import pytest
from pydantic import ValidationError

from inferproof.campaign.spaces import shipped_space, shipped_spaces, space_of
from inferproof.core.errors import NotFound, UsageError
from inferproof.core.service import EngineSpec, Search
from inferproof.core.space import Space, choices_of
from inferproof.search.studies import defaults_of
from inferproof.serving.engines import baseline_plan
from inferproof.serving.engines.settings import settled

TRAFFIC = [{"name": "one", "concurrency": 1, "requests": 2, "isl": [8, 8], "osl": [8, 8]}]


def space(**parameters: object) -> Space:
    return Space.model_validate({"parameters": parameters})


def spec(engine: str, **options: object) -> EngineSpec:
    return EngineSpec.model_validate({"engine": engine, "options": options})


@pytest.mark.parametrize("name", shipped_spaces())
def test_every_value_of_a_shipped_space_is_an_option_of_its_engine(name: str):
    shipped = shipped_space(name)
    options = {"start": "serve {model}"} if shipped.engine == "command" else {}
    for option, parameter in shipped.parameters.items():
        for value in parameter.choices:
            given = {} if value is None else {option: value}
            plan = baseline_plan(settled(spec(shipped.engine, **options), shipped, given))
            assert plan.supervised


@pytest.mark.parametrize("name", shipped_spaces())
def test_a_shipped_spaces_defaults_are_what_the_engine_does_by_itself(name: str):
    shipped = shipped_space(name)
    options = {"start": "serve {model}"} if shipped.engine == "command" else {}
    own = spec(shipped.engine, **options)
    given = {
        option: parameter.default
        for option, parameter in shipped.parameters.items()
        if parameter.default is not None
    }
    assert baseline_plan(settled(own, shipped, given)) == baseline_plan(own)


def test_a_space_that_does_not_ship_is_named_with_those_that_do():
    asked = Search.model_validate({"space": "vlm", "traffic": TRAFFIC, "metrics": ["tpot_ms"]})
    with pytest.raises(NotFound, match="'vlm'") as refused:
        space_of(asked)
    assert "vllm" in refused.value.hint


@pytest.mark.parametrize(
    "parameter",
    [
        {"default": 1},
        {"values": [1], "range": [1, 2], "default": 1},
        {"range": [2, 1], "default": 1},
        {"range": [0, 8], "scale": "log", "default": 1},
        {"range": [1, 8]},
        {"range": [1, 8], "default": 9},
        {"values": [1, 2], "default": 1, "scale": "log"},
        {"values": [1, 2], "default": 1, "when": {"later": [1]}},
        {"values": [1, 2], "default": 1, "flag": "; rm"},
    ],
)
def test_a_parameter_without_one_clear_meaning_is_refused(parameter: dict[str, object]):
    with pytest.raises(ValidationError):
        space(first=parameter)


def test_a_parameter_is_chosen_only_where_its_condition_holds():
    found = choices_of(
        space(
            graphs={"values": [True, False], "default": True},
            graph_size={"values": [1, 2], "default": 1, "when": {"graphs": [True]}},
        ),
        99,
    )
    assert found == (
        {"graphs": True, "graph_size": 1},
        {"graphs": True, "graph_size": 2},
        {"graphs": False},
    )


def test_true_is_not_one():
    found = choices_of(
        space(
            size={"values": [1, 2], "default": 1},
            other={"values": [5, 6], "default": 5, "when": {"size": [True]}},
        ),
        99,
    )
    assert found == ({"size": 1}, {"size": 2})


def test_a_space_without_end_is_not_listed():
    endless = space(share={"range": [0.1, 0.9], "default": 0.5})
    assert choices_of(endless, 10**6) is None
    assert choices_of(space(size={"values": [1, 2, 3], "default": 1}), 2) is None


def test_the_contracts_own_option_becomes_the_default_even_where_the_space_lacks_it():
    found = defaults_of(space(size={"values": [1, 2], "default": 1}), {"size": 7})
    assert found.parameters["size"].choices == (7, 1, 2)


def test_a_setting_replaces_the_contracts_own_and_what_is_left_out_is_gone():
    found = space(dtype={"values": ["a", "b"], "default": None}, size={"values": [1], "default": 1})
    own = spec("transformers", dtype="a", max_batch=3)
    assert settled(own, found, {"size": 1}).options == {"max_batch": 3, "size": 1}


def test_settings_of_a_command_are_words_that_no_shell_reads():
    found = space(
        seqs={"values": [4], "default": None, "flag": "--max-seqs"},
        share={"range": [0.5, 0.9], "default": 0.5, "flag": "--share="},
        fast={"values": [True, False], "default": None, "flag": "--fast"},
        name={"values": ["a b; c"], "default": None, "flag": "--name"},
    )
    own = spec("command", start="serve {model}")
    start = settled(own, found, {"seqs": 4, "share": 0.75, "fast": True, "name": "a b; c"})
    words = ("serve", "{model}", "--max-seqs", "4", "--share=0.75", "--fast", "--name", "a b; c")
    assert baseline_plan(start).argv == words
    assert baseline_plan(settled(own, found, {"fast": False})).argv == ("serve", "{model}")


def test_an_engine_that_runs_elsewhere_and_an_option_without_a_flag_cannot_be_set():
    found = space(size={"values": [1, 2], "default": 1})
    with pytest.raises(UsageError, match="runs elsewhere"):
        settled(spec("endpoint", url="http://127.0.0.1:1"), found, {"size": 2})
    with pytest.raises(UsageError, match="size of the space has no flag"):
        settled(spec("command", start="serve"), found, {"size": 2})
