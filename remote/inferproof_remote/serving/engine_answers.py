"""How our own engine lays out what it generated: OpenAI's older completions, and chats."""

import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from inferproof_remote.serving.engine_batch import PromptScores, Scored
from inferproof_remote.serving.engine_http import Json
from inferproof_remote.serving.engine_requests import Asked

Object = dict[str, Json]


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that serving needs."""

    chat_template: object

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text."""
        ...

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        """Return the text of tokens."""
        ...

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, add_generation_prompt: bool, tokenize: bool
    ) -> str:
        """Return messages as the text that the model was trained on."""
        ...


@dataclass(slots=True)
class Part:
    """A token's share of the answer; `token` is None where there is only text."""

    text: str
    token: int | None
    scored: Scored | None
    finish: str


Parts = AsyncIterator[PromptScores | Part]


class Completion:
    """One answer in OpenAI's (older) form, with vLLM's fields for tokens."""

    name, kind, part_kind = "cmpl", "text_completion", "text_completion"

    def __init__(
        self, tokenizer: Tokenizer, model: str, asked: Asked, prompt: tuple[int, ...]
    ) -> None:
        self.tokenizer = tokenizer
        self.asked = asked
        self.prompt = prompt
        self._head: Object = {
            "id": f"{self.name}-{uuid.uuid4().hex}",
            "object": self.kind,
            "created": int(time.time()),
            "model": model,
        }

    async def whole(self, answers: Sequence[Parts]) -> Json:
        """Return the answer with one choice for each of `answers`, once all are complete."""
        choices: list[Json] = []
        count = 0
        for index, parts in enumerate(answers):
            scores: PromptScores | None = None
            tokens: list[Part] = []
            async for part in parts:
                if isinstance(part, PromptScores):
                    scores = part
                else:
                    tokens.append(part)
            count += sum(part.token is not None for part in tokens)
            choices.append({**self.choice(scores, tokens, first=True), "index": index})
        return {**self._head, "choices": choices, "usage": self._usage(count)}

    async def events(self, parts: Parts) -> AsyncIterator[str]:
        """Yield one event for each token, then the usage if asked, then the end."""
        scores: PromptScores | None = None
        count, first = 0, True
        head: Object = {**self._head, "object": self.part_kind}
        async for part in parts:
            if isinstance(part, PromptScores):
                scores = part
                continue
            count += part.token is not None
            choice = self.part(scores if first else None, part, first=first)
            first = False
            yield json.dumps({**head, "choices": [choice]})
        if self.asked.stream_usage:
            yield json.dumps({**head, "choices": [], "usage": self._usage(count)})
        yield "[DONE]"

    def part(self, scores: PromptScores | None, part: Part, *, first: bool) -> Object:
        """Return the choice of one event."""
        return self.choice(scores, [part], first=first)

    def choice(self, scores: PromptScores | None, parts: Sequence[Part], *, first: bool) -> Object:
        """Return what these tokens are together; the first choice has what the prompt was."""
        text = "".join(part.text for part in parts)
        if first and self.asked.echo:
            text = self._prompt_text() + text
        choice: Object = {
            "index": 0,
            "text": text,
            "logprobs": self._logprobs(scores, parts, first=first),
            "finish_reason": parts[-1].finish or None if parts else None,
        }
        if self.asked.with_ids:
            choice["token_ids"] = [part.token for part in parts if part.token is not None]
            choice["prompt_token_ids"] = list(self.prompt) if first else None
        if first and self.asked.prompt_scores:
            rows = () if scores is None else scores.rows
            choice["prompt_logprobs"] = [None, *(self._prompt_row(row) for row in rows)]
        return choice

    def _logprobs(self, scores: PromptScores | None, parts: Sequence[Part], *, first: bool) -> Json:
        """Return the older columns: the prompt's too when it is echoed."""
        if self.asked.sampling.logprobs is None:
            return None
        rows = [part.scored for part in parts if part.scored is not None]
        names = [self._token_name(row.token) for row in rows]
        own: list[Json] = [row.logprob for row in rows]
        tops: list[Json] = [self._top(row) for row in rows]
        if first and self.asked.echo:
            known = () if scores is None else scores.rows
            names = [self._token_name(token) for token in self.prompt] + names
            own = [None, *(row.logprob for row in known), *own]
            tops = [None, *(self._top(row) for row in known), *tops]
        offsets: list[Json] = [sum(map(len, names[:number])) for number in range(len(names))]
        return {
            "tokens": list(names),
            "token_logprobs": own,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _top(self, row: Scored) -> Object:
        """Return the most likely tokens and the chosen one; of one name, the likeliest stays."""
        top: Object = {self._token_name(row.token): row.logprob}
        for token, logprob in row.top:
            top.setdefault(self._token_name(token), logprob)
        return top

    def _prompt_row(self, row: Scored) -> Json:
        ranked = {row.token: (row.logprob, row.rank)}
        for rank, (token, logprob) in enumerate(row.top, 1):
            ranked.setdefault(token, (logprob, rank))
        return {
            str(token): {
                "logprob": logprob,
                "rank": rank,
                "decoded_token": self.word(token),
            }
            for token, (logprob, rank) in ranked.items()
        }

    def _token_name(self, token: int) -> str:
        return f"token_id:{token}" if self.asked.ids_as_names else self.word(token)

    def word(self, token: int) -> str:
        """Return the text of one token."""
        return self.tokenizer.decode([token])

    def _prompt_text(self) -> str:
        if isinstance(self.asked.prompt, str):
            return self.asked.prompt
        return self.tokenizer.decode(list(self.prompt))

    def _usage(self, count: int) -> Json:
        return {
            "prompt_tokens": len(self.prompt),
            "completion_tokens": count,
            "total_tokens": len(self.prompt) + count,
        }


class Chat(Completion):
    """One answer of a chat; a stream begins with who speaks."""

    name, kind, part_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def choice(self, scores: PromptScores | None, parts: Sequence[Part], *, first: bool) -> Object:
        """Return what these tokens are together, as a message."""
        text = "".join(part.text for part in parts)
        return {"message": {"role": "assistant", "content": text}, **self._rest(parts)}

    def part(self, scores: PromptScores | None, part: Part, *, first: bool) -> Object:
        """Return the choice of one event."""
        delta: Object = {"content": part.text}
        if first:
            delta = {"role": "assistant", **delta}
        return {"delta": delta, **self._rest([part])}

    def _rest(self, parts: Sequence[Part]) -> Object:
        rest: Object = {
            "index": 0,
            "logprobs": self._scores(parts),
            "finish_reason": parts[-1].finish or None if parts else None,
        }
        if self.asked.with_ids:
            rest["token_ids"] = [part.token for part in parts if part.token is not None]
        return rest

    def _scores(self, parts: Sequence[Part]) -> Json:
        if self.asked.sampling.logprobs is None:
            return None
        scored = [part.scored for part in parts if part.scored is not None]
        rows: list[Json] = [
            {
                **self._named(row.token, row.logprob),
                "top_logprobs": [self._named(token, logprob) for token, logprob in row.top],
            }
            for row in scored
        ]
        return {"content": rows}

    def _named(self, token: int, logprob: float) -> Object:
        word = self.word(token)
        return {"token": word, "logprob": logprob, "bytes": list[Json](word.encode())}
