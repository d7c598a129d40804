"""The model loop of our own engine: requests join and leave one rolling batch between steps.

Rows are aligned at their right end: what a shorter row lacks on the left is masked, and positions
are its own. Every log-probability told comes from the very forward that chose the token.
"""

import inspect
import math
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, cast

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from inferproof_remote.serving.engine_requests import Sampling

_SCORED_ROWS = 256


@dataclass(frozen=True, slots=True)
class Scored:
    """A token, its log-probability and rank among all, and the most likely ones."""

    token: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class PromptScores:
    """What the prompt's own tokens score, from the second on."""

    rows: tuple[Scored, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One generated token; `scored` is there if it was asked for; `finish` if it is the last."""

    token: int
    scored: Scored | None
    finish: str


Told: TypeAlias = PromptScores | Step


@dataclass(slots=True, eq=False)
class Work:
    """One request in the loop. `tell` is called from the loop's thread; `cancel` from any."""

    prompt: tuple[int, ...]
    sampling: Sampling
    tell: Callable[[Told], None]
    cancelled: threading.Event = field(default_factory=threading.Event)


class _Layer(Protocol):
    keys: Tensor
    values: Tensor


@dataclass(slots=True, eq=False)
class _Row:
    """A request that generates: its last token, at `position`, is not in the cache yet."""

    work: Work
    token: int
    position: int
    generated: int
    generator: torch.Generator | None


@dataclass(slots=True, eq=False)
class _Cache:
    """Keys and values of all rows, by layer, and which columns are theirs."""

    layers: list[tuple[Tensor, Tensor]]
    mask: Tensor


class Loop:
    """Generates for all requests that are in flight, at most `most_rows` at once."""

    def __init__(self, model: PreTrainedModel, *, eos: frozenset[int], most_rows: int) -> None:
        self._model = model
        self._eos = eos
        self._most_rows = most_rows
        known = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in known else "past_key_values"
        self._waiting: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._rows: list[_Row] = []
        self._cache: _Cache | None = None

    def submit(self, work: Work) -> None:
        """Take a request; it joins before the next step if there is room."""
        self._waiting.put(work)

    @torch.inference_mode()
    def run(self) -> None:
        """Work until the process ends."""
        while True:
            self.turn()

    def turn(self) -> None:
        """Admit what waits, then make one step for every row; blocks while there is nothing."""
        while len(self._rows) < self._most_rows:
            try:
                work = self._waiting.get(block=not self._rows)
            except queue.Empty:
                break
            if not work.cancelled.is_set():
                self._admit(work)
        self._leave()
        if self._rows:
            self._step()

    def _admit(self, work: Work) -> None:
        """Read the prompt, tell what it scores and the first token, and join the batch."""
        asked = work.sampling
        ids = torch.tensor([work.prompt])
        cache = DynamicCache()
        scores_prompt = asked.prompt_logprobs is not None
        out = self._model(
            input_ids=ids,
            use_cache=True,
            logits_to_keep=0 if scores_prompt else 1,
            **{self._cache_name: cache},
        )
        logits: Tensor = out.logits[0]
        if asked.prompt_logprobs is not None:
            work.tell(_prompt_scores(logits, work.prompt, asked.prompt_logprobs))
        if asked.max_tokens == 0:
            work.tell(Step(-1, None, "length"))
            return
        row = _Row(work, -1, len(work.prompt) - 1, 0, _generator(asked))
        if not self._choose([row], logits[-1:]):
            mask = torch.ones(1, len(work.prompt), dtype=torch.long)
            self._join(row, _Cache(_layers(cache), mask))

    def _join(self, row: _Row, fresh: _Cache) -> None:
        self._rows.append(row)
        if self._cache is None:
            self._cache = fresh
            return
        width = max(self._cache.mask.shape[1], fresh.mask.shape[1])
        old, new = _widened(self._cache, width), _widened(fresh, width)
        layers = [
            (torch.cat([k, x]), torch.cat([v, y]))
            for (k, v), (x, y) in zip(old.layers, new.layers, strict=True)
        ]
        self._cache = _Cache(layers, torch.cat([old.mask, new.mask]))

    def _leave(self) -> None:
        """Let go of the rows that nobody waits for any more."""
        gone = [row for row in self._rows if row.work.cancelled.is_set()]
        if gone:
            self._keep([row for row in self._rows if row not in gone])

    def _keep(self, rows: list[_Row]) -> None:
        cache = self._cache
        index = torch.tensor([self._rows.index(row) for row in rows], dtype=torch.long)
        self._rows = rows
        if cache is None or not rows:
            self._cache = None
            return
        mask = cache.mask[index]
        first = int(mask.argmax(dim=1).min())
        layers = [(k[index, :, first:], v[index, :, first:]) for k, v in cache.layers]
        self._cache = _Cache(layers, mask[:, first:])

    def _step(self) -> None:
        """Generate one token for each row."""
        if self._cache is None:
            return
        rows = self._rows
        mask = torch.cat([self._cache.mask, torch.ones(len(rows), 1, dtype=torch.long)], dim=1)
        cache = DynamicCache()
        for number, (keys, values) in enumerate(self._cache.layers):
            cache.update(keys, values, number)  # pyright: ignore[reportUnknownMemberType]
        out = self._model(
            input_ids=torch.tensor([[row.token] for row in rows]),
            position_ids=torch.tensor([[row.position] for row in rows]),
            attention_mask=mask,
            use_cache=True,
            **{self._cache_name: cache},
        )
        self._cache = _Cache(_layers(cache), mask)
        ended = self._choose(rows, out.logits[:, -1])
        if ended:
            self._keep([row for row in rows if row not in ended])

    def _choose(self, rows: Sequence[_Row], logits: Tensor) -> list[_Row]:
        """Choose and tell each row's next token; return the rows that ended by it."""
        logits = logits.float()
        wanted = max((row.work.sampling.logprobs or 0 for row in rows), default=0)
        scores = any(row.work.sampling.logprobs is not None for row in rows)
        logprobs = logits.log_softmax(-1) if scores else None
        top = logprobs.topk(min(wanted, logits.shape[-1])) if logprobs is not None else None
        ended: list[_Row] = []
        for number, row in enumerate(rows):
            asked = row.work.sampling
            token = pick(self._allowed(row, logits[number]), asked, row.generator)
            scored = None
            if asked.logprobs is not None and logprobs is not None and top is not None:
                best = _pairs(top.indices[number], top.values[number])[: asked.logprobs]
                scored = _scored(logprobs[number], token, best)
            row.token, row.position, row.generated = token, row.position + 1, row.generated + 1
            finish = self._finish(row)
            row.work.tell(Step(token, scored, finish))
            if finish:
                ended.append(row)
        return ended

    def _allowed(self, row: _Row, logits: Tensor) -> Tensor:
        """Return the logits with the asked bias, without an end before `min_tokens`."""
        asked = row.work.sampling
        if asked.bias:
            tokens, more = zip(*asked.bias, strict=True)
            logits = logits.index_add(0, torch.tensor(tokens), torch.tensor(more))
        if asked.ignore_eos or row.generated >= asked.min_tokens or not self._eos:
            return logits
        return logits.index_fill(0, torch.tensor(sorted(self._eos)), float("-inf"))

    def _finish(self, row: _Row) -> str:
        asked = row.work.sampling
        if row.token in self._eos and not asked.ignore_eos:
            return "stop"
        return "length" if row.generated >= asked.max_tokens else ""


def pick(logits: Tensor, asked: Sampling, generator: torch.Generator | None) -> int:
    """Return the next token: the most likely one, or a draw from what the request leaves in."""
    if asked.temperature == 0:
        return int(logits.argmax())
    scaled = logits / asked.temperature
    if asked.min_p > 0:
        least = scaled.max() + math.log(asked.min_p)
        scaled = scaled.masked_fill(scaled < least, float("-inf"))
    if 0 < asked.top_k < scaled.shape[-1]:
        least = scaled.topk(asked.top_k).values[-1]
        scaled = scaled.masked_fill(scaled < least, float("-inf"))
    if asked.top_p < 1:
        ordered, index = scaled.softmax(-1).sort(descending=True, stable=True)
        beyond = ordered.cumsum(-1) - ordered >= asked.top_p
        scaled = scaled.index_fill(0, index[beyond], float("-inf"))
    return int(torch.multinomial(scaled.softmax(-1), 1, generator=generator))


def _generator(asked: Sampling) -> torch.Generator | None:
    if asked.seed is None:
        return None
    return torch.Generator().manual_seed(asked.seed)


def _layers(cache: DynamicCache) -> list[tuple[Tensor, Tensor]]:
    return [(layer.keys, layer.values) for layer in cast("list[_Layer]", cache.layers)]


def _pairs(indices: Tensor, values: Tensor) -> list[tuple[int, float]]:
    tokens, logprobs = cast("list[int]", indices.tolist()), cast("list[float]", values.tolist())  # pyright: ignore[reportUnknownMemberType]
    return list(zip(tokens, logprobs, strict=True))


def _widened(cache: _Cache, width: int) -> _Cache:
    """Return the cache with masked columns on its left until it is `width` wide."""
    missing = width - cache.mask.shape[1]
    if missing == 0:
        return cache
    pad = torch.nn.functional.pad
    layers = [(pad(k, (0, 0, missing, 0)), pad(v, (0, 0, missing, 0))) for k, v in cache.layers]
    return _Cache(layers, pad(cache.mask, (missing, 0)))


def _scored(logprobs: Tensor, token: int, top: list[tuple[int, float]]) -> Scored:
    own = logprobs[token]
    return Scored(token, float(own), int((logprobs > own).sum()) + 1, tuple(top))


def _prompt_scores(logits: Tensor, prompt: tuple[int, ...], wanted: int) -> PromptScores:
    rows: list[Scored] = []
    for first in range(0, len(prompt) - 1, _SCORED_ROWS):
        last = min(first + _SCORED_ROWS, len(prompt) - 1)
        logprobs = logits[first:last].float().log_softmax(-1)
        top = logprobs.topk(min(wanted, logprobs.shape[-1]))
        for number, token in enumerate(prompt[first + 1 : last + 1]):
            best = _pairs(top.indices[number], top.values[number])
            rows.append(_scored(logprobs[number], token, best))
    return PromptScores(tuple(rows))
