"""Convert a Qwen3 model folder (bf16, tied embeddings) to the one file that llama.cpp reads.

    python tests/tools/to_gguf.py FOLDER FILE

Needs the standard library alone. Matrices stay bf16 as they are; vectors become float32, as
llama.cpp asks. Heads keep their order: its rotation for Qwen3 is the one of transformers.
"""

import json
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TypedDict, cast

ALIGNMENT_BYTES = 32
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
TENSOR_F32, TENSOR_BF16, FILE_OF_BF16 = 0, 30, 32
NORMAL_TOKEN, CONTROL_TOKEN = 1, 3
OUTER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


class Config(TypedDict):
    """The parts of `config.json` that shape the model."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    eos_token_id: int
    pad_token_id: int


class StoredTensor(TypedDict):
    """One entry of a safetensors header."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


class AddedToken(TypedDict):
    """A token that the tokenizer takes whole."""

    id: int
    special: bool


class Bpe(TypedDict):
    """The vocabulary of `tokenizer.json` and the pairs that are merged, in order."""

    vocab: dict[str, int]
    merges: list[list[str]]


class TokenizerFile(TypedDict):
    """The parts of `tokenizer.json` that are carried over."""

    model: Bpe
    added_tokens: list[AddedToken]


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """A tensor as it stands in the file."""

    name: str
    shape: tuple[int, ...]
    kind: int
    data: bytes


def to_gguf(folder: Path, file: Path) -> None:
    """Write the file; its greedy answers are those of the folder."""
    values = [*_of_config(folder), *_of_tokenizer(folder)]
    tensors = list(_tensors(folder / "model.safetensors"))
    infos, offset = b"", 0
    for tensor in tensors:
        dims = tensor.shape[::-1]
        infos += _string(tensor.name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        infos += struct.pack("<IQ", tensor.kind, offset)
        offset += len(_padded(tensor.data))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + b"".join(values) + infos
    file.write_bytes(_padded(head) + b"".join(_padded(tensor.data) for tensor in tensors))


def _of_config(folder: Path) -> list[bytes]:
    config = cast("Config", json.loads((folder / "config.json").read_text()))
    numbers = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
    }
    return [
        _text("general.architecture", "qwen3"),
        _text("general.name", folder.name),
        _number("general.file_type", FILE_OF_BF16),
        *(_number(f"qwen3.{name}", value) for name, value in numbers.items()),
        _real("qwen3.attention.layer_norm_rms_epsilon", config["rms_norm_eps"]),
        _real("qwen3.rope.freq_base", config["rope_theta"]),
        _number("tokenizer.ggml.eos_token_id", config["eos_token_id"]),
        _number("tokenizer.ggml.padding_token_id", config["pad_token_id"]),
    ]


def _of_tokenizer(folder: Path) -> list[bytes]:
    found = cast("TokenizerFile", json.loads((folder / "tokenizer.json").read_text("utf-8")))
    config = cast("dict[str, str]", json.loads((folder / "tokenizer_config.json").read_text()))
    vocabulary = found["model"]["vocab"]
    special = {token["id"] for token in found["added_tokens"] if token["special"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    kinds = [CONTROL_TOKEN if vocabulary[token] in special else NORMAL_TOKEN for token in tokens]
    return [
        _text("tokenizer.ggml.model", "gpt2"),
        _text("tokenizer.ggml.pre", "qwen2"),
        _texts("tokenizer.ggml.tokens", tokens),
        _texts("tokenizer.ggml.merges", [" ".join(pair) for pair in found["model"]["merges"]]),
        _string("tokenizer.ggml.token_type")
        + struct.pack(f"<IIQ{len(kinds)}i", ARRAY, I32, len(kinds), *kinds),
        _string("tokenizer.ggml.add_bos_token") + struct.pack("<I?", BOOL, False),
        _text("tokenizer.chat_template", config["chat_template"]),
    ]


def _tensors(file: Path) -> Iterator[GgufTensor]:
    stored = file.read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", stored)
    data = memoryview(stored)[8 + header_bytes :]
    header = cast("dict[str, StoredTensor]", json.loads(stored[8 : 8 + header_bytes]))
    for name, found in header.items():
        if name != "__metadata__":
            start, end = found["data_offsets"]
            yield _tensor(name, found, bytes(data[start:end]))


def _tensor(name: str, found: StoredTensor, data: bytes) -> GgufTensor:
    shape = tuple(found["shape"])
    if found["dtype"] != "BF16" or len(data) != 2 * prod(shape):
        raise SystemExit(f"{name} is {found['dtype']}; save the model in bf16 and try again")
    if len(shape) == 1:
        widened = b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))
        return GgufTensor(name=_renamed(name), shape=shape, kind=TENSOR_F32, data=widened)
    return GgufTensor(name=_renamed(name), shape=shape, kind=TENSOR_BF16, data=data)


def _renamed(name: str) -> str:
    if name in OUTER_NAMES:
        return OUTER_NAMES[name]
    layer, _, part = name.removeprefix("model.layers.").removesuffix(".weight").partition(".")
    return f"blk.{layer}.{LAYER_NAMES[part]}.weight"


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _text(key: str, value: str) -> bytes:
    return _string(key) + struct.pack("<I", STRING) + _string(value)


def _texts(key: str, values: Sequence[str]) -> bytes:
    head = _string(key) + struct.pack("<IIQ", ARRAY, STRING, len(values))
    return head + b"".join(map(_string, values))


def _number(key: str, value: int) -> bytes:
    return _string(key) + struct.pack("<II", U32, value)


def _real(key: str, value: float) -> bytes:
    return _string(key) + struct.pack("<If", F32, value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT_BYTES)


if __name__ == "__main__":
    to_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
