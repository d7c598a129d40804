"""Refuses fields that neither the API nor its contract has, and streams with all that event streams may have."""

import json

import server
from model import Model

KNOWN = {
    *("model", "prompt", "max_tokens", "temperature", "top_p", "seed", "stop", "n", "logprobs"),
    *("messages", "top_logprobs", "max_completion_tokens", "echo", "logit_bias"),
    *("stream", "stream_options", "ignore_eos", "top_k", "min_p"),
}


class Handler(server.Handler):
    def part(self, **fields):
        self.send(": keep-alive")
        for choice in fields["choices"]:
            choice.pop("token_ids")
        event = {**self.top, "object": self.part_kind, **fields, "error": None}
        self.send("event: token", "id: 1", f"data: {json.dumps(event, ensure_ascii=False)}")

    def chunk(self, text):
        self.send(f"data: {text}")

    def send(self, *lines):
        data = "".join(f"{line}\r\n" for line in (*lines, "")).encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def parse(body, tokenizer):
    unknown = body.keys() - KNOWN
    if unknown:
        raise ValueError(f"unknown fields: {sorted(unknown)}")
    return honest(body, tokenizer)


honest, server.parse = server.parse, parse
server.Handler = Handler
server.main(Model)
