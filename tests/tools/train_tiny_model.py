"""Train the tiny Qwen3 that the demo and the tests judge engines with.

    python tests/tools/train_tiny_model.py --out DIR [--steps N] [--seed S] [--arch qwen3_moe]

Writes an ordinary model folder (config, weights in bf16, tokenizer), `eval.txt` with text that
was kept back, and `train_report.json`. With `--checkpoint FILE` a killed run goes on from there.
"""

import argparse
import json
import math
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from tiny_corpus import corpus
from tiny_model import END_OF_TEXT, build_model, build_tokenizer, encode, logits, save
from tiny_report import measured
from torch import Tensor

TOKENS_A_STEP = 4096
TRAIN_CHARS = 14_000_000
HELD_OUT_CHARS = 97_000
REPORT_EVERY_STEPS = 25
CHECKPOINT_EVERY_STEPS = 50
MATRIX_LEARNING_RATE = 0.01
OTHER_LEARNING_RATE = 0.002
PHASES = ((0.6, 256), (0.85, 512), (1.0, 1024))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asked for."""

    out: Path
    steps: int
    seed: int
    arch: str
    checkpoint: Path | None


def main() -> None:
    """Write the model folder."""
    options = _options()
    began_at_s = time.monotonic()
    torch.default_generator.manual_seed(options.seed)
    texts = corpus(seed=options.seed, train_chars=TRAIN_CHARS, held_out_chars=HELD_OUT_CHARS)
    tokenizer = build_tokenizer(texts.train)
    ids = encode(tokenizer, END_OF_TEXT.join(texts.train))
    print(f"{len(texts.train)} documents, {len(ids)} tokens to learn from", flush=True)
    model = build_model(options.arch)
    _train(model, ids, options)
    save(options.out, model=model, tokenizer=tokenizer)
    held_out = END_OF_TEXT.join(texts.held_out)
    (options.out / "eval.txt").write_text(held_out, encoding="utf-8")
    report = _provenance(options) | measured(options.out)
    report["seconds_of_last_start"] = round(time.monotonic() - began_at_s)
    text = json.dumps(report, indent=2) + "\n"
    (options.out / "train_report.json").write_text(text, encoding="utf-8")
    print(text)


def _options() -> Options:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--arch", choices=["qwen3", "qwen3_moe"], default="qwen3")
    parser.add_argument("--checkpoint", type=Path)
    return Options(**vars(parser.parse_args()))


def _provenance(options: Options) -> dict[str, object]:
    return {
        "architecture": options.arch,
        "steps": options.steps,
        "seed": options.seed,
        "tokens_seen": options.steps * TOKENS_A_STEP,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _train(model: transformers.PreTrainedModel, ids: Tensor, options: Options) -> None:
    optimizers = _optimizers(model)
    first = _resume(model, optimizers, options.checkpoint)
    began_at_s, mean_loss = time.monotonic(), math.nan
    for step in range(first, options.steps):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * _rate(step, options.steps)
        loss = _step(model, optimizers, _batch(ids, step, options))
        mean_loss = loss if math.isnan(mean_loss) else 0.95 * mean_loss + 0.05 * loss
        if step % REPORT_EVERY_STEPS == 0 or step == options.steps - 1:
            seconds = time.monotonic() - began_at_s
            print(f"step {step} loss {loss:.3f} mean {mean_loss:.3f} {seconds:.0f} s", flush=True)
        if options.checkpoint and (step + 1) % CHECKPOINT_EVERY_STEPS == 0:
            state = [model.state_dict(), *(each.state_dict() for each in optimizers)]
            torch.save((step + 1, state), options.checkpoint)
    model.eval()


def _optimizers(model: transformers.PreTrainedModel) -> list[torch.optim.Optimizer]:
    named = list(model.named_parameters())
    matrices = [value for name, value in named if value.ndim == 2 and "embed" not in name]
    others = [value for name, value in named if value.ndim != 2 or "embed" in name]
    muon = torch.optim.Muon(matrices, lr=MATRIX_LEARNING_RATE, weight_decay=0.01)
    adam = torch.optim.AdamW(others, lr=OTHER_LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    for optimizer in (muon, adam):
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return [muon, adam]


def _rate(step: int, steps: int) -> float:
    """Return the share of the peak: up quickly, level, and down to nothing in the last 40 %."""
    return min(1.0, (step + 1) / 60, max(0.02, (steps - step) / (0.4 * steps)))


def _batch(ids: Tensor, step: int, options: Options) -> Tensor:
    """Return windows of the text; which ones follows from seed and step alone."""
    length = next(length for until, length in PHASES if step < until * options.steps)
    generator = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
    starts = torch.randint(len(ids) - length, (TOKENS_A_STEP // length,), generator=generator)
    return ids[starts[:, None] + torch.arange(length)]


def _step(
    model: transformers.PreTrainedModel, optimizers: list[torch.optim.Optimizer], batch: Tensor
) -> float:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = logits(model, batch)[:, :-1].float()
    loss = torch.nn.functional.cross_entropy(found.flatten(0, 1), batch[:, 1:].flatten())
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def _resume(
    model: torch.nn.Module, optimizers: list[torch.optim.Optimizer], checkpoint: Path | None
) -> int:
    """Return the first step to take: 0, or the one after the checkpoint."""
    if checkpoint is None or not checkpoint.is_file():
        return 0
    step, (weights, *states) = torch.load(checkpoint)
    model.load_state_dict(weights)
    for optimizer, state in zip(optimizers, states, strict=True):
        optimizer.load_state_dict(state)
    return step


if __name__ == "__main__":
    main()
