"""Conformance: does an engine speak OpenAI's completions and chats, as its users' clients do?

Every answer is compared with what the reference model writes there beyond doubt, so that a feature
counts by what came, never by a status code. `CHECKS` is the order.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from inferproof_remote.serving import conformance_answers as answers
from inferproof_remote.serving import conformance_errors as errors
from inferproof_remote.serving import conformance_together as together
from inferproof_remote.serving.client import Client, NoAnswer
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.known import Known, Oracle
from inferproof_remote.serving.subject import (
    Absent,
    Broken,
    Finding,
    Inapplicable,
    Subject,
    Unknown,
)
from inferproof_remote.serving.wire import Api, Wire

Facts = dict[str, object]
Check = Callable[[Subject], None]
_KNOWN = 3
_PLAIN_S = 60.0
_SHOWN = 300
RESULTS: Mapping[type[Finding], str] = {
    Broken: "broken",
    Absent: "absent",
    Inapplicable: "not_applicable",
    Unknown: "unmeasured",
}

CHECKS: tuple[tuple[str, Check], ...] = (
    ("stream", answers.stream),
    ("usage", answers.usage),
    ("max_tokens", answers.max_tokens),
    ("stop", answers.stop),
    ("temperature_0", answers.temperature_0),
    ("seed", answers.seed),
    ("n", answers.n),
    ("logprobs", answers.logprobs),
    ("echo", answers.echo),
    ("unicode", answers.split_characters),
    ("refuses_bad_json", errors.bad_json),
    ("refuses_wrong_types", errors.wrong_types),
    ("refuses_out_of_range", errors.out_of_range),
    ("refuses_negative_max_tokens", errors.negative_max_tokens),
    ("refuses_empty_prompt", errors.empty_prompt),
    ("refuses_unknown_model", errors.unknown_model),
    ("refuses_long_prompt", errors.long_prompt),
    ("connections", together.connections),
    ("cancel", together.cancel),
)
_COMPLETIONS_ONLY = ("echo", "unicode", "refuses_long_prompt", "connections", "cancel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What the checks need to know: the model, its context, how many connections are opened."""

    model: Path
    context: int
    connections: int
    answer_s: float


def measure(client: Client, features: Features, oracle: Oracle, asking: Asking) -> Facts:
    """Return the result of each check of one engine, as `ConformanceFacts` without the arm."""
    began_s = time.monotonic()
    wire = Wire(replace(client, timeout_s=max(asking.answer_s, _PLAIN_S)))
    subject = Subject(
        api=Api("completions"),
        wire=wire,
        oracle=oracle,
        known=tuple(oracle.completions(_KNOWN)),
        ignores_eos=features.ignore_eos,
        context=asking.context,
        connections=asking.connections,
    ).patient()
    found = [_outcome(name, check, subject) for name, check in CHECKS]
    found += _of_chats(subject, oracle.chats(_KNOWN, asking.model))
    return {"checks": found, "seconds": time.monotonic() - began_s}


def _of_chats(subject: Subject, known: list[Known] | None) -> list[Facts]:
    checks = [(name, check) for name, check in CHECKS if name not in _COMPLETIONS_ONLY]
    if known is None:
        why = "the model has no template for chats"
        return [_fact(name, "chat", "not_applicable", why) for name, _ in checks]
    chat = replace(subject, api=Api("chat"), known=tuple(known))
    if not chat.is_there():
        why = f"there is no {chat.api.path}"
        return [_fact(name, "chat", "absent", why) for name, _ in checks]
    return [_outcome(name, check, chat) for name, check in checks]


def _outcome(name: str, check: Check, subject: Subject) -> Facts:
    """Return what one check found; an engine that falls silent is told from one that hangs up."""
    api = subject.api.name
    try:
        check(subject)
    except Finding as found:
        return _fact(name, api, RESULTS[type(found)], str(found), found.said)
    except NoAnswer as error:
        if subject.still_answers():
            return _fact(name, api, "broken", f"{error}, and other requests are answered")
        return _fact(name, api, "unmeasured", f"{error}, nor to anything after it")
    return _fact(name, api, "held")


def _fact(name: str, api: str, result: str, detail: str = "", said: str = "") -> Facts:
    shown = {"detail": detail[:_SHOWN], "said": said[:_SHOWN]}
    return {"name": name, "api": api, "result": result, **shown}
