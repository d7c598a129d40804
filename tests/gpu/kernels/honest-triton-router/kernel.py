import triton
import triton.language as tl


@triton.jit
def route(logits, weights, ids, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    experts = tl.arange(0, BLOCK)
    values = tl.load(
        logits + token * EXPERTS + experts, mask=experts < EXPERTS, other=float("-inf")
    )
    highest = tl.max(values, 0)
    places = tl.arange(0, 8)
    powers = tl.zeros([8], tl.float32)
    names = tl.zeros([8], tl.int32)
    for place in tl.static_range(8):
        best = tl.max(values, 0)
        name = tl.argmax(values, 0).to(tl.int32)
        powers = tl.where(places == place, tl.exp(best - highest), powers)
        names = tl.where(places == place, name, names)
        values = tl.where(experts == name, float("-inf"), values)
    tl.store(weights + token * 8 + places, powers / tl.sum(powers, 0))
    tl.store(ids + token * 8 + places, names)
