"""OpenAI's completions and chats around a model: continuous batching, a slot a request."""

import argparse
import json
import math
import queue
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

SLOTS, LENGTH = 8, 1024
NAMES = {"model", "default"}
FORMS = {
    "/v1/completions": ("cmpl", "text_completion", "text_completion"),
    "/v1/chat/completions": ("chatcmpl", "chat.completion", "chat.completion.chunk"),
}


@dataclass
class Request:
    """One completion under way; `events` gets (token id, top log-probabilities or None)."""

    ids: list[int]
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int | None
    ignore_eos: bool
    logprobs: int | None
    prompt_logprobs: int | None
    stop: list[str]
    bias: dict[int, float]
    events: queue.SimpleQueue = field(default_factory=queue.SimpleQueue)
    prompt_rows: list | None = None
    slot: int = -1
    made: list[int] = field(default_factory=list)
    told: int = 0
    gone: bool = False
    random: torch.Generator | None = None


class Loop(threading.Thread):
    """Gives each request a slot, fills it once, then decodes all slots together."""

    def __init__(self, model, eos):
        super().__init__(daemon=True)
        self.model, self.eos = model, eos
        self.waiting, self.running = queue.SimpleQueue(), []
        self.free = list(range(model.slots))

    def run(self):
        while True:
            for request in [each for each in self.running if each.gone]:
                self.leave(request)
            while self.free and (not self.running or not self.waiting.empty()):
                self.admit(self.waiting.get())
            if self.running:
                self.step()

    def admit(self, request):
        if request.gone:
            return
        request.slot = self.free.pop()
        request.random = torch.Generator()
        request.random.seed() if request.seed is None else request.random.manual_seed(request.seed)
        logits = self.model.prefill(request.slot, request.ids)
        if request.prompt_logprobs is not None:
            rows = logits.log_softmax(-1)
            given = zip(rows, request.ids[1:])
            count = request.prompt_logprobs
            request.prompt_rows = [None, *(listed(row, count, own) for row, own in given)]
        self.running.append(request)
        self.take(request, logits[-1])

    def leave(self, request):
        self.running.remove(request)
        self.free.append(request.slot)

    def step(self):
        batch = list(self.running)
        places = [len(each.ids) + len(each.made) - 1 for each in batch]
        last = [each.made[-1] for each in batch]
        logits = self.model.decode([each.slot for each in batch], last, places)
        for request, row in zip(batch, logits):
            self.take(request, row)

    def take(self, request, logits):
        token = choose(biased(logits, request.bias), request)
        row = None
        if request.logprobs is not None:
            row = listed(logits.log_softmax(-1), request.logprobs, token)
        request.made.append(token)
        is_eos = token in self.eos and not request.ignore_eos
        is_last = is_eos or len(request.made) >= request.max_tokens
        request.events.put((token, row, ("stop" if is_eos else "length") if is_last else None))
        if is_last:
            self.leave(request)


def biased(logits, bias):
    """Return the logits with what is asked added to those of some tokens."""
    if not bias:
        return logits
    return logits.index_add(0, torch.tensor(list(bias)), torch.tensor(list(bias.values())))


def choose(logits, request):
    """Return the likeliest token, or one drawn at the asked temperature from those not cut off."""
    if request.temperature <= 0:
        return int(logits.argmax())
    chances, ids = (logits / request.temperature).softmax(-1).sort(descending=True, stable=True)
    cut = (chances.cumsum(-1) - chances >= request.top_p) | (chances < request.min_p * chances[0])
    cut[request.top_k or len(cut) :] = True
    kept = chances.masked_fill(cut, 0.0)
    return int(ids[torch.multinomial(kept, 1, generator=request.random)])


def listed(row, count, own):
    """Return {token id: log-probability} of the likeliest `count` and of the own token."""
    values, ids = row.topk(count)
    return {own: float(row[own]), **dict(zip(ids.tolist(), values.tolist()))}


class Handler(BaseHTTPRequestHandler):
    """HTTP in front of the loop."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": "model", "object": "model"}]})
        else:
            self.answer(200 if self.path == "/health" else 404, {})

    def do_POST(self):
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path not in FORMS:
            return self.refuse(404, f"there is no {self.path}")
        name, self.kind, self.part_kind = FORMS[self.path]
        self.is_chat, self.is_first = name == "chatcmpl", True
        self.top = {"id": f"{name}-{uuid.uuid4().hex}", "created": int(time.time()), "model": "model"}
        try:
            body = json.loads(data)
            if not isinstance(body, dict):
                raise TypeError("the body is a JSON object")
            if self.is_chat:
                body = {**body, **self.as_prompt(body)}
            request = parse(body, self.server.tokenizer)
        except LookupError as error:
            return self.refuse(404, str(error))
        except (TypeError, ValueError) as error:
            return self.refuse(400, str(error))
        self.server.loop.waiting.put(request)
        try:
            return self.stream(request, body) if body.get("stream") else self.whole(request)
        except ConnectionError:  # whoever asked has hung up
            self.close_connection = True
        finally:
            request.gone = True

    def as_prompt(self, body):
        """Return the fields by which a completion says what a chat asks."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or self.server.template is None:
            raise ValueError("messages is a list of {role, content}, for a model with a template")
        if not all(isinstance(each.get(key), str) for each in messages for key in ("role", "content")):
            raise TypeError("a message is {role, content}, both texts")
        text = self.server.template.render(messages=messages, add_generation_prompt=True)
        wants = body.get("top_logprobs", 0) if body.get("logprobs") else None
        most = body.get("max_tokens") or body.get("max_completion_tokens") or 256
        return {"prompt": text, "logprobs": wants, "max_tokens": most}

    def whole(self, request):
        events = list(pieces(request, self.server.tokenizer))
        ids = [token for token, _, _, _ in events]
        text = "".join(new for _, _, new, _ in events)
        choice = {
            "index": 0,
            **({"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}),
            "finish_reason": events[-1][3],
            "token_ids": ids,
            "logprobs": None if request.logprobs is None else self.scores(events),
        }
        if request.prompt_rows is not None:
            choice["prompt_logprobs"] = [
                row and {str(key): {"logprob": value} for key, value in row.items()}
                for row in request.prompt_rows
            ]
        self.answer(200, {**self.top, "object": self.kind, "choices": [choice], "usage": usage(request)})

    def scores(self, events):
        if not self.is_chat:
            return columns([(token, row, finish) for token, row, _, finish in events])
        return {"content": [self.row(token, row) for token, row, _, _ in events]}

    def row(self, token, row):
        def named(each):
            return {"token": self.server.tokenizer.decode([each]), "logprob": row[each]}

        return {**named(token), "top_logprobs": [named(each) for each in row]}

    def stream(self, request, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for token, _, new, finish in pieces(request, self.server.tokenizer):
            self.event({"index": 0, "text": new, "finish_reason": finish, "token_ids": [token]})
        if (body.get("stream_options") or {}).get("include_usage"):
            self.part(choices=[], usage=usage(request))
        self.chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, choice):
        if self.is_chat:
            delta = {"role": "assistant"} if self.is_first else {}
            self.is_first = False
            choice = {**choice, "delta": {**delta, "content": choice["text"]}}
            del choice["text"]
        self.part(choices=[choice])

    def part(self, **fields):
        self.chunk(json.dumps({**self.top, "object": self.part_kind, **fields}))

    def chunk(self, text):
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def refuse(self, status, why):
        self.answer(status, {"error": {"message": why, "type": "invalid_request_error"}})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(ThreadingHTTPServer):
    """Takes many callers at once."""

    daemon_threads = True
    request_queue_size = 1024


def parse(body, tokenizer):
    """Return a request from its JSON; what cannot be done is an error, never left out."""
    if body.get("model", "model") not in NAMES:
        raise LookupError(f"there is no model {body['model']!r}")
    for name, only in {"n": 1, "best_of": 1, "echo": False, "suffix": None}.items():
        if body.get(name, only) != only:
            raise ValueError(f"{name} {body[name]!r} is not supported")
    prompt, stop = body.get("prompt"), body.get("stop") or []
    if not isinstance(prompt, str | list) or not isinstance(stop, str | list):
        raise TypeError("prompt is a text or token ids, stop a text or texts")
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids if isinstance(prompt, str) else prompt
    count = number(body, "max_tokens", 16, 1, LENGTH, int)
    if not ids or len(ids) + count > LENGTH:
        raise ValueError(f"prompt and output must have 1 to {LENGTH} tokens together")
    bias = body.get("logit_bias") or {}
    return Request(
        ids=ids,
        max_tokens=count,
        temperature=number(body, "temperature", 1.0, 0, 100),
        top_p=number(body, "top_p", 1.0, 0, 1),
        top_k=max(0, number(body, "top_k", 0, -1, 1 << 20, int)),
        min_p=number(body, "min_p", 0.0, 0, 1),
        seed=number(body, "seed", None, -(1 << 63), (1 << 63) - 1, int),
        ignore_eos=bool(body.get("ignore_eos")),
        logprobs=number(body, "logprobs", None, 0, 1000, int),
        prompt_logprobs=number(body, "prompt_logprobs", None, 0, 1000, int),
        stop=[stop] if isinstance(stop, str) else stop,
        bias={int(token): number(bias, token, 0.0, -100, 100) for token in bias},
    )


def number(body, name, default, least, most, kind=float):
    """Return a number of the right kind within its range."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        raise TypeError(f"{name} {value!r} is not a number of the right kind")
    if not (math.isfinite(value) and least <= value <= most):
        raise ValueError(f"{name} {value!r} is outside [{least}, {most}]")
    return kind(value)


def iter_events(request):
    """Yield (token, row, finish reason) until the last."""
    while True:
        event = request.events.get()
        yield event
        if event[2]:
            return


def pieces(request, tokenizer):
    """Yield (token, row, new text, finish reason); of a stop text nothing is shown."""
    ids, shown = [], 0
    held = max(map(len, request.stop), default=1) - 1
    for token, row, finish in iter_events(request):
        ids.append(token)
        request.told += 1
        text = tokenizer.decode(ids)
        cuts = [text.index(stop) for stop in request.stop if stop in text]
        if cuts:
            text, finish = text[: min(cuts)], "stop"
        is_whole = finish or not text.endswith("\ufffd")
        end = len(text) if finish else max(shown, len(text) - held) if is_whole else shown
        new, shown = text[shown:end], end
        yield token, row, new, finish
        if finish:
            return


def columns(events):
    """Return log-probabilities in OpenAI's columns, tokens named by id."""
    return {
        "tokens": [f"token_id:{token}" for token, _, _ in events],
        "token_logprobs": [row[token] for token, row, _ in events],
        "top_logprobs": [{f"token_id:{k}": v for k, v in row.items()} for _, row, _ in events],
    }


def usage(request):
    """Return how many tokens went in and came out."""
    given, told = len(request.ids), request.told
    return {"prompt_tokens": given, "completion_tokens": told, "total_tokens": given + told}


def template_of(folder):
    """Return the model's template for chats; None if it has none."""
    path = folder / "tokenizer_config.json"
    text = json.loads(path.read_text()).get("chat_template") if path.exists() else None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text) if isinstance(text, str) else None


def main(model_class):
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = json.loads((options.model / "config.json").read_text())
    eos = config["eos_token_id"]
    loop = Loop(model_class(options.model, SLOTS, LENGTH), set(eos if isinstance(eos, list) else [eos]))
    loop.start()
    server = Server(("127.0.0.1", options.port), Handler)
    server.loop = loop
    server.template = template_of(options.model)
    server.tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    server.serve_forever()
