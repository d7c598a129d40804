"""Requests whose greedy answer is beyond doubt: the reference prefers each token by a clear margin.

Whatever rounds as the model's precision does gives these very tokens, so an answer can be compared
with them letter by letter. All are drawn after the commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from torch import Tensor
from transformers import AutoTokenizer

from inferproof_remote.serving.prompts import CorpusTooSmall, Ids, Windows, text_of
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.stream import Stream

CLEAR_NATS = 0.5
_WINDOW, _COPIES, _TRIES = 64, 3, 80
_LEAST, _MOST = 8, 12
_CHAT_LEAST, _CHAT_MOST, _CHAT_WINDOW, _CHAT_TRIES = 3, 8, 24, 40
_CONTEXT = 6
_BROKEN = "\ufffd"
_SPLIT, _BIAS = "\u2014\u201c\u201d\u2019\u20ac\u00e9\u00df\u65e5\U0001f98a\U00013000", 60.0
_SPLIT_MOST, _SPLIT_PROMPT, _SPLIT_TRIES = 8, 24, 6
_COPIED_WINDOW, _COPIED_TIMES = 8, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A prompt, or a user's message, and the model's answer to it.

    `texts[k]` is the text of the first k tokens. With `bias`, these are added to the logits of
    tokens, as `logit_bias` asks.
    """

    prompt: str
    prompt_tokens: int
    ids: Ids
    logprobs: tuple[float, ...]
    texts: tuple[str, ...]
    bias: Mapping[int, float]

    @property
    def whole(self) -> int:
        """How many tokens are known."""
        return len(self.ids)

    @property
    def lengths(self) -> list[int]:
        """After how many tokens the text ends with a whole character; the shortest first."""
        return [at for at in range(1, self.whole + 1) if not self.texts[at].endswith(_BROKEN)]


class _Templated(Protocol):
    chat_template: object

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, add_generation_prompt: bool, tokenize: bool
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class Oracle:
    """Finds known requests; what it draws follows from `stream`."""

    yardsticks: Yardsticks
    windows: Windows
    stream: Stream

    def completions(self, count: int) -> list[Known]:
        """Return up to `count` prompts that the model goes on from without a doubt."""
        found: list[Known] = []
        for _ in range(_TRIES):
            if len(found) == count:
                break
            found += self._of_copies()
        return found

    def chats(self, count: int, model: Path) -> list[Known] | None:
        """Return up to `count` messages; None if the model has no template for a chat."""
        load = cast("object", AutoTokenizer.from_pretrained(model, local_files_only=True))  # pyright: ignore[reportUnknownMemberType]
        tokenizer = cast("_Templated", load)
        if not tokenizer.chat_template:
            return None
        found: list[Known] = []
        for _ in range(_CHAT_TRIES):
            if len(found) == count:
                break
            found += self._of_message(tokenizer)
        return found

    def split_character(self) -> Known | None:
        """Return a prompt and biases by which the model writes a character of several tokens."""
        for _ in range(_SPLIT_TRIES):
            prompt = self.windows.draw(self.stream, _SPLIT_PROMPT)
            for tokens in self.stream.shuffled(self.split):
                known = self._biased(prompt, tokens)
                if known is not None:
                    return known
        return None

    def copied_character(self) -> Known | None:
        """Return a prompt alone after which the model writes such a character: it goes on copying.

        Not every model copies what it hardly ever saw.
        """
        tries = (tokens for _ in range(_SPLIT_TRIES) for tokens in self.stream.shuffled(self.split))
        return next((known for each in tries for known in self._of_split_copies(each)), None)

    @property
    def split(self) -> list[Ids]:
        """Characters of several tokens of which none is whole by itself, as these tokens."""
        vocabulary = self.yardsticks.vocabulary
        found = (tuple(vocabulary.encode(character)) for character in _SPLIT)
        return [
            tokens
            for tokens in found
            if len(tokens) > 1 and all(_BROKEN in vocabulary.decode([each]) for each in tokens)
        ]

    def prose(self, length: int) -> tuple[Ids, str]:
        """Return a window and its text."""
        ids = self.windows.draw(self.stream, length)
        return ids, text_of(ids, self.yardsticks.vocabulary)

    def chance_nats(self, prompt: Ids, text: str) -> float:
        """Return how unlikely `text` is after `prompt` at temperature 1."""
        ids = self.yardsticks.vocabulary.encode(text)
        if not ids:
            return 0.0
        rows = self.yardsticks.truth.logprobs([*prompt, *ids])
        places = enumerate(ids, len(prompt))
        return -sum(float(rows[at - 1, token]) for at, token in places)

    def _of_copies(self) -> Iterator[Known]:
        """Yield the longest sure stretch of a window that was copied; models go on copying."""
        vocabulary = self.yardsticks.vocabulary
        window = self._plain(_WINDOW)
        ids: Ids = (*vocabulary.leading, *window * _COPIES)
        rows = self.yardsticks.truth.logprobs(ids)
        start, end = longest_run([False] * len(window) + self._sure(ids, rows)[len(window) :])
        start, end = start + 1, min(end + 1, start + 1 + _MOST)
        if end - start >= _LEAST:
            yield from self._stretch(ids, rows, start, end)

    def _of_split_copies(self, tokens: Ids) -> Iterator[Known]:
        """Yield where a copied window goes on with a character of these tokens, the last first."""
        vocabulary = self.yardsticks.vocabulary
        ids: Ids = (*vocabulary.leading, *(*self._plain(_COPIED_WINDOW), *tokens) * _COPIED_TIMES)
        rows = self.yardsticks.truth.logprobs(ids)
        sure = self._sure(ids, rows)
        for start in reversed(range(len(ids) // 2, len(ids) - len(tokens) + 1)):
            end = start + len(tokens)
            if ids[start:end] == tokens and all(sure[start - 1 : end - 1]):
                yield from self._stretch(ids, rows, start, end)

    def _sure(self, ids: Ids, rows: Tensor) -> list[bool]:
        """Return of each token after the first whether the reference prefers it clearly."""
        top = rows.topk(2)
        return [
            int(best[0]) == token and float(value[0] - value[1]) > CLEAR_NATS
            for token, best, value in zip(ids[1:], top.indices, top.values, strict=False)
        ]

    def _stretch(self, ids: Ids, rows: Tensor, start: int, end: int) -> Iterator[Known]:
        """Yield the tokens from `start` to `end` as the answer to those before, if these can be."""
        if self.windows.are_readable(ids[:start]):
            logprobs = [float(rows[at - 1, ids[at]]) for at in range(start, end)]
            yield self._known(ids[:start], ids[start:end], logprobs)

    def _of_message(self, tokenizer: _Templated) -> Iterator[Known]:
        vocabulary = self.yardsticks.vocabulary
        message = vocabulary.decode(self._plain(_CHAT_WINDOW)).strip()
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": message}], add_generation_prompt=True, tokenize=False
        )
        prompt = tuple(vocabulary.encode(text))
        ids, logprobs = self._answer(prompt, {}, _CHAT_MOST)
        if len(ids) >= _CHAT_LEAST:
            yield self._known(prompt, ids, logprobs, message=message)

    def _biased(self, prompt: Ids, tokens: Ids) -> Known | None:
        truth = self.yardsticks.truth
        lead, second = tokens[0], tokens[1]
        before, after = truth.logprobs(prompt)[-1], truth.logprobs([*prompt, lead])[-1]
        low = float(before[second] - before[lead])
        high = float(after[second] - after[lead])
        if high - low < 2 * CLEAR_NATS:
            return None
        bias = dict.fromkeys(tokens, _BIAS) | {lead: round(_BIAS + (low + high) / 2, 2)}
        ids, logprobs = self._answer(prompt, bias, _SPLIT_MOST)
        known = self._known(prompt, ids, logprobs, bias=bias)
        whole = [at for at in range(1, len(ids) + 1) if _BROKEN not in known.texts[at]]
        return self._known(prompt, ids[: whole[-1]], logprobs, bias=bias) if whole else None

    def _answer(self, prompt: Ids, bias: Mapping[int, float], most: int) -> tuple[Ids, list[float]]:
        """Return the greedy tokens as far as they are sure and visible."""
        ids: Ids = ()
        logprobs: list[float] = []
        unseen = self.yardsticks.vocabulary.invisible
        while len(ids) < most:
            row = self.yardsticks.truth.logprobs([*prompt, *ids])[-1].clone()
            for token, more in bias.items():
                row[token] += more
            top = row.topk(2)
            token = int(top.indices[0])
            if float(top.values[0] - top.values[1]) <= CLEAR_NATS or token in unseen:
                break
            ids, logprobs = (*ids, token), [*logprobs, float(top.values[0])]
        return ids, logprobs

    def _known(
        self,
        prompt: Ids,
        ids: Ids,
        logprobs: Sequence[float],
        *,
        message: str | None = None,
        bias: Mapping[int, float] | None = None,
    ) -> Known:
        vocabulary = self.yardsticks.vocabulary
        before = prompt[-_CONTEXT:]
        start = len(vocabulary.decode(before))
        return Known(
            prompt=text_of(prompt, vocabulary) if message is None else message,
            prompt_tokens=len(prompt),
            ids=ids,
            logprobs=tuple(logprobs),
            texts=tuple(
                vocabulary.decode((*before, *ids[:end]))[start:] for end in range(len(ids) + 1)
            ),
            bias=bias or {},
        )

    def _plain(self, length: int) -> Ids:
        """Return a window without any special token."""
        unseen = self.yardsticks.vocabulary.invisible
        leading = len(self.yardsticks.vocabulary.leading)
        for _ in range(_TRIES):
            window = self.windows.draw(self.stream, length + leading)[leading:]
            if not unseen.intersection(window):
                return window
        raise CorpusTooSmall(f"no window of {length} tokens without a special one")


def longest_run(flags: Sequence[bool]) -> tuple[int, int]:
    """Return the first longest stretch of true values, as [start, end)."""
    best, start = (0, 0), 0
    for at, flag in enumerate([*flags, False]):
        if not flag:
            best = max(best, (start, at), key=lambda run: run[1] - run[0])
            start = at + 1
    return best
