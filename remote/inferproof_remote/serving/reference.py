"""The reference: the model in transformers, in this process, in float32 and at its I/O precision.

The same weights serve both. Where an engine quantises its weights, the reference is *matched*: its
weights are quantised and dequantised in the documented way, so that what is left to judge is how
the engine computes, not what it rounded.
"""

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as hf_logging

from inferproof_remote.serving.quantised import Quantisation, quantise_model
from inferproof_remote.serving.vocabulary import Tokenizer, Vocabulary

Precision: TypeAlias = Literal["float32", "bfloat16"]
_DTYPES: Mapping[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_TOKENS_AT_ONCE = 4096
_READ_BYTES = 1 << 20
_NO_LIMIT = 1 << 20
_KEPT_BYTES = 512 << 20
_READINGS = 32
_MOVED = 8 * 2.0**-8


class _Kept:
    """Rows of token sequences that were computed before; the longest unused go first.

    Sequences are found by their very tokens, in this process alone: no candidate can write here.
    """

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()
        self._bytes = 0

    def find(self, ids: Sequence[int]) -> Tensor | None:
        """Return the rows of a sequence that is kept."""
        key = tuple(ids)
        if key in self._rows:
            self._rows.move_to_end(key)
        return self._rows.get(key)

    def keep(self, ids: Sequence[int], rows: Tensor) -> None:
        """Keep the rows of a new sequence, unless they alone are too many."""
        if rows.nbytes > _KEPT_BYTES or tuple(ids) in self._rows:
            return
        self._rows[tuple(ids)] = rows
        self._bytes += rows.nbytes
        while self._bytes > _KEPT_BYTES:
            self._bytes -= self._rows.popitem(last=False)[1].nbytes


class Reference:
    """The model at one precision: one forward pass gives the log-probabilities of a sequence.

    What was computed once is kept: an arm or a mutant that gets prompts which were read before
    costs only its own texts. `forwards` counts the tokens that were really computed.
    """

    def __init__(
        self, model_dir: Path, precision: Precision, quantisation: Quantisation = "none"
    ) -> None:
        model = _load(model_dir)
        if quantisation != "none":
            quantise_model(model, quantisation)
        self._model = cast("PreTrainedModel", model.to(_DTYPES[precision]).eval())
        self._kept = _Kept()
        self.forwards = 0

    def logprobs(self, ids: Sequence[int]) -> Tensor:
        """Return rows [tokens, vocabulary] in float32: row i is about token i + 1."""
        return next(self.many([ids]))

    def many(self, sequences: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        """Yield the rows of each sequence, in order; equal lengths share a forward pass."""
        found = map(self._kept.find, sequences)
        done = {index: rows for index, rows in enumerate(found) if rows is not None}
        new = [index for index in range(len(sequences)) if index not in done]
        batches = self._batches(sequences, new)
        for index in range(len(sequences)):
            while index not in done:
                batch = next(batches)
                rows = self._forward([sequences[each] for each in batch])
                done |= dict(zip(batch, rows, strict=True))
            self._kept.keep(sequences[index], done[index])
            yield done.pop(index)

    def _batches(
        self, sequences: Sequence[Sequence[int]], members: Sequence[int]
    ) -> Iterator[list[int]]:
        alike: dict[int, list[int]] = defaultdict(list)
        for index in members:
            alike[len(sequences[index])].append(index)
        for length, equal in alike.items():
            step = max(1, _TOKENS_AT_ONCE // length)
            for start in range(0, len(equal), step):
                yield equal[start : start + step]

    def shaken(self, ids: Sequence[int]) -> Iterator[Tensor]:
        """Yield what follows `ids` [vocabulary], each time by a pass that rounds otherwise.

        Attention rounds its scores, as plain implementations do, and what every layer gets is moved
        at random by up to a few steps of bfloat16: about twice what its honest roundings do.
        """
        drawn = torch.Generator().manual_seed(len(ids))
        at_once = max(1, min(_READINGS, _TOKENS_AT_ONCE // len(ids)))
        for start in range(0, _READINGS, at_once):
            count = min(at_once, _READINGS - start)
            yield from self._shaken([ids] * count, drawn)

    @torch.inference_mode()
    def _shaken(self, batch: Sequence[Sequence[int]], drawn: torch.Generator) -> Tensor:
        with _plain_attention(self._model), _moved(self._model, drawn):
            logits: Tensor = self._model(
                torch.tensor(batch), use_cache=False, logits_to_keep=1
            ).logits
        return logits[:, -1].float().log_softmax(-1)

    @torch.inference_mode()
    def _forward(self, batch: Sequence[Sequence[int]]) -> Tensor:
        self.forwards += sum(map(len, batch))
        logits: Tensor = self._model(torch.tensor(batch), use_cache=False).logits
        return logits.float().log_softmax(-1)


@contextmanager
def _plain_attention(model: PreTrainedModel) -> Generator[None]:
    """Have attention round its scores meanwhile."""
    usual = cast("str", model.config._attn_implementation)  # pyright: ignore[reportPrivateUsage]
    choose = cast("Callable[[str], None]", model.set_attn_implementation)  # pyright: ignore[reportUnknownMemberType]
    choose("eager")
    try:
        yield
    finally:
        choose(usual)


@contextmanager
def _moved(model: nn.Module, drawn: torch.Generator) -> Generator[None]:
    """Have every layer get what it gets moved at random by a few steps of bfloat16 meanwhile."""

    def move(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden = given[0]
        by = 1 + _MOVED * (2 * torch.rand(hidden.shape, generator=drawn) - 1)
        return ((hidden * by).to(hidden.dtype), *given[1:])

    lists = (each for each in model.modules() if isinstance(each, nn.ModuleList))
    hooks = [layer.register_forward_pre_hook(move) for layers in lists for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True, slots=True)
class Yardsticks:
    """What an engine is held against: the truth, the trusted path's error, the vocabulary."""

    truth: Reference
    floor: Reference
    vocabulary: Vocabulary


def load_yardsticks(model_dir: Path, quantisation: Quantisation, threads: int) -> Yardsticks:
    """Return both precisions of the model in `model_dir`, from the same weights."""
    torch.set_num_threads(threads)
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    return Yardsticks(
        truth=Reference(model_dir, "float32", quantisation),
        floor=Reference(model_dir, "bfloat16", quantisation),
        vocabulary=load_vocabulary(model_dir),
    )


def load_vocabulary(model_dir: Path) -> Vocabulary:
    """Return the model's tokenizer as a vocabulary."""
    load = AutoTokenizer.from_pretrained  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return Vocabulary(cast("Tokenizer", load(model_dir, local_files_only=True)))


def _load(model_dir: Path) -> nn.Module:
    load = AutoModelForCausalLM.from_pretrained  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return cast("nn.Module", load(model_dir, dtype=torch.float32, local_files_only=True))


def context_tokens(model_dir: Path) -> int:
    """Return the most tokens that the model takes, as its configuration says; else a great many."""
    load = AutoConfig.from_pretrained  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    config = cast("object", load(model_dir, local_files_only=True))
    said: object = getattr(config, "max_position_embeddings", None)
    return said if isinstance(said, int) else _NO_LIMIT


def model_digest(model_dir: Path) -> str:
    """Return the SHA-256 over names and contents of all files of the model, in order."""
    whole = hashlib.sha256()
    for path in sorted(each for each in model_dir.rglob("*") if each.is_file()):
        one = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                one.update(block)
        whole.update(f"{path.relative_to(model_dir)}\0{one.hexdigest()}\n".encode())
    return whole.hexdigest()
