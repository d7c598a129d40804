"""SGLang's own server, as the package sglang brings it."""

from inferproof.serving.engines.base import Engine, Options, Plan, Wish, started_in

_ATTENTION = ("", "flashinfer", "fa3", "triton", "torch_native", "intel_amx")


def plan(wish: Wish) -> Plan:
    """Return how a replica starts, by the Python of `.venv/sglang` if the target has one.

    Options: `dtype`, `max_len`, `max_running`, `chunked_prefill` (tokens, -1 for none),
    `memory` (share of the device's), `attention` (backend; empty: its own choice), `graphs`,
    `radix_cache`, `schedule`, `device` (`cuda`, `cpu`; empty: what it finds).
    """
    options = Options(wish)
    dtype = options.one_of("dtype", ("auto", "bfloat16", "float16", "float32"))
    schedule = options.one_of("schedule", ("fcfs", "lpm", "random", "dfs-weight"))
    attention = options.one_of("attention", _ATTENTION)
    device = options.one_of("device", ("", "cuda", "cpu"))
    memory = options.get("memory", 0.0)
    given = {
        "--context-length": _number(options.get("max_len", 2048)),
        "--max-running-requests": _number(options.get("max_running", 0)),
        "--chunked-prefill-size": _number(options.get("chunked_prefill", 0)),
        "--mem-fraction-static": f"{memory:g}" if memory else "",
        "--attention-backend": attention,
        "--device": device,
    }
    left_out = {
        "--disable-cuda-graph": not options.get("graphs", True),
        "--disable-radix-cache": not options.get("radix_cache", True),
    }
    options.done()
    words = [word for name, value in given.items() if value for word in (name, value)]
    return Plan(
        engine="sglang",
        supervised=True,
        argv=(
            *("{python:sglang}", "-m", "sglang.launch_server", "--model-path", "{model}"),
            *("--host", "127.0.0.1", "--port", "{port}", "--dtype", dtype),
            *("--schedule-policy", schedule, *words),
            *(name for name, on in left_out.items() if on),
        ),
        start_s=started_in(wish),
    )


def _number(value: int) -> str:
    """Return a number that is given; 0 is not to give it."""
    return str(value) if value else ""


ENGINE = Engine(name="sglang", plan=plan)
