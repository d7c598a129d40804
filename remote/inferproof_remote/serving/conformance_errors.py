"""Checks of requests at fault: a JSON error with a status from 400 to 499, nothing else."""

import secrets
from collections.abc import Mapping

from inferproof_remote.serving.subject import Absent, Broken, Subject
from inferproof_remote.serving.wire import Reply, Table, table

_BEYOND = 64


def bad_json(subject: Subject) -> None:
    """Raise if a body that is no JSON object is not refused."""
    for body in (b'{"model": ', b"[1, 2]", b'"text"', b"\xff\xfe"):
        _refused(subject.wire.post(subject.api.path, body), "a body that is no JSON object")


def wrong_types(subject: Subject) -> None:
    """Raise if fields of a wrong type are not refused."""
    field = "prompt" if subject.api.name == "completions" else "messages"
    for fields in (
        {"max_tokens": "ten"},
        {"temperature": "hot"},
        {field: {"a": 1}},
        {field: None},
    ):
        _refused_with(subject, fields, "a wrong type")


def out_of_range(subject: Subject) -> None:
    """Raise if numbers that mean nothing are not refused."""
    for fields in ({"temperature": -1}, {"top_p": 7}):
        _refused_with(subject, fields, "a number out of range")


def negative_max_tokens(subject: Subject) -> None:
    """Raise if an answer of fewer than no tokens can be asked for."""
    _refused_with(subject, {"max_tokens": -5}, "a negative number of tokens")


def empty_prompt(subject: Subject) -> None:
    """Raise if nothing can be asked for nothing."""
    empty: Table = {"prompt": ""} if subject.api.name == "completions" else {"messages": []}
    _refused_with(subject, empty, "an empty prompt")


def unknown_model(subject: Subject) -> None:
    """Raise if a model that is not there answers."""
    _refused_with(subject, {"model": f"no-model-{secrets.token_hex(4)}"}, "an unknown model")


def long_prompt(subject: Subject) -> None:
    """Raise if a prompt longer than the model's context is not refused, or ends the service."""
    known = subject.first()
    copies = (subject.context + _BEYOND) // known.prompt_tokens + 1
    prompt = known.prompt * copies
    body = subject.api.asked(prompt, subject.model, max_tokens=known.lengths[0])
    _refused(subject.wire.post(subject.api.path, body), "a prompt beyond the context")
    if not subject.still_answers():
        raise Broken("nothing is answered after a prompt beyond the context")


def _refused_with(subject: Subject, fields: Mapping[str, object], what: str) -> None:
    body = subject.api.known(subject.first(), subject.model, max_tokens=2)
    reply = subject.wire.post(subject.api.path, {**body, **fields})
    _refused(reply, f"{what} ({', '.join(fields)})")


def _refused(reply: Reply, what: str) -> None:
    """Raise unless `reply` is a refusal that says why, in JSON."""
    error = (reply.json or {}).get("error")
    if reply.is_ok and error is None:
        raise Absent(f"{what} is answered as if nothing was wrong", reply.body)
    if reply.status // 100 != 4:
        raise Broken(f"{what} is answered with status {reply.status}", reply.body)
    message = error if isinstance(error, str) else table(error).get("message")
    if not isinstance(message, str) or not message:
        raise Broken(f"{what} is refused without a JSON error that says why", reply.body)
