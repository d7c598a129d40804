"""The embedded baseline: transformers behind OpenAI's completions, honest and plain.

`python -I inferproof_remote.pyz engine --model DIR --port N --threads N [--dtype bfloat16]`
"""

import argparse
import asyncio
import os
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import cast

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
)

from inferproof_remote.serving.engine_answers import Chat, Completion, Part, Tokenizer
from inferproof_remote.serving.engine_batch import Loop, PromptScores, Step, Told, Work
from inferproof_remote.serving.engine_http import (
    Answer,
    Events,
    Json,
    RefusedError,
    Request,
    serve,
)
from inferproof_remote.serving.engine_requests import Asked, Message, Sampling, parse
from inferproof_remote.serving.engine_text import Writer

_MOST_ROWS = 64
_WARM_TOKENS = 8
_SWITCH_S = 0.0005


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
                return await self._complete(request, chat=False)
            case "POST", "/v1/chat/completions" if self._tokenizer.chat_template:
                return await self._complete(request, chat=True)
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

    async def _complete(self, request: Request, *, chat: bool) -> Answer | Events:
        asked = parse(request.body, models=self._known, chat=chat)
        prompt = self._prompt_ids(asked)
        form = Chat if chat else Completion
        answer = form(self._tokenizer, self._name, asked, prompt)
        begun = [self._begin(asked, prompt, number) for number in range(asked.n)]
        parts = [self._parts(asked, prompt, told, request) for told in begun]
        if asked.stream:
            return Events(answer.events(parts[0]))
        return Answer(HTTPStatus.OK, await answer.whole(parts))

    def _prompt_ids(self, asked: Asked) -> tuple[int, ...]:
        if isinstance(asked.prompt, str):
            ids = tuple(self._tokenizer.encode(asked.prompt))
        elif isinstance(asked.prompt, list):
            ids = self._chat_ids(asked.prompt)
        else:
            ids = asked.prompt
        if not ids or not all(0 <= token < self._vocabulary for token in ids):
            raise RefusedError(f"the prompt's tokens are not all in [0, {self._vocabulary})")
        if not all(token < self._vocabulary for token, _ in asked.sampling.bias):
            raise RefusedError(f"the tokens of logit_bias are not all in [0, {self._vocabulary})")
        if len(ids) + asked.sampling.max_tokens > self._context:
            raise RefusedError(
                f"{len(ids)} prompt tokens and max_tokens {asked.sampling.max_tokens} "
                f"are more than the model's context of {self._context}"
            )
        return ids

    def _chat_ids(self, messages: list[Message]) -> tuple[int, ...]:
        try:
            text = self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False
            )
        except Exception as error:
            raise RefusedError(f"the model's template refuses these messages: {error}") from error
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _begin(self, asked: Asked, prompt: tuple[int, ...], number: int) -> "_Told":
        loop, heard = asyncio.get_running_loop(), asyncio.Queue[Told]()
        seed = asked.sampling.seed
        work = Work(
            prompt,
            replace(asked.sampling, seed=None if seed is None else seed + number),
            lambda told: _pass_on(loop, heard, told),
        )
        self._loop.submit(work)
        return _Told(work, heard)

    async def _parts(
        self, asked: Asked, prompt: tuple[int, ...], told: "_Told", request: Request
    ) -> AsyncIterator[PromptScores | Part]:
        """Yield what the prompt scores, if asked, then one part for each token."""
        writer = Writer(self._text, prompt=prompt, stop=asked.stop)
        try:
            while not request.is_gone():
                one = await told.heard.get()
                if isinstance(one, PromptScores):
                    yield one
                    continue
                if one.token < 0:
                    yield Part("", None, None, one.finish)
                    return
                text = writer.add(one.token, last=bool(one.finish))
                finish = "stop" if writer.stopped else one.finish
                yield Part(text, one.token, one.scored, finish)
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
