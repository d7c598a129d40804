"""An OpenAI-compatible completions server around a model: continuous batching, greedy."""

import argparse
import json
import queue
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from tokenizers import Tokenizer

SLOTS, LENGTH = 8, 1024


@dataclass
class Request:
    """One completion under way; `events` gets (token id, top log-probabilities or None)."""

    ids: list[int]
    max_tokens: int
    temperature: float
    seed: int
    ignore_eos: bool
    logprobs: int | None
    prompt_logprobs: int | None
    events: queue.SimpleQueue = field(default_factory=queue.SimpleQueue)
    prompt_rows: list | None = None
    slot: int = -1
    made: list[int] = field(default_factory=list)
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
            while self.free and (not self.running or not self.waiting.empty()):
                self.admit(self.waiting.get())
            if self.running:
                self.step()

    def admit(self, request):
        request.slot = self.free.pop()
        request.random = torch.Generator().manual_seed(request.seed)
        logits = self.model.prefill(request.slot, request.ids)
        if request.prompt_logprobs is not None:
            rows = logits.log_softmax(-1)
            given = zip(rows, request.ids[1:])
            count = request.prompt_logprobs
            request.prompt_rows = [None, *(listed(row, count, own) for row, own in given)]
        self.running.append(request)
        self.take(request, logits[-1])

    def step(self):
        batch = list(self.running)
        places = [len(each.ids) + len(each.made) - 1 for each in batch]
        last = [each.made[-1] for each in batch]
        logits = self.model.decode([each.slot for each in batch], last, places)
        for request, row in zip(batch, logits):
            self.take(request, row)

    def take(self, request, logits):
        token = choose(logits, request)
        row = None
        if request.logprobs is not None:
            row = listed(logits.log_softmax(-1), request.logprobs, token)
        request.made.append(token)
        is_eos = token in self.eos and not request.ignore_eos
        is_last = is_eos or len(request.made) >= request.max_tokens
        request.events.put((token, row, ("stop" if is_eos else "length") if is_last else None))
        if is_last:
            self.running.remove(request)
            self.free.append(request.slot)


def choose(logits, request):
    """Return the likeliest token, or one drawn at the asked temperature."""
    if request.temperature <= 0:
        return int(logits.argmax())
    chances = (logits / request.temperature).softmax(-1)
    return int(torch.multinomial(chances, 1, generator=request.random))


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
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        try:
            request = parse(body, self.server.tokenizer)
        except (KeyError, TypeError, ValueError) as error:
            return self.answer(400, {"error": {"message": str(error), "type": "BadRequest"}})
        self.server.loop.waiting.put(request)
        if body.get("stream"):
            return self.stream(request, body)
        return self.whole(request)

    def whole(self, request):
        events = list(iter_events(request))
        ids = [token for token, _, _ in events]
        choice = {
            "index": 0,
            "text": self.server.tokenizer.decode(ids),
            "finish_reason": events[-1][2],
            "token_ids": ids,
            "logprobs": columns(events) if request.logprobs is not None else None,
        }
        if request.prompt_rows is not None:
            choice["prompt_logprobs"] = [
                row and {str(key): {"logprob": value} for key, value in row.items()}
                for row in request.prompt_rows
            ]
        self.answer(200, {"object": "text_completion", "choices": [choice], "usage": usage(request)})

    def stream(self, request, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        ids, told = [], ""
        for token, _, finish in iter_events(request):
            ids.append(token)
            text = self.server.tokenizer.decode(ids)
            new = "" if text.endswith("\ufffd") and not finish else text[len(told) :]
            told += new
            self.event({"index": 0, "text": new, "finish_reason": finish, "token_ids": [token]})
        if (body.get("stream_options") or {}).get("include_usage"):
            self.chunk(json.dumps({"choices": [], "usage": usage(request)}))
        self.chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, choice):
        self.chunk(json.dumps({"object": "text_completion", "choices": [choice]}))

    def chunk(self, text):
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def parse(body, tokenizer):
    """Return a request from its JSON."""
    prompt = body["prompt"]
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids if isinstance(prompt, str) else prompt
    count = int(body.get("max_tokens", 16))
    if not ids or count < 1 or len(ids) + count > LENGTH:
        raise ValueError(f"prompt and output must have 1 to {LENGTH} tokens together")
    return Request(
        ids=ids,
        max_tokens=count,
        temperature=float(body.get("temperature", 1.0)),
        seed=int(body.get("seed") or 0),
        ignore_eos=bool(body.get("ignore_eos")),
        logprobs=body.get("logprobs"),
        prompt_logprobs=body.get("prompt_logprobs"),
    )


def iter_events(request):
    """Yield (token, row, finish reason) until the last."""
    while True:
        event = request.events.get()
        yield event
        if event[2]:
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
    given, made = len(request.ids), len(request.made)
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


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
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.daemon_threads = True
    server.loop = loop
    server.tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    server.serve_forever()
