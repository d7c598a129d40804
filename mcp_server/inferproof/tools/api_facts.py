"""What an engine's API and its answers showed: a few facts, and a line a check or task."""

from collections import Counter
from collections.abc import Iterable

from inferproof.core.evidence import Evidence
from inferproof.core.serving_facts import (
    CheckFacts,
    ConformanceFacts,
    LmEvalFacts,
    ServeFacts,
    TaskFacts,
)
from inferproof.tools.results import Fact, clip, quoted

_SHOWN = 8
_SAID_CHARACTERS = 160


def api_facts(serve: ServeFacts, *, graded: bool) -> Iterable[Fact]:
    """Yield how many checks held and which did not, and how many tasks were right in each arm."""
    for conformance in serve.conformance:
        yield from _conformance_facts(conformance, graded=graded)
    for tasks in serve.tasks:
        yield _task_fact(tasks)
    for told in serve.lm_eval:
        yield from _lm_eval_facts(told)


def conformance_rows(found: Evidence) -> Iterable[str]:
    """Yield a line for each check of an engine's API."""
    for facts in found.serve.conformance if found.serve else ():
        yield from (check_text(check) for check in facts.checks)


def task_rows(found: Evidence) -> Iterable[str]:
    """Yield a line for each task: what came of it in each arm."""
    tables = found.serve.tasks if found.serve else ()
    results: dict[tuple[str, str], dict[str, str]] = {}
    for facts in tables:
        for name, kind, result in zip(facts.ids, facts.kinds, facts.results, strict=True):
            results.setdefault((name, kind), {})[facts.arm] = result
    for (name, kind), arms in results.items():
        told = ", ".join(f"{arm} {result}" for arm, result in sorted(arms.items()))
        yield f"{name} ({kind}): {told}"


def check_text(check: CheckFacts) -> str:
    """Return what one check found; the engine's own word is one closed quotation."""
    text = f"{check.api} {check.name}: {check.result}"
    detail = f", {clip(check.detail, 240)}" if check.detail else ""
    said = f"; it said {quoted(check.said, _SAID_CHARACTERS)}" if check.said else ""
    return f"{text}{detail}{said}"


def _conformance_facts(facts: ConformanceFacts, *, graded: bool) -> Iterable[Fact]:
    counts = Counter(check.result for check in facts.checks)
    told = ", ".join(f"{count} {result}" for result, count in counts.items())
    yield Fact(name="conformance", value=told, unit=f"checks, in {facts.seconds:.1f} s")
    others = [check for check in facts.checks if check.result in ("broken", "unmeasured")]
    for check in others[:_SHOWN]:
        value = check.result if graded else check_text(check)
        yield Fact(name=f"check {check.name} of {check.api}", value=value)


def _task_fact(facts: TaskFacts) -> Fact:
    kinds = dict.fromkeys(facts.kinds)
    told = Counter(zip(facts.kinds, facts.results, strict=True))
    each = (
        f"{kind} {told[kind, 'right']} of {sum(told[key] for key in told if key[0] == kind)}"
        for kind in kinds
    )
    right = facts.results.count("right")
    value = f"{right} of {len(facts.results)} right ({', '.join(each)})"
    return Fact(name=f"tasks, {facts.arm}", value=value, unit=f"in {facts.seconds:.1f} s")


def _lm_eval_facts(told: LmEvalFacts) -> Iterable[Fact]:
    if told.failure:
        yield Fact(name=f"lm-eval, {told.arm}", value=quoted(told.failure, 600))
    for task, metrics in told.results.items():
        for name, value in metrics.items():
            yield Fact(
                name=f"lm-eval {clip(task, 60)} {clip(name, 60)}, {told.arm}",
                value=round(value, 4),
                unit=f"lm-eval {clip(told.version, 20)}, not judged",
            )
