"""Every shipped contract passes honest kernels of every kind and refuses each of its mutants."""

import json
from collections.abc import Iterator
from dataclasses import asdict

import pytest
import torch

from inferproof.campaign.contract_rules import contract_problems
from inferproof.core.evidence import CallFacts, MutantFacts, OutputError
from inferproof.gates.armed import survivors
from inferproof.gates.numerics import lost_together
from inferproof_remote.inputs import InputMaker, Tensors
from inferproof_remote.mutants import GENERIC, mutant_facts
from inferproof_remote.oracle import Errors
from shipped_kernels import (
    HONEST,
    NAMES,
    Compute,
    Planned,
    baseline_of,
    load,
    read_contract,
    seeded,
    seeds,
)

HONEST_SEEDS, MUTANT_SEEDS = 50, 20
# A few thousand draws do not tell logits of ten significand bits from those of twenty.
BY_FREQUENCY = frozenset({"top_k_top_p_sample", "top_k_top_p_sample_seeded"})
_UNTOLD = frozenset({"lower_precision"})


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", NAMES)
def test_honest_kernels_are_within_the_bars_on_every_draw(name: str):
    tolerance = read_contract(name).tolerance
    for seed in seeds(name, HONEST_SEEDS):
        planned = Planned(name, seed)
        judged: dict[str, list[Errors]] = {}
        bars = planned.oracle.bars
        for call in planned.plan.calls:
            question = planned.question(call)
            for kind, outputs in _honest(planned, question.inputs).items():
                errors = question.judge(outputs, bars)
                wrong = {n: error for n, error in errors.items() if not error.within(bars)}
                assert not wrong, f"{kind} on {call.family} {call.dims}, seed {seed}: {wrong}"
                judged.setdefault(kind, []).append(errors)
        for kind, found in judged.items():
            assert not lost_together(_as_calls(found), tolerance), f"{kind}, seed {seed}"


def _as_calls(found: list[Errors]) -> list[CallFacts]:
    return [
        CallFacts(
            index=index,
            phase="numerics",
            dims={},
            family="normal",
            seconds=1.0,
            checked=True,
            outputs={name: OutputError(**asdict(error)) for name, error in errors.items()},
        )
        for index, errors in enumerate(found)
    ]


def _honest(planned: Planned, inputs: Tensors) -> dict[str, Tensors]:
    params = planned.kernel.params
    kinds = {"yardstick": planned.oracle.yardstick, "baseline": baseline_of(planned.kernel.name)}
    kinds |= {function.__name__: function for function in HONEST[planned.kernel.name]}
    outputs = {kind: _run(planned, compute, inputs) for kind, compute in kinds.items()}
    torch.set_flush_denormal(True)
    outputs["flushing"] = planned.oracle.yardstick(**inputs, **params)
    torch.set_flush_denormal(False)
    return outputs


def _run(planned: Planned, compute: Compute, inputs: Tensors) -> Tensors:
    """Return outputs and mutated inputs, which a kernel may return or change where they are."""
    kernel = planned.kernel
    own = {n: value.clone() if n in kernel.mutates else value for n, value in inputs.items()}
    made = compute(**own, **kernel.params)
    return {name: own[name] for name in kernel.mutates} | dict(made)


@pytest.mark.parametrize("name", NAMES)
def test_every_mutant_is_refused_on_every_draw(name: str):
    contract = read_contract(name)
    for seed in seeds(name, MUTANT_SEEDS):
        mutants = _mutants(name, seed)
        assert [mutant.name for mutant in mutants] == list(contract.mutants)
        assert survivors(contract, mutants) == (), f"seed {seed}"


@pytest.mark.parametrize("name", NAMES)
def test_stale_outputs_are_named_by_the_call_they_belong_to(name: str):
    stale = next(mutant for mutant in _mutants(name, 3) if mutant.name == "stale")
    near = [call for call in stale.calls if call.phase == "near_duplicate"]
    named = [
        call
        for call in near
        if any(error.stale_of == call.index - 1 for error in call.outputs.values())
    ]
    assert len(named) > len(near) // 2


def _mutants(name: str, seed: int) -> tuple[MutantFacts, ...]:
    kernel, oracle = load(name, most=300)
    facts = mutant_facts(seeded(seed), oracle, InputMaker(seeded(seed), kernel))
    return tuple(MutantFacts.model_validate_json(json.dumps(each)) for each in facts)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_contract_says_enough(name: str):
    contract = read_contract(name)
    assert contract_problems(contract) == []
    assert contract.name == name
    assert len(contract.mutants) >= 7
    assert len(contract.failure_modes) >= 4
    _, oracle = load(name)
    assert {*GENERIC, *oracle.mutants()} >= set(contract.mutants)
    assert set(GENERIC) - {"cut_short", "one_bit_less"} - _UNTOLD <= set(contract.mutants)
    assert ("lower_precision" in contract.mutants) == (name not in BY_FREQUENCY)
    assert ("cut_short" in contract.mutants) == (contract.tolerance.cut_share is not None)
    is_bounded = contract.tolerance.mean_over_yardstick is not None or contract.tolerance.exact
    assert ("one_bit_less" in contract.mutants) == is_bounded
    assert set(oracle.mutants()) <= set(contract.mutants)
