"""Known faults of engines: switches by which a plain model is broken in one way each.

Without one the model computes what transformers does. With one it is a mutant, which the fidelity
gate must refuse before it may pass anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from inferproof_remote.serving.quantised import Way

When: TypeAlias = Literal["always", "prefill", "decode", "batch", "reuse"]
_WINDOW = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """How the model computes; the defaults are right.

    `expert_dropped` is the rank of the expert that does not answer, from 1; `experts_less` is how
    many fewer are asked.
    """

    skips_qk_norm: bool = False
    kv_head_modulo: bool = False
    leaks: int = 0
    eps: float | None = None
    gelu: bool = False
    swaps_gate: bool = False
    theta_factor: float = 1.0
    rope_pairs: bool = False
    window: int | None = None
    wrong_slots: Literal["", "once", "each_block", "zero", "foreign"] = ""
    first_unseen: bool = False
    skips_layer: bool = False
    skips_final_norm: bool = False
    logit_factor: float = 1.0
    attention_factor: float = 1.0
    shift: int = 0
    decode_shift: int = 0
    second_best_every: int = 0
    weights: Way = "none"
    coarse_sums: bool = False
    expert_dropped: int = 0
    experts_less: int = 0
    experts_swapped: bool = False
    router_unnormalised: bool = False


HONEST = Switches()
FAULTS: Mapping[str, Switches] = {
    "no_qk_norm": Switches(skips_qk_norm=True),
    "gqa_modulo": Switches(kv_head_modulo=True),
    "leak_one": Switches(leaks=1),
    "eps_1e-3": Switches(eps=1e-3),
    "eps_1e-5": Switches(eps=1e-5),
    "gelu_for_silu": Switches(gelu=True),
    "gate_swapped": Switches(swaps_gate=True),
    "rope_theta": Switches(theta_factor=0.01),
    "rope_pairs": Switches(rope_pairs=True),
    "cut_128": Switches(window=_WINDOW),
    "kv_slot_once": Switches(wrong_slots="once"),
    "kv_slot_each_block": Switches(wrong_slots="each_block"),
    "kv_block_of_another": Switches(wrong_slots="foreign"),
    "kv_zero_slot": Switches(wrong_slots="zero"),
    "first_token_unseen": Switches(first_unseen=True),
    "layer_skipped": Switches(skips_layer=True),
    "no_final_norm": Switches(skips_final_norm=True),
    "logits_scaled": Switches(logit_factor=1.05),
    "attention_scale": Switches(attention_factor=1.02),
    "decode_plus_one": Switches(decode_shift=1),
    "second_best": Switches(second_best_every=8),
    "bf16_accumulation": Switches(coarse_sums=True),
    "fp8_weights": Switches(weights="fp8_per_channel"),
    "int8_weights": Switches(weights="int8_per_channel"),
    "int6_weights": Switches(weights="int6_per_channel"),
    "int4_weights": Switches(weights="int4_per_channel"),
    "nvfp4_weights": Switches(weights="nvfp4"),
    "expert_last_dropped": Switches(expert_dropped=-1),
    "expert_first_dropped": Switches(expert_dropped=1),
    "experts_less_one": Switches(experts_less=1),
    "experts_swapped": Switches(experts_swapped=True),
    "router_unnormalised": Switches(router_unnormalised=True),
}
"""Each fault of which engines are known to be capable, by name; those of experts need a model that
has some. Which of them a precision's noise hides, a model's list of mutants says."""
HARMLESS: Mapping[str, Switches] = {"positions_plus_one": Switches(shift=1)}
"""What looks like a fault and is none: positions are relative to each other."""
