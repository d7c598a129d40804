"""Power: what a measurement can show, on rows whose errors are known."""

from inferproof.core.serving_facts import TokenScores
from inferproof.core.values import Outcome, Reason
from inferproof.gates.fidelity import FidelityGate, find_faults
from inferproof.gates.power import noticed, power_of
from unit.gates.serving_cases import BITS
from unit.gates.test_fidelity import PATHS, ROWS, RULES, declared, noise, table


def cut(rows: int) -> TokenScores:
    """Return an honest path of fewer rows, in sequences of ten."""
    whole = table("decode")
    return whole.model_copy(
        update={
            "asked": rows,
            "sequence": tuple(at // 10 for at in range(rows)),
            "position": whole.position[:rows],
            "kl": whole.kl[:rows],
            "floor_kl": whole.floor_kl[:rows],
            "tie_gap_nats": whole.tie_gap_nats[:rows],
        }
    )


def test_an_interval_holds_the_ratio_and_narrows_with_tokens() -> None:
    few, many = power_of(cut(40), RULES, BITS), power_of(cut(ROWS), RULES, BITS)
    assert few
    assert many
    assert few.low <= few.ratio <= few.high
    assert many.high - many.low < few.high - few.low
    assert many.noticed < few.noticed
    assert many == power_of(cut(ROWS), RULES, BITS)


def test_an_error_that_is_said_to_be_noticed_is_refused() -> None:
    honest = table("decode", kl=noise("engine decode"))
    factor = 1.2 * noticed(honest, RULES)
    worse = table("decode", kl=[factor * each for each in noise("engine decode")])
    assert find_faults([worse], RULES)[0].code is Reason.UNFAITHFUL


def test_a_path_without_logprobs_has_no_power() -> None:
    assert power_of(table("decode", kl=[], floor_kl=[]), RULES, BITS) is None


def test_too_few_tokens_to_notice_what_must_be_prove_nothing() -> None:
    tables = [table(path) for path in PATHS]
    assert find_faults(tables, RULES) == []
    strict = RULES.model_copy(update={"notices_at_most": 2.1})
    found = find_faults(tables, strict)
    assert {each.code for each in found} == {Reason.NOT_MEASURED}
    assert found[0].where.startswith("enough tokens on path")


def test_a_verdict_says_what_would_be_noticed() -> None:
    verdict = FidelityGate().judge(declared("none"))
    assert verdict.outcome is Outcome.PASS
    assert "decode: 300 tokens" in verdict.reason
    assert "would be noticed" in verdict.reason
