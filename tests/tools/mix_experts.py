"""Make a tiny Qwen3-MoE of a tiny dense Qwen3, without training: experts that know parts of it.

    python tests/tools/mix_experts.py --dense DIR --out DIR [--experts 16] [--asked 4] [--seed 0]

Each expert has a drawn half of the dense layer's neurons, at twice their weight, so that a few
experts together answer about what the dense layer does; the router is drawn. What a wrong router
or a lost expert changes is then as large as in a model that learnt to have experts.
"""

import argparse
import shutil
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3MoeConfig, Qwen3MoeForCausalLM

ROUTER_SPREAD = 0.1
KEPT = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def mix(dense_dir: Path, out: Path, *, experts: int = 16, asked: int = 4, seed: int = 0) -> Path:
    """Write the model folder and return it."""
    load = AutoModelForCausalLM.from_pretrained  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    dense = cast("PreTrainedModel", load(dense_dir, dtype=torch.float32))
    told = cast("dict[str, object]", dense.config.to_dict())
    width = cast("int", told["intermediate_size"])
    told |= {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "moe_intermediate_size": width // 2,
        "num_experts": experts,
        "num_experts_per_tok": asked,
        "norm_topk_prob": True,
    }
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig.from_dict(told))  # pyright: ignore[reportUnknownMemberType]
    drawn = torch.Generator().manual_seed(seed)
    weights = {name: value.detach() for name, value in dense.state_dict().items()}
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(_mixed(name, value, weights, drawn))
    model.bfloat16().save_pretrained(out)  # pyright: ignore[reportUnknownMemberType]
    for name in KEPT:
        if (dense_dir / name).is_file():
            shutil.copy(dense_dir / name, out / name)
    return out


def _mixed(name: str, value: Tensor, dense: dict[str, Tensor], drawn: torch.Generator) -> Tensor:
    """Return one weight of the model with experts."""
    if name in dense:
        return dense[name]
    base, _, part = name.partition(".mlp.")
    if part == "gate.weight":
        return ROUTER_SPREAD * torch.randn(value.shape, generator=drawn)
    gate, up, down = (dense[f"{base}.mlp.{each}_proj.weight"] for each in ("gate", "up", "down"))
    seed = sum(map(ord, base))  # both weights of an expert must have the same neurons
    whole = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(len(gate), generator=whole)[: len(gate) // 2] for _ in value]
    if part == "experts.gate_up_proj":
        return torch.stack([torch.cat((gate[each], up[each])) for each in rows])
    return torch.stack([2 * down[:, each] for each in rows])


def main() -> None:
    """Write the model folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--dense", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--experts", type=int, default=16)
    parser.add_argument("--asked", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    mix(told.dense, told.out, experts=told.experts, asked=told.asked, seed=told.seed)


if __name__ == "__main__":
    main()
