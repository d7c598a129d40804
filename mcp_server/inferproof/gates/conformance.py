"""Conformance: an engine speaks OpenAI's completions as its contract asks.

Of each check of each way to ask, in the order in which they were made:

1. a feature that is there and wrong: `nonconforming`, required or not;
2. a feature that is required and not there: `nonconforming`;
3. a required check that was not made: not measured.

A feature that is neither required nor there is not judged. Chats are required by their own line of
the contract, and only of a model that has a template for them, which the bench says.
"""

from collections.abc import Iterator

from inferproof.core.service import Conformance
from inferproof.core.serving_facts import CheckFacts, ConformanceFacts, ServeFacts
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase

CLERK = Clerk("conformance", __name__)
NO_CHATS = ("echo", "unicode", "refuses_long_prompt", "connections", "cancel")
SHOWN = 12
NEXT_STEPS = {
    "stream": "Send each token as an event `data: {id, object, created, model, choices}`, one "
    "finish_reason at the end, then `data: [DONE]`.",
    "usage": "Count the tokens of prompt and answer; with stream_options.include_usage, send them "
    "in a last event before [DONE].",
    "max_tokens": "Stop at exactly max_tokens, with finish_reason length.",
    "stop": "Hold back what may be the start of a stop text, cut before it, and say finish_reason "
    "stop, in streams too.",
    "temperature_0": "At temperature 0 take the likeliest token, whatever seed and top_p say.",
    "seed": "Draw each request from a generator of its own, seeded by its seed.",
    "n": "Answer n choices with their indices, or refuse n above 1 with status 400.",
    "logprobs": "Tell the log-probabilities that the token was chosen by, or refuse logprobs.",
    "echo": "Give the prompt's text before the answer, or refuse echo.",
    "unicode": "Hold back the bytes of a character until it is whole; obey logit_bias.",
    "connections": "Queue what cannot run at once; answer every request.",
    "cancel": "Notice that the caller hung up and free the slot before the next step.",
}
REFUSE = "Check every field before any work; answer 400 with {error: {message, type}}."


class Conforms:
    """Passes when every start that was asked has what the contract requires, and nothing wrong."""

    name = CLERK.gate

    def judge(self, case: ServiceCase) -> Verdict:
        """Return whether the engine can stand where any other of its kind stands."""
        rules = case.contract.conformance or Conformance()
        found = [each for each in _of_candidate(case.evidence.serve) if each.checks]
        if not found:
            return CLERK.unmeasured("whether the engine speaks the API")
        for facts in found:
            refused = next(_wrong(facts, rules), None)
            if refused is not None:
                return _refusal(*refused, shows=case.shows_numbers)
        missing = next((each for facts in found for each in _missing(facts, rules)), None)
        if missing is not None:
            return CLERK.unmeasured(missing)
        return CLERK.passes(_praise(found, rules))


def is_required(check: str, api: str, rules: Conformance) -> bool:
    """Return whether a contract requires a check of one way to ask."""
    if api == "chat" and (rules.chat != "required" or check in NO_CHATS):
        return False
    return check in rules.required


def _of_candidate(serve: ServeFacts | None) -> list[ConformanceFacts]:
    return [each for each in serve.conformance if each.arm == "candidate"] if serve else []


def _wrong(facts: ConformanceFacts, rules: Conformance) -> Iterator[tuple[CheckFacts, str]]:
    for check in facts.checks:
        if check.result == "broken":
            yield check, check.detail
        elif check.result == "absent" and is_required(check.name, check.api, rules):
            yield check, f"required and not there: {check.detail}"


def _missing(facts: ConformanceFacts, rules: Conformance) -> Iterator[str]:
    results = {(check.api, check.name): check for check in facts.checks}
    for name in rules.required:
        for api in ("completions", "chat"):
            check = results.get((api, name))
            if not is_required(name, api, rules):
                continue
            if check is None or check.result == "unmeasured":
                why = f", {check.detail}" if check else ""
                yield f"{name} of {api}{why}"


def _refusal(check: CheckFacts, why: str, *, shows: bool) -> Verdict:
    reason = f"check {check.name} of {check.api}" + (f": {why}" if shows and why else "")
    step = NEXT_STEPS.get(check.name, REFUSE)
    return CLERK.fails(Reason.NONCONFORMING, reason, step)


def _praise(found: list[ConformanceFacts], rules: Conformance) -> str:
    held = [f"{check.api} {check.name}" for check in found[0].checks if check.result == "held"]
    others = [f"{check.api} {check.name}" for check in found[0].checks if check.result != "held"]
    text = f"{len(held)} checks held, {len(rules.required)} of them required"
    if not others:
        return text
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    return f"{text}; not there and not required: {', '.join(others[:SHOWN])}{more}"
