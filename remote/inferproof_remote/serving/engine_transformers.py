"""The embedded baseline: transformers behind OpenAI's completions, honest and plain.

`python -I inferproof_remote.pyz engine --model DIR --port N --threads N [--dtype bfloat16]`
"""

import argparse
import asyncio
import json
import os
import sys
import threading
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Protocol, cast

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
)

from inferproof_remote.serving.engine_batch import Loop, PromptScores, Scored, Step, Told, Work
from inferproof_remote.serving.engine_http import (
    Answer,
    Events,
    Json,
    RefusedError,
    Request,
    serve,
)
from inferproof_remote.serving.engine_requests import Asked, Sampling, parse
from inferproof_remote.serving.engine_text import Writer

_MOST_ROWS = 64
_WARM_TOKENS = 8
_SWITCH_S = 0.0005


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that serving needs."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        ...

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        """Return the text of tokens."""
        ...


@dataclass(slots=True)
class _Part:
    """A token's share of the answer; `token` is None where there is only text."""

    text: str
    token: int | None
    scored: Scored | None
    finish: str


class Server:
    """One model behind an endpoint."""

    def __init__(self, folder: Path, *, dtype: str, most_rows: int = _MOST_ROWS) -> None:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))  # pyright: ignore[reportUnknownMemberType]
        self._model = cast("PreTrainedModel", model).eval()
        load = cast("Callable[[Path], Tokenizer]", AutoTokenizer.from_pretrained)  # pyright: ignore[reportUnknownMemberType]
        self._tokenizer = load(folder)
        self._name = folder.name
        self._known = frozenset({folder.name, str(folder), "default"})
        config = self._model.config
        self._context = int(getattr(config, "max_position_embeddings", 1 << 20))
        self._vocabulary = int(config.vocab_size)
        self._loop = Loop(self._model, eos=_eos(self._model), most_rows=most_rows)

    def start(self) -> None:
        """Start the model's thread and warm it up."""
        threading.Thread(target=self._run, daemon=True).start()
        ready = threading.Event()
        asked = Sampling(
            max_tokens=_WARM_TOKENS,
            min_tokens=0,
            temperature=0.0,
            top_p=1.0,
            top_k=0,
            seed=None,
            ignore_eos=True,
            logprobs=None,
            prompt_logprobs=None,
        )

        def heard(told: Told) -> None:
            if isinstance(told, Step) and told.finish:
                ready.set()

        self._loop.submit(Work((0, 1, 2), asked, heard))
        ready.wait()

    async def handle(self, request: Request) -> Answer | Events:
        """Answer one request."""
        match request.method, request.path:
            case "GET", "/health":
                return Answer(HTTPStatus.OK, {"status": "ok"})
            case "GET", "/v1/models":
                return Answer(HTTPStatus.OK, self._models())
            case "POST", "/v1/completions":
                return await self._complete(request)
            case _:
                what = f"there is no {request.method} {request.path}"
                raise RefusedError(what, status=HTTPStatus.NOT_FOUND)

    def _run(self) -> None:
        try:
            self._loop.run()
        except Exception:  # noqa: BLE001 (whatever it is, an engine without its loop is none)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def _models(self) -> Json:
        entry: Json = {"id": self._name, "object": "model", "max_model_len": self._context}
        return {"object": "list", "data": [entry]}

    async def _complete(self, request: Request) -> Answer | Events:
        asked = parse(request.body, models=self._known)
        prompt = self._prompt_ids(asked)
        answer = _Completion(self._tokenizer, self._name, asked, prompt)
        told = self._begin(asked, prompt)
        if asked.stream:
            return Events(answer.events(self._parts(asked, prompt, told, request)))
        return Answer(HTTPStatus.OK, await answer.whole(self._parts(asked, prompt, told, request)))

    def _prompt_ids(self, asked: Asked) -> tuple[int, ...]:
        if isinstance(asked.prompt, str):
            ids = tuple(self._tokenizer.encode(asked.prompt))
        else:
            ids = asked.prompt
        if not ids or not all(0 <= token < self._vocabulary for token in ids):
            raise RefusedError(f"the prompt's tokens are not all in [0, {self._vocabulary})")
        if len(ids) + asked.sampling.max_tokens > self._context:
            raise RefusedError(
                f"{len(ids)} prompt tokens and max_tokens {asked.sampling.max_tokens} "
                f"are more than the model's context of {self._context}"
            )
        return ids

    def _begin(self, asked: Asked, prompt: tuple[int, ...]) -> "_Told":
        loop, heard = asyncio.get_running_loop(), asyncio.Queue[Told]()
        work = Work(
            prompt,
            asked.sampling,
            lambda told: _pass_on(loop, heard, told),
        )
        self._loop.submit(work)
        return _Told(work, heard)

    async def _parts(
        self, asked: Asked, prompt: tuple[int, ...], told: "_Told", request: Request
    ) -> AsyncIterator[PromptScores | _Part]:
        """Yield what the prompt scores, if asked, then one part for each token."""
        writer = Writer(self._text, prompt=prompt, stop=asked.stop)
        try:
            while not request.is_gone():
                one = await told.heard.get()
                if isinstance(one, PromptScores):
                    yield one
                    continue
                if one.token < 0:
                    yield _Part("", None, None, one.finish)
                    return
                text = writer.add(one.token, last=bool(one.finish))
                finish = "stop" if writer.stopped else one.finish
                yield _Part(text, one.token, one.scored, finish)
                if finish:
                    return
        finally:
            told.work.cancelled.set()

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


@dataclass(frozen=True, slots=True)
class _Told:
    work: Work
    heard: asyncio.Queue[Told]


class _Completion:
    """One answer in OpenAI's (legacy) form, with vLLM's fields for tokens."""

    def __init__(
        self, tokenizer: Tokenizer, model: str, asked: Asked, prompt: tuple[int, ...]
    ) -> None:
        self._tokenizer = tokenizer
        self._asked = asked
        self._prompt = prompt
        self._head: dict[str, Json] = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    async def whole(self, parts: AsyncIterator[PromptScores | _Part]) -> Json:
        """Return the answer once it is complete."""
        scores: PromptScores | None = None
        tokens: list[_Part] = []
        async for part in parts:
            if isinstance(part, PromptScores):
                scores = part
            else:
                tokens.append(part)
        choice = self._choice(scores, tokens, first=True)
        return {**self._head, "choices": [choice], "usage": self._usage(_count(tokens))}

    async def events(self, parts: AsyncIterator[PromptScores | _Part]) -> AsyncIterator[str]:
        """Yield one event for each token, then the usage if asked, then the end."""
        scores: PromptScores | None = None
        count, first = 0, True
        async for part in parts:
            if isinstance(part, PromptScores):
                scores = part
                continue
            count += part.token is not None
            choice = self._choice(scores if first else None, [part], first=first)
            first = False
            yield json.dumps({**self._head, "choices": [choice]})
        if self._asked.stream_usage:
            yield json.dumps({**self._head, "choices": [], "usage": self._usage(count)})
        yield "[DONE]"

    def _choice(
        self, scores: PromptScores | None, parts: Sequence[_Part], *, first: bool
    ) -> dict[str, Json]:
        text = "".join(part.text for part in parts)
        if first and self._asked.echo:
            text = self._prompt_text() + text
        choice: dict[str, Json] = {
            "index": 0,
            "text": text,
            "logprobs": self._logprobs(scores, parts, first=first),
            "finish_reason": parts[-1].finish or None if parts else None,
        }
        if self._asked.with_ids:
            choice["token_ids"] = [part.token for part in parts if part.token is not None]
            choice["prompt_token_ids"] = list(self._prompt) if first else None
        if first and self._asked.prompt_scores:
            rows = () if scores is None else scores.rows
            choice["prompt_logprobs"] = [None, *(self._prompt_row(row) for row in rows)]
        return choice

    def _logprobs(
        self, scores: PromptScores | None, parts: Sequence[_Part], *, first: bool
    ) -> Json:
        """Return the legacy columns: the prompt's too when it is echoed."""
        if self._asked.sampling.logprobs is None:
            return None
        rows = [part.scored for part in parts if part.scored is not None]
        names = [self._token_name(row.token) for row in rows]
        own: list[Json] = [row.logprob for row in rows]
        tops: list[Json] = [self._top(row) for row in rows]
        if first and self._asked.echo:
            known = () if scores is None else scores.rows
            names = [self._token_name(token) for token in self._prompt] + names
            own = [None, *(row.logprob for row in known), *own]
            tops = [None, *(self._top(row) for row in known), *tops]
        offsets: list[Json] = [sum(map(len, names[:number])) for number in range(len(names))]
        return {
            "tokens": list(names),
            "token_logprobs": own,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _top(self, row: Scored) -> dict[str, Json]:
        """Return the most likely tokens and the chosen one; of one name, the likeliest stays."""
        top: dict[str, Json] = {self._token_name(row.token): row.logprob}
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
                "decoded_token": self._word(token),
            }
            for token, (logprob, rank) in ranked.items()
        }

    def _token_name(self, token: int) -> str:
        return f"token_id:{token}" if self._asked.ids_as_names else self._word(token)

    def _word(self, token: int) -> str:
        return self._tokenizer.decode([token])

    def _prompt_text(self) -> str:
        if isinstance(self._asked.prompt, str):
            return self._asked.prompt
        return self._tokenizer.decode(list(self._prompt))

    def _usage(self, count: int) -> Json:
        return {
            "prompt_tokens": len(self._prompt),
            "completion_tokens": count,
            "total_tokens": len(self._prompt) + count,
        }


def _count(parts: Sequence[_Part]) -> int:
    return sum(part.token is not None for part in parts)


def _pass_on(loop: asyncio.AbstractEventLoop, heard: asyncio.Queue[Told], told: Told) -> None:
    loop.call_soon_threadsafe(heard.put_nowait, told)


def _eos(model: PreTrainedModel) -> frozenset[int]:
    """Return the tokens that end a text, as the model's own generation settings say."""
    said: object = getattr(model.generation_config, "eos_token_id", None)
    if said is None:
        said = getattr(model.config, "eos_token_id", None)
    several = cast("list[object]", said) if isinstance(said, list) else [said]
    return frozenset(token for token in several if isinstance(token, int))


def main(arguments: list[str]) -> int:
    """Serve a model until killed."""
    parser = argparse.ArgumentParser(prog="inferproof_remote engine")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--max-batch", type=int, default=_MOST_ROWS)
    options = parser.parse_args(arguments)
    sys.setswitchinterval(_SWITCH_S)
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    server = Server(options.model, dtype=options.dtype, most_rows=options.max_batch)
    server.start()
    asyncio.run(serve(options.port, server.handle))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
