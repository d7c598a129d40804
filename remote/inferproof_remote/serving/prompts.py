"""What an engine is asked: everything follows from bits that were drawn after the commit.

Windows of the sealed corpus at lengths around block boundaries; which of them are scored token by
token, continued alone, continued together, or asked again; a few requests beyond all that; and the
order of it all.
"""

import math
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, TypeAlias

from inferproof_remote.serving.vocabulary import Vocabulary
from inferproof_remote.stream import Stream

Ids: TypeAlias = tuple[int, ...]
ScoredPath: TypeAlias = Literal[
    "prompt", "prefix", "decode", "batch", "reuse", "beyond", "mixed", "split"
]
# Shares of the rows that generated tokens supply; prompts supply the rest.
_DECODE_SHARE, _BATCH_SHARE, _PREFIX_SHARE = 0.2, 0.16, 0.2
_LEAST_DECODES = 3
_LEAST_REUSED = 33
_NEIGHBOURS = (-1, 0, 1)
_TRIES = 400
# How far beyond the contract's greatest lengths, how many more at once, and how many tokens each.
_FURTHER, _MORE_AT_ONCE, _MAY_END, _FEW = (1.25, 1.5), 2, 3, 8


class CorpusTooSmall(Exception):
    """The corpus has no window of the length that the contract asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The part of the contract that says what is asked, how near a tie is, how far off a row.

    `context` is the most tokens that the model takes, prompt and output together.
    """

    tokens: int
    lengths: tuple[int, ...]
    decode_tokens: int
    batch: int
    top_logprobs: int
    tie_nats: float
    context: int
    p99_over_floor: float
    max_over_floor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Tokens, and how many are to follow; `number` names the sequence in the facts.

    With `at`, only the tokens before that position are sent, and the one at it is asked for.
    `may_end` lets the model end its text.
    """

    number: int
    ids: Ids
    output_tokens: int = 0
    at: int | None = None
    may_end: bool = False

    @property
    def sent(self) -> Ids:
        """The tokens that the engine gets."""
        return self.ids[: self.at]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Prompts that belong together: one alone, some in flight together, or one after another.

    On path `reuse` the first prompt only fills caches; those after it are scored.
    """

    path: ScoredPath
    prompts: tuple[Prompt, ...]

    @property
    def scored(self) -> tuple[Prompt, ...]:
        """The prompts whose answers count."""
        return self.prompts[1:] if self.path == "reuse" else self.prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All steps in the order in which the engine is asked."""

    steps: tuple[Step, ...]

    @property
    def lengths(self) -> list[int]:
        """The length of every sequence, by number."""
        found = {each.number: len(each.ids) for step in self.steps for each in step.prompts}
        return [found[number] for number in sorted(found)]


class Windows:
    """Windows of a corpus that read the same as text and as token ids."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        self._ids = vocabulary.encode(text)
        self._vocabulary = vocabulary

    @property
    def longest(self) -> int:
        """The length of the whole corpus as one window."""
        return len(self._vocabulary.leading) + len(self._ids)

    def draw(self, stream: Stream, length: int) -> Ids:
        """Return one window of `length` tokens, leading tokens of the tokenizer included.

        Raises:
            CorpusTooSmall: no such window was found.
        """
        leading = self._vocabulary.leading
        wanted = length - len(leading)
        starts = len(self._ids) - wanted + 1
        for _ in range(_TRIES if wanted > 0 and starts > 0 else 0):
            at = stream.below(starts)
            ids = (*leading, *self._ids[at : at + wanted])
            if self.are_readable(ids):
                return ids
        raise CorpusTooSmall(f"no window of {length} tokens in a corpus of {len(self._ids)}")

    def are_readable(self, ids: Ids) -> bool:
        """Return whether a server that gets `ids` as text reads the same ids."""
        bare = ids[len(self._vocabulary.leading) :]
        return tuple(self._vocabulary.encode(self._vocabulary.decode(bare))) == bare


def make_plan(bits: bytes, rules: Rules, windows: Windows, *, scores_prompts: bool) -> Plan:
    """Return what `bits` ask of an engine that can, or cannot, score its prompts."""
    maker = _Maker(bits, rules, windows)
    prefix_rows = math.ceil(rules.tokens * _PREFIX_SHARE)
    steps = [maker.batch() for _ in range(maker.batches)]
    steps += maker.reuses()
    generated = sum(each.output_tokens for step in steps for each in step.scored)
    decodes = max(_LEAST_DECODES, math.ceil(rules.tokens * _DECODE_SHARE / rules.decode_tokens))
    if not scores_prompts:
        missing = rules.tokens - generated - prefix_rows
        decodes = max(decodes, math.ceil(missing / rules.decode_tokens))
    steps += [maker.decode() for _ in range(decodes)]
    generated += decodes * rules.decode_tokens
    if scores_prompts:
        steps += maker.prompts(rules.tokens - generated)
    else:
        steps += maker.prefixes(prefix_rows)
    steps += maker.beyond()
    return Plan(steps=tuple(Stream(bits, "order of steps").shuffled(steps)))


class _Maker:
    def __init__(self, bits: bytes, rules: Rules, windows: Windows) -> None:
        self._bits, self._rules, self._windows = bits, rules, windows
        self._content = Stream(bits, "windows")
        self._lengths = Stream(bits, "lengths")
        self._count = 0
        self._cycle: list[int] = []
        rows = rules.batch * rules.decode_tokens
        self.batches = max(1, round(rules.tokens * _BATCH_SHARE / rows))

    def decode(self) -> Step:
        return Step(path="decode", prompts=(self._continued(self._length()),))

    def batch(self) -> Step:
        """Return different prompts, the longest length among them."""
        lengths = [self._longest(), *(self._length() for _ in range(self._rules.batch - 1))]
        drawn = self._lengths.shuffled(lengths)
        return Step(path="batch", prompts=tuple(self._continued(each) for each in drawn))

    def reuses(self) -> list[Step]:
        """Return one step with a prompt of the longest length, and one of a drawn length."""
        long_enough = [each for each in self._rules.lengths if each >= _LEAST_REUSED]
        drawn = self._lengths.choice(long_enough or self._rules.lengths)
        return [self._reuse(self._longest()), self._reuse(self._near(drawn))]

    def beyond(self) -> list[Step]:
        """Return a longer prompt and output, a few that may end, and more prompts at once.

        An engine must serve what users ask for, and not only what this contract names.
        """
        rules = self._rules
        output = self._further(rules.decode_tokens)
        most = min(rules.context - output, self._windows.longest)
        longer = min(self._further(max(rules.lengths)), max(most, 2))
        alone = replace(self._window(longer), output_tokens=output)
        free = tuple(
            replace(self._continued(self._length()), output_tokens=output, may_end=True)
            for _ in range(_MAY_END)
        )
        at_once = tuple(
            replace(self._continued(self._length()), output_tokens=_FEW)
            for _ in range(_MORE_AT_ONCE * rules.batch)
        )
        return [Step(path="beyond", prompts=each) for each in ((alone,), free, at_once)]

    def _further(self, greatest: int) -> int:
        least, most = (math.ceil(greatest * each) for each in _FURTHER)
        return self._lengths.between(least, most)

    def _reuse(self, length: int) -> Step:
        """Return a prompt, the same again, and one that leaves it near its end."""
        first = self._continued(length)
        again = replace(self._continued(len(first.ids)), ids=first.ids)
        branched = replace(self._continued(len(first.ids)), ids=self._branched(first.ids))
        return Step(path="reuse", prompts=(first, again, branched))

    def _branched(self, ids: Ids) -> Ids:
        """Return `ids` with another end, which a server that gets it as text reads the same."""
        for _ in range(_TRIES):
            kept = len(ids) - self._lengths.between(1, max(1, len(ids) // 4))
            joined = ids[:kept] + self._windows.draw(self._content, len(ids))[kept:]
            if self._windows.are_readable(joined):
                return joined
        raise CorpusTooSmall(f"no two windows of {len(ids)} tokens that can be joined")

    def prompts(self, rows: int) -> list[Step]:
        """Return prompts of every length, and more until there are `rows` tokens to score."""
        steps: list[Step] = []
        left, lengths = rows, [self._near(each) for each in self._rules.lengths]
        while lengths or left > 0:
            length = lengths.pop() if lengths else self._length()
            steps.append(Step(path="prompt", prompts=(self._window(length),)))
            left -= length - 1
        return steps

    def prefixes(self, rows: int) -> list[Step]:
        """Return one step for each prefix: every length's last token, the others drawn."""
        whole = [self._window(self._near(each)) for each in self._rules.lengths]
        last = [(each, len(each.ids) - 1) for each in whole]
        others = [(each, at) for each in whole for at in range(1, len(each.ids) - 1)]
        drawn = Stream(self._bits, "prefixes").shuffled(others)
        readable = (
            replace(each, at=at, output_tokens=1)
            for each, at in (*last, *drawn)
            if self._windows.are_readable(each.ids[:at])
        )
        return [Step(path="prefix", prompts=(each,)) for each in islice(readable, rows)]

    def _continued(self, length: int) -> Prompt:
        return replace(self._window(length), output_tokens=self._rules.decode_tokens)

    def _window(self, length: int) -> Prompt:
        return Prompt(number=self._number(), ids=self._windows.draw(self._content, length))

    def _number(self) -> int:
        self._count += 1
        return self._count - 1

    def _longest(self) -> int:
        return self._near(max(self._rules.lengths))

    def _length(self) -> int:
        """Return the next length of a row in which each is as frequent as the others."""
        if not self._cycle:
            self._cycle = self._lengths.shuffled(self._rules.lengths)
        return self._near(self._cycle.pop())

    def _near(self, length: int) -> int:
        return max(2, length + self._lengths.choice(_NEIGHBOURS))


def text_of(ids: Ids, vocabulary: Vocabulary) -> str:
    """Return the text that a server reads as `ids`."""
    return vocabulary.decode(ids[len(vocabulary.leading) :])
