"""What a trained model folder is worth: losses, how peaked it is, and what faults cost in it."""

import hashlib
from pathlib import Path
from typing import Protocol, cast

import torch
from tiny_model import encode, load, logits
from tokenizers import Tokenizer
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

WINDOW = 1024
FILES = (
    "config.json",
    "eval.txt",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
GREEDY_PROMPTS, PROMPT_TOKENS, GREEDY_TOKENS = 8, 48, 64
SEEN_TOKENS, BLOCK_AT, BLOCK_TOKENS = 128, 256, 16
FROM_POSITION = 512


class CachedLayer(Protocol):
    """Keys and values that one layer remembers, in heads, positions and width."""

    keys: Tensor
    values: Tensor


@torch.no_grad()
def measured(folder: Path) -> dict[str, object]:
    """Return the figures of the saved bf16 weights, computed in float32 on `eval.txt`."""
    model = load(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = encode(tokenizer, (folder / "eval.txt").read_text(encoding="utf-8"))
    windows = ids[: len(ids) // WINDOW * WINDOW].view(-1, WINDOW)
    log_p = torch.cat([_log_p(model, window[None]) for window in windows])
    losses = -log_p[:, :-1].gather(2, windows[:, 1:, None])[..., 0]
    return {
        "parameters": sum(value.numel() for value in model.parameters()),
        "held_out_tokens": windows.numel(),
        "unigram_entropy_nats": _rounded(_entropy(ids)),
        "held_out_loss_nats": _rounded(losses.mean()),
        "held_out_loss_nats_by_position": {
            f"{start}-{start + 128}": _rounded(losses[:, start : start + 128].mean())
            for start in range(0, WINDOW, 128)
        },
        "top_1_probability": _spread(log_p.max(-1).values.exp()),
        "entropy_nats": _spread(-(log_p.exp() * log_p).sum(-1)),
        "kl_nats_of_faults": _faults(model, windows, log_p),
        "distinct_of_64_greedy_tokens": _distinct(model, ids),
        "bytes": sum((folder / name).stat().st_size for name in FILES),
        "sha256": {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES
        },
    }


def _entropy(ids: Tensor) -> Tensor:
    counts = ids.bincount().double()
    share = counts[counts > 0] / len(ids)
    return -(share * share.log()).sum()


def _spread(values: Tensor) -> dict[str, float]:
    return {"mean": _rounded(values.mean())} | {
        f"p{percent}": _rounded(values.flatten().kthvalue(values.numel() * percent // 100).values)
        for percent in (1, 10, 50, 90, 99, 100)
    }


def _faults(model: PreTrainedModel, windows: Tensor, log_p: Tensor) -> dict[str, dict[str, float]]:
    """Return the divergence that each fault causes from some position on."""
    far = torch.ones(WINDOW, WINDOW, dtype=torch.bool)
    mask = far.tril() & far.triu(1 - SEEN_TOKENS)
    cut: list[Tensor] = []
    foreign: list[Tensor] = []
    for index, window in enumerate(windows[:12]):
        right = log_p[index, FROM_POSITION:]
        seen = _log_p(model, window[None], mask=mask[None, None])
        cut.append(_kl(right, seen[0, FROM_POSITION:]))
        foreign.append(_kl(right, _with_foreign_block(model, window, windows[index - 1])))
    return {
        f"context cut to {SEEN_TOKENS} tokens": _spread(torch.cat(cut)),
        f"{BLOCK_TOKENS} cached tokens of another sequence": _spread(torch.cat(foreign)),
    }


def _kl(right: Tensor, wrong: Tensor) -> Tensor:
    return (right.exp() * (right - wrong)).sum(-1)


def _with_foreign_block(model: PreTrainedModel, window: Tensor, other: Tensor) -> Tensor:
    """Return the tail's log-probabilities when one block of the cache is another sequence's."""
    ours, theirs = DynamicCache(config=model.config), DynamicCache(config=model.config)
    logits(model, window[None, :FROM_POSITION], cache=ours)
    logits(model, other[None, :FROM_POSITION], cache=theirs)
    block = slice(BLOCK_AT, BLOCK_AT + BLOCK_TOKENS)
    for layer, source in zip(_layers(ours), _layers(theirs), strict=True):
        layer.keys[:, :, block] = source.keys[:, :, block]
        layer.values[:, :, block] = source.values[:, :, block]
    return _log_p(model, window[None, FROM_POSITION:], cache=ours)[0]


def _layers(cache: DynamicCache) -> list[CachedLayer]:
    return cast("list[CachedLayer]", cache.layers)


def _distinct(model: PreTrainedModel, ids: Tensor) -> list[int]:
    """Return how many different tokens each greedy continuation has."""
    starts = torch.arange(GREEDY_PROMPTS) * (len(ids) // GREEDY_PROMPTS)
    rows = ids[starts[:, None] + torch.arange(PROMPT_TOKENS)]
    for _ in range(GREEDY_TOKENS):
        rows = torch.cat([rows, logits(model, rows)[:, -1:].argmax(-1)], dim=1)
    return [int(row[PROMPT_TOKENS:].bincount().count_nonzero()) for row in rows]


def _log_p(
    model: PreTrainedModel,
    ids: Tensor,
    *,
    mask: Tensor | None = None,
    cache: DynamicCache | None = None,
) -> Tensor:
    return logits(model, ids, mask=mask, cache=cache).log_softmax(-1)


def _rounded(value: Tensor) -> float:
    return round(value.item(), 4)
