"""Quality tasks: the same questions for both arms, at temperature 0, each read by its checker.

The task file was sealed with the contract; what a needle hides is drawn after the commit. Of the
answers only digests leave the bench.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeAlias

from inferproof_remote import job
from inferproof_remote.serving.checkers import CheckerTimeout, calls_tool, is_right
from inferproof_remote.serving.client import Client, NoAnswer
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.options import chosen
from inferproof_remote.serving.prompts import Windows
from inferproof_remote.serving.vocabulary import Vocabulary
from inferproof_remote.serving.wire import Api, Reply, Table, Wire, choices_of, listed, table
from inferproof_remote.stream import Stream

Result: TypeAlias = Literal[
    "right", "wrong", "absent", "unscored", "failed", "unanswered", "undecided"
]
Facts = dict[str, object]
_NOT_THERE = (404, 405, 501)
_LETTERS, _DIGITS = "abcdefghijklmnopqrstuvwxyz", "0123456789"
_KEY, _VALUE = 7, 6
_FACT = "\nThe pass number of {key} is {value}.\n"
_QUESTION = "\nThe pass number of {key} is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One question: a prompt or messages, and how its answer is read."""

    name: str
    kind: str
    prompt: str
    messages: Sequence[object]
    tools: Sequence[object]
    rule: object
    max_tokens: int
    stop: Sequence[object]

    @property
    def api(self) -> Api:
        """By which way it is asked."""
        return Api("chat" if self.messages else "completions")


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one task."""

    result: Result
    answer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Asks one engine."""

    client: Client
    features: Features
    vocabulary: Vocabulary

    def ask(self, task: Task) -> Done:
        """Return what came of a task."""
        try:
            if task.kind == "choice":
                return self._choose(task)
            reply = Wire(self.client).post(task.api.path, _body(task, self.client.model))
        except NoAnswer:
            return Done("unanswered")
        return _read(task, reply)

    def _choose(self, task: Task) -> Done:
        rule = job.as_table(task.rule, "choice")
        options = job.as_texts(rule["options"], "options")
        best = chosen(self.client, self.features, self.vocabulary, task.prompt, options)
        if best is None:
            return Done("unscored")
        return Done("right" if best == rule["answer"] else "wrong", options[best])


def load(text: str, windows: Windows, vocabulary: Vocabulary, bits: bytes) -> list[Task]:
    """Return the tasks of a file; needles are hidden as `bits` say, alike for both arms."""
    stream = Stream(bits, "needles")
    rows = (job.as_table(json.loads(line), "task") for line in text.splitlines() if line.strip())
    return [_task(row, windows, vocabulary, stream) for row in rows]


def run(asker: Asker, tasks: Sequence[Task], *, at_once: int) -> Facts:
    """Return the results of all tasks, `at_once` in flight, as `TaskFacts` without the arm."""
    began_s = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        done = list(pool.map(asker.ask, tasks))
    return {
        "ids": [task.name for task in tasks],
        "kinds": [task.kind for task in tasks],
        "results": [each.result for each in done],
        "digests": [hashlib.sha256(each.answer.encode()).hexdigest() for each in done],
        "seconds": time.monotonic() - began_s,
    }


def _task(row: Table, windows: Windows, vocabulary: Vocabulary, stream: Stream) -> Task:
    kind, rule = next(
        (key, value) for key, value in table(row["checker"]).items() if value is not None
    )
    prompt = str(row.get("prompt") or "")
    if kind == "needle":
        prompt, rule = _hidden(job.as_table(rule, "needle"), windows, vocabulary, stream)
    return Task(
        name=str(row["id"]),
        kind=kind,
        prompt=prompt,
        messages=listed(row.get("messages")),
        tools=listed(row.get("tools")),
        rule=rule,
        max_tokens=int(job.as_number(row.get("max_tokens", 32), "max_tokens")),
        stop=listed(row.get("stop")),
    )


def _hidden(
    rule: Table, windows: Windows, vocabulary: Vocabulary, stream: Stream
) -> tuple[str, str]:
    """Return a window of the corpus with a fact in it and the question for it, and the answer."""
    key, value = _drawn(rule, "keys", stream), _drawn(rule, "values", stream)
    fact = str(rule.get("fact", _FACT)).replace("{key}", key).replace("{value}", value)
    question = str(rule.get("question", _QUESTION)).replace("{key}", key)
    ids = windows.draw(stream, int(job.as_number(rule["tokens"], "tokens")))
    at = round(job.as_number(rule["depth"], "depth") * len(ids))
    before, after = vocabulary.decode(ids[:at]), vocabulary.decode(ids[at:])
    return f"{before}{fact}{after}{question}", value


def _drawn(rule: Table, name: str, stream: Stream) -> str:
    given = [str(each) for each in listed(rule.get(name))]
    if given:
        return stream.choice(given)
    letters, length = (_LETTERS, _KEY) if name == "keys" else (_DIGITS, _VALUE)
    return "".join(stream.choice(letters) for _ in range(length))


def _body(task: Task, model: str) -> Table:
    body: dict[str, object] = {
        "model": model,
        "temperature": 0,
        "max_tokens": task.max_tokens,
    }
    if task.stop:
        body["stop"] = [*task.stop]
    if not task.messages:
        return {**body, "prompt": task.prompt}
    tools = {"tools": [*task.tools]} if task.tools else {}
    return {**body, "messages": [*task.messages], **tools}


def _read(task: Task, reply: Reply) -> Done:
    if reply.status in _NOT_THERE and task.messages:
        return Done("absent")
    answer = reply.json if reply.is_ok else None
    choices = choices_of(answer) if answer else []
    if not choices or (answer or {}).get("error") is not None:
        return Done("failed")
    if task.kind == "tool_call":
        calls = listed(table(choices[0].get("message")).get("tool_calls"))
        return _judged(lambda: calls_tool(task.rule, calls), json.dumps(list(calls)))
    text = task.api.text(choices[0])
    if text is None:
        return Done("failed")
    return _judged(lambda: is_right(task.kind, task.rule, text), text)


def _judged(check: Callable[[], bool], answer: str) -> Done:
    try:
        return Done("right" if check() else "wrong", answer)
    except CheckerTimeout:
        return Done("undecided", answer)
