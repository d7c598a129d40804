"""The tiny model's shape and tokenizer, and the folder that both are saved in."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    GenerationConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

END_OF_TEXT, START_OF_TURN, END_OF_TURN = SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_OF_TEXT_ID, END_OF_TURN_ID = 0, 2
VOCABULARY = 2048
CONTEXT = 4096
ROPE_THETA = 1_000_000.0
WIDTH = 128
HEAD = 32
HALF = HEAD // 2
FAR = [index for index in range(HEAD) if index % HALF >= 7]  # planes that hardly turn in 500 tokens
INITIAL_SPREAD = 0.02
EMBEDDING_SPREAD = 0.08
SHAPE: dict[str, object] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": HEAD,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,
    "initializer_range": INITIAL_SPREAD,
    "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": END_OF_TURN_ID,
    "pad_token_id": END_OF_TEXT_ID,
}
EXPERTS: dict[str, object] = {
    "moe_intermediate_size": 64,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "norm_topk_prob": True,
    "router_aux_loss_coef": 0.01,
}
# Qwen's own: single digits, and words with the blank or sign before them.
WORD = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n'"
    " + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TOKENIZER_CONFIG = {
    "tokenizer_class": "Qwen2Tokenizer",
    "bos_token": None,
    "eos_token": END_OF_TURN,
    "pad_token": END_OF_TEXT,
    "unk_token": None,
    "add_prefix_space": False,
    "clean_up_tokenization_spaces": False,
    "model_max_length": CONTEXT,
    "chat_template": CHAT_TEMPLATE,
    "added_tokens_decoder": {
        str(index): {
            "content": content,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for index, content in enumerate(SPECIAL)
    },
}


def build_tokenizer(documents: Sequence[str]) -> Tokenizer:
    """Return a byte-level BPE tokenizer made from the documents; special tokens come first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_without_special(documents), trainer)
    return tokenizer


def _without_special(documents: Sequence[str]) -> list[str]:
    """Return the documents cut at special tokens, which the tokenizer must not take for text."""
    pieces = list(documents)
    for token in SPECIAL:
        pieces = [piece for text in pieces for piece in text.split(token)]
    return pieces


def encode(tokenizer: Tokenizer, text: str) -> Tensor:
    """Return the text's token ids."""
    return torch.tensor(tokenizer.encode(text).ids)


def build_model(arch: str) -> PreTrainedModel:
    """Return an untrained model: `qwen3`, or `qwen3_moe` with 16 experts of which 4 answer."""
    if arch == "qwen3":
        config = Qwen3Config.from_dict(SHAPE)  # pyright: ignore[reportUnknownMemberType]
        model = Qwen3ForCausalLM(config)
    else:
        config = Qwen3MoeConfig.from_dict(SHAPE | EXPERTS)  # pyright: ignore[reportUnknownMemberType]
        model = Qwen3MoeForCausalLM(config)
    _begin_with_recall(model)
    return model


@torch.no_grad()
def _begin_with_recall(model: PreTrainedModel) -> None:
    """Let one head of layer 0 begin by telling the token before, one of layer 1 by matching it.

    What followed a token earlier is then found from the first step on; without this beginning
    recall takes far more text to appear than a processor reads in minutes.
    """
    for name, value in model.named_parameters():
        if "o_proj" in name or "down_proj" in name:
            value.zero_()
    embedding = model.get_parameter("model.embed_tokens.weight")
    embedding.normal_(std=EMBEDDING_SPREAD)[:, 0] = 5 * EMBEDDING_SPREAD
    basis = torch.zeros(WIDTH, WIDTH - 1)
    basis[1:] = torch.nn.init.orthogonal_(torch.empty(WIDTH - 1, WIDTH - 1))
    far = len(FAR)
    before, content, copied = basis[:, :far], basis[:, far : 2 * far], basis[:, far : far + HEAD]
    told = _first_head(model, layer=0)
    _look_back(told)
    told.value[:far] = content.T
    told.output[:, :far] = 5 * EMBEDDING_SPREAD * before
    matched = _first_head(model, layer=1)
    matched.key.zero_()[FAR] = before.T
    matched.query.zero_()[FAR] = content.T
    matched.value.copy_(copied.T)
    matched.output.copy_(copied)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The weights of one head: views, so that what is written there is the model's."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


def _first_head(model: PreTrainedModel, *, layer: int) -> Head:
    """Return the first head of a layer, its logits made as sharp as recall needs."""
    name = f"model.layers.{layer}.self_attn"
    for norm in ("q_norm", "k_norm"):
        model.get_parameter(f"{name}.{norm}.weight").fill_(2.0)
    return Head(
        query=model.get_parameter(f"{name}.q_proj.weight")[:HEAD],
        key=model.get_parameter(f"{name}.k_proj.weight")[:HEAD],
        value=model.get_parameter(f"{name}.v_proj.weight")[:HEAD],
        output=model.get_parameter(f"{name}.o_proj.weight")[:, :HEAD],
    )


def _look_back(head: Head) -> None:
    """Turn the head's queries one position back, in the planes that turn fastest."""
    head.key.zero_()
    head.query.zero_()
    for index, share in enumerate((0.45, 0.35, 0.2)):
        angle, size = ROPE_THETA ** (-index / HALF), math.sqrt(share)
        head.key[index, 0] = size
        head.query[index, 0] = size * math.cos(angle)
        head.query[index + HALF, 0] = -size * math.sin(angle)


def load(folder: Path) -> PreTrainedModel:
    """Return the model of a folder, in float32 and ready to answer."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)  # pyright: ignore[reportUnknownMemberType]
    return cast("PreTrainedModel", model).eval()


def logits(
    model: PreTrainedModel,
    ids: Tensor,
    *,
    mask: Tensor | None = None,
    cache: DynamicCache | None = None,
) -> Tensor:
    """Return the model's logits for each position; what is in the cache comes before them."""
    answer = cast(
        "CausalLMOutputWithPast",
        model(input_ids=ids, attention_mask=mask, cache=cache, use_cache=cache is not None),
    )
    assert answer.logits is not None
    return answer.logits


def save(folder: Path, *, model: PreTrainedModel, tokenizer: Tokenizer) -> None:
    """Write config, weights in bf16 and tokenizer, as any engine reads them."""
    model.bfloat16()
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=[END_OF_TURN_ID, END_OF_TEXT_ID], pad_token_id=END_OF_TEXT_ID
    )
    model.save_pretrained(folder)  # pyright: ignore[reportUnknownMemberType]
    (folder / "model.safetensors").chmod(0o644)
    config = json.loads((folder / "config.json").read_text())
    _write(folder / "config.json", config | {"rope_theta": ROPE_THETA})  # older readers look there
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(folder / "tokenizer_config.json", TOKENIZER_CONFIG)


def _write(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
