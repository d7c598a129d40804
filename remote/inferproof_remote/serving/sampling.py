"""Does an engine draw its tokens as it was asked to: the allowed ones, as often as it should?

The reference reads what was drawn and says of every position what the setting allows there and how
likely each token is. Rounding moves tokens over the edge of what is allowed, so a tie's width is
forgiven. Ends of text are counted apart: an engine that was told to go on after them may forbid
them, and one that cannot be told so is asked for more where it ended.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

import torch
from torch import Tensor

from inferproof_remote import job
from inferproof_remote.serving.client import Answer, Completion, Engine, Refused, Request
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.prompts import Ids, Windows, text_of
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.spelling import told_ids
from inferproof_remote.serving.vocabulary import Vocabulary
from inferproof_remote.stream import Stream

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
PROMPT_TOKENS, TOKENS_EACH, AT_ONCE = 24, 40, 4
RANKS = (1, 2, 4, 8, 16)
_SEEDS = 1 << 31
_MOST_TIMES = 10  # as many requests as would do if no text ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Sampling parameters; None is off."""

    temperature: float
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def chances(self, row: Tensor) -> Tensor:
        """Return the log-probabilities that the setting makes of `row`; -inf is left out."""
        scaled = (row / self.temperature).log_softmax(-1)
        kept = scaled >= self._least(scaled)
        return scaled.masked_fill(~kept, -torch.inf).log_softmax(-1)

    def allows(self, row: Tensor, token: int, tie_nats: float) -> bool:
        """Return whether `token` is within a tie of what the setting leaves in."""
        scaled = (row / self.temperature).log_softmax(-1)
        return float(scaled[token]) >= self._least(scaled) - tie_nats / self.temperature

    def _least(self, scaled: Tensor) -> float:
        """Return the least log-probability that is left in."""
        ordered = scaled.sort(descending=True).values
        least = [-torch.inf]
        if self.top_k is not None:
            least.append(float(ordered[min(self.top_k, len(ordered)) - 1]))
        if self.top_p is not None:
            chances = ordered.exp()
            before = chances.cumsum(-1) - chances
            least.append(float(ordered[before < self.top_p][-1]))
        if self.min_p is not None:
            least.append(float(ordered[0]) + float(torch.tensor(self.min_p).log()))
        return max(least)


@dataclass(slots=True)
class Drawn:
    """What was drawn at one setting, a row a token, and ranks by range."""

    asked: int = 0
    failed: int = 0
    outside: list[int] = field(default_factory=list[int])
    surprise_nats: list[float] = field(default_factory=list[float])
    expected_nats: list[float] = field(default_factory=list[float])
    variance_nats2: list[float] = field(default_factory=list[float])
    observed: list[int] = field(default_factory=lambda: [0] * (len(RANKS) + 1))
    expected: list[float] = field(default_factory=lambda: [0.0] * (len(RANKS) + 1))
    variance: list[float] = field(default_factory=lambda: [0.0] * (len(RANKS) + 1))
    ends: int = 0
    ends_expected: float = 0.0
    ends_variance: float = 0.0

    def may_end(self, chance: float, *, is_end: bool) -> None:
        """Add a place where the text may end, or did."""
        self.ends += is_end
        self.ends_expected += chance
        self.ends_variance += chance * (1 - chance)

    def add(self, chances: Tensor, token: int) -> None:
        """Add a token that `chances` leave in."""
        known = chances[chances > -torch.inf].double()
        mean = -float((known.exp() * known).sum())
        self.surprise_nats.append(-float(chances[token]))
        self.expected_nats.append(mean)
        self.variance_nats2.append(max(0.0, float((known.exp() * known**2).sum()) - mean**2))
        rank = int((chances > chances[token]).sum())
        self.observed[sum(rank >= each for each in RANKS)] += 1
        for place, share in enumerate(shares_of_ranks(chances)):
            self.expected[place] += share
            self.variance[place] += share * (1 - share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Whom to ask, and by what to judge; everything asked follows from `stream`."""

    engine: Engine
    features: Features
    windows: Windows
    yardsticks: Yardsticks
    stream: Stream
    tie_nats: float

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's vocabulary."""
        return self.yardsticks.vocabulary

    def measure(self, setting: Setting, tokens: int) -> dict[str, Json]:
        """Return what was drawn at one setting, without the setting."""
        began_s, drawn = time.monotonic(), Drawn()
        each = TOKENS_EACH if self.features.token_ids else 1
        requests = _MOST_TIMES * -(-tokens // each)
        while drawn.asked < tokens and requests > 0:
            count = min(-(-(tokens - drawn.asked) // each), AT_ONCE, requests)
            prompts = [self.windows.draw(self.stream, PROMPT_TOKENS) for _ in range(count)]
            requests -= count
            self._read(prompts, self._answers(prompts, setting, each), setting, each, drawn)
        return {
            "asked": drawn.asked,
            "failed": drawn.failed,
            "outside": [*drawn.outside],
            "surprise_nats": [*drawn.surprise_nats],
            "expected_nats": [*drawn.expected_nats],
            "variance_nats2": [*drawn.variance_nats2],
            "rank_observed": [*drawn.observed],
            "rank_expected": [*drawn.expected],
            "rank_variance": [*drawn.variance],
            "ends": drawn.ends,
            "ends_expected": drawn.ends_expected,
            "ends_variance": drawn.ends_variance,
            "seconds": time.monotonic() - began_s,
        }

    def _answers(self, prompts: Sequence[Ids], setting: Setting, tokens: int) -> list[Answer]:
        """Return the answers; fields that say "off" are left out where an engine refuses them."""
        requests = [self._request(each, setting, tokens) for each in prompts]
        answers = self.engine.complete_together(requests)
        if not all(isinstance(each, Refused) for each in answers):
            return answers
        plain = [replace(each, top_k=setting.top_k, min_p=setting.min_p) for each in requests]
        return self.engine.complete_together(plain)

    def _request(self, prompt: Ids, setting: Setting, tokens: int) -> Request:
        return Request(
            prompt=prompt if self.features.id_prompts else text_of(prompt, self.vocabulary),
            max_tokens=tokens,
            temperature=setting.temperature,
            top_p=1.0 if setting.top_p is None else setting.top_p,
            top_k=0 if setting.top_k is None else setting.top_k,
            min_p=0.0 if setting.min_p is None else setting.min_p,
            seed=self.stream.below(_SEEDS),
        )

    def _read(
        self,
        prompts: Sequence[Ids],
        answers: Sequence[Answer],
        setting: Setting,
        tokens: int,
        drawn: Drawn,
    ) -> None:
        drawn.failed += tokens * sum(not isinstance(each, Completion) for each in answers)
        outputs = [self._output(each) for each in answers]
        whole = [(*prompt, *output) for prompt, output in zip(prompts, outputs, strict=True)]
        rows_of = self.yardsticks.truth.many(whole)
        each_of = zip(prompts, answers, outputs, rows_of, strict=True)
        for prompt, answer, output, rows in each_of:
            places = rows[len(prompt) - 1 :]
            for row, token in zip(places, output, strict=False):
                self._score(row, token, setting, drawn)
            is_over = self._is_over(answer, output, tokens)
            is_hidden = is_over and not (output and output[-1] in self.vocabulary.ends)
            if is_hidden:
                drawn.may_end(self._end_chance(places[len(output)], setting), is_end=True)
            drawn.asked += len(output) + is_hidden if is_over else tokens

    def _score(self, row: Tensor, token: int, setting: Setting, drawn: Drawn) -> None:
        """Add a token; how likely it is, where forbidding ends makes no other cut."""
        ends, end_chance = self.vocabulary.ends, self._end_chance(row, setting)
        drawn.may_end(end_chance, is_end=token in ends)
        if token in ends:
            return
        shown = row.clone()
        shown[list(ends)] = -torch.inf
        drawn.outside.append(int(not setting.allows(shown, token, self.tie_nats)))
        chances, among_ends = setting.chances(shown), setting.chances(row)
        among_ends[list(ends)] = -torch.inf
        is_plain = torch.equal(chances > -torch.inf, among_ends > -torch.inf)
        if is_plain and float(chances[token]) > -torch.inf:
            drawn.add(chances, token)

    def _end_chance(self, row: Tensor, setting: Setting) -> float:
        """Return how likely an end of text is at most, whether or not the setting leaves it in."""
        ends = list(self.vocabulary.ends)
        plain = (row / setting.temperature).softmax(-1)[ends].sum()
        return min(1.0, float(torch.maximum(plain, setting.chances(row)[ends].exp().sum())))

    def _is_over(self, answer: Answer, output: Ids, tokens: int) -> bool:
        """Return whether the text ended early, as texts do whose engine cannot be told to go on."""
        if not isinstance(answer, Completion) or self.features.ignore_eos:
            return False
        return answer.finish_reason == "stop" and len(output) < tokens

    def _output(self, answer: Answer) -> Ids:
        """Return the tokens that were drawn, as far as they are certain.

        A single token that shows nothing is an end of text.
        """
        if not isinstance(answer, Completion):
            return ()
        told = told_ids(answer.token_ids, answer.text, self.vocabulary)
        if told is not None or self.features.token_ids:
            return told or ()
        alone = self.vocabulary.id_of(answer.text) if answer.text else self.vocabulary.ends[0]
        return () if alone is None else (alone,)


def shares_of_ranks(chances: Tensor) -> list[float]:
    """Return how likely a token of each range of ranks is; equally likely ones have the same."""
    falling = -chances.sort(descending=True).values
    ranges = torch.bucketize(torch.searchsorted(falling, falling), torch.tensor(RANKS), right=True)
    shares = torch.zeros(len(RANKS) + 1).index_add(0, ranges, (-falling).exp())
    return [min(1.0, float(each)) for each in shares]


def settings_of(rules: Mapping[str, object]) -> Iterator[tuple[Mapping[str, Json], Setting]]:
    """Yield the contract's settings, each as it is written and as a value."""
    for each in cast("Sequence[object]", rules["settings"]):
        written = cast("Mapping[str, Json]", job.as_table(each, "setting"))
        given = {
            name: job.as_number(value, name)
            for name, value in written.items()
            if value is not None and name != "top_k"
        }
        top_k = written["top_k"]
        yield written, Setting(**given, top_k=top_k if isinstance(top_k, int) else None)
