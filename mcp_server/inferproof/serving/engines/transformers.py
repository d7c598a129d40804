"""The embedded engine: a small OpenAI-compatible server of ours around transformers."""

from inferproof.serving.engines.base import Engine, Options, Plan, Wish, own_engine, started_in


def plan(wish: Wish) -> Plan:
    """Return how a replica starts. Options: `dtype`, `max_batch`."""
    options = Options(wish)
    dtype = options.one_of("dtype", ("float32", "bfloat16"))
    max_batch = options.get("max_batch", 64)
    options.done()
    return Plan(
        engine="transformers",
        supervised=True,
        argv=own_engine("engine", "--dtype", dtype, "--max-batch", str(max_batch)),
        start_s=started_in(wish),
        trusted=True,
    )


ENGINE = Engine(name="transformers", plan=plan)
