"""Both arms on the same windows: each against the full-precision original, and against the other.

The windows follow from the bits, so that nobody knew them before the candidate was committed. What
the original says of them is computed once for both.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from inferproof_remote import job
from inferproof_remote.serving.client import Engine
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.fidelity import Asker, Examination, Question, ask_all
from inferproof_remote.serving.prompts import Plan, Prompt, ScoredPath, Step, Windows
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.scoring import between
from inferproof_remote.stream import Stream

if TYPE_CHECKING:
    from inferproof_remote.serving.deployment import Arm
    from inferproof_remote.serving.serve import Facts

_PREFIXES = 8
Place: TypeAlias = tuple[int, int]
Row: TypeAlias = tuple[int, Mapping[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many windows, how long, and how many tokens follow each."""

    items: int
    tokens: int
    decode_tokens: int

    @classmethod
    def of(cls, rules: Mapping[str, object]) -> "Sizes":
        """Return the sizes that a contract says."""
        names = ("items", "tokens", "decode_tokens")
        return cls(**{name: int(job.as_number(rules[name], name)) for name in names})


@dataclass(slots=True)
class Comparison:
    """What is known of each arm so far, by the original's yardsticks."""

    question: Question
    yardsticks: Yardsticks
    sizes: Sizes
    arms: "list[Facts]" = field(default_factory=list["Facts"])
    _lists: "dict[Arm, dict[Place, Row]]" = field(default_factory=dict["Arm", dict[Place, Row]])
    _floors: dict[Place, float] = field(default_factory=dict[Place, float])

    def add(self, arm: "Arm", restart: int, engine: Engine, features: Features) -> None:
        """Ask one arm and read its answers."""
        asker = Asker(engine, features, self.question.rules, self.yardsticks)
        plan = self._plan(features)
        began_s = time.monotonic()
        said = ask_all(asker, plan)
        found = Examination.of(plan, *said, self.yardsticks, began_s=began_s)
        self.arms.append({"arm": arm, "restart": restart, **found.as_facts()})
        self._lists[arm] = {
            (each.number, reading.position): (each.ids[reading.position], reading.listed)
            for each in found.transcripts
            for reading in each.readings
            if reading.listed and each.path != "decode"
        }
        for table in found.tables:
            places = zip(table.sequence, table.position, table.floor_kl, strict=False)
            self._floors |= {(sequence, position): floor for sequence, position, floor in places}

    def facts(self, quantisation: Mapping[str, object]) -> "Facts":
        """Return what was measured, as `QualityFacts`."""
        return {"arms": self.arms, "quantisation": dict(quantisation), "apart": self._apart()}

    def _apart(self) -> "Facts | None":
        """Return how far the candidate's lists are from the baseline's at the same places."""
        ours, theirs = self._lists.get("candidate", {}), self._lists.get("baseline", {})
        shared = sorted(ours.keys() & theirs.keys())
        if not shared:
            return None
        return {
            "sequence": [sequence for sequence, _ in shared],
            "position": [position for _, position in shared],
            "kl": [between(theirs[each][1], ours[each][1], ours[each][0]) for each in shared],
            "floor_kl": [self._floors[each] for each in shared],
        }

    def _plan(self, features: Features) -> Plan:
        """Return windows to be read, whole or before drawn tokens, and to be continued."""
        sizes, rules = self.sizes, self.question.rules
        windows = Windows(self.question.corpus, self.yardsticks.vocabulary)
        stream = Stream(self.question.bits, "quality")
        length = min(sizes.tokens, rules.context - sizes.decode_tokens)
        steps: list[Step] = []
        for number in range(sizes.items):
            ids = windows.draw(stream, length)
            places = stream.shuffled([*range(length // 4, length)])[:_PREFIXES]
            prompts = [Prompt(number=number, ids=ids)]
            if not features.prompt_scores:
                prompts = [
                    Prompt(number=number, ids=ids, at=at, output_tokens=1)
                    for at in places
                    if windows.are_readable(ids[:at])
                ]
            path: ScoredPath = "prompt" if features.prompt_scores else "prefix"
            steps += [Step(path=path, prompts=(each,)) for each in prompts]
            whole = Prompt(
                number=number,
                ids=ids,
                output_tokens=sizes.decode_tokens,
                may_end=not features.ignore_eos,
            )
            steps.append(Step(path="decode", prompts=(whole,)))
        return Plan(steps=tuple(steps))
