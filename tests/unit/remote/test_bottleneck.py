from inferproof_remote.bottleneck import CallCost, Speeds, bottleneck

MACHINE = Speeds(
    memory_bytes_per_s=10e9,
    cache_bytes_per_s=100e9,
    flops_per_s=100e9,
    last_level_cache_bytes=32_000_000,
)


def test_a_large_stream_is_bound_by_memory():
    said = bottleneck(CallCost(seconds=0.02, bytes=1e8, flops=1e6), MACHINE)
    assert said == (
        "memory: moves 5.0 GB/s, 50 % of the 10.0 GB/s that this machine's memory reaches"
    )


def test_a_working_set_that_fits_is_held_against_the_cache():
    said = bottleneck(CallCost(seconds=2e-4, bytes=1e7, flops=1e6), MACHINE)
    assert said.startswith("memory: moves 50.0 GB/s, 50 % of the 100.0 GB/s")
    assert "cache" in said


def test_much_arithmetic_is_bound_by_compute():
    said = bottleneck(CallCost(seconds=0.1, bytes=1e6, flops=1e9), MACHINE)
    assert said == "compute: does 10.0 GFLOP/s, 10 % of the 100.0 GFLOP/s that this machine reaches"


def test_a_tiny_call_is_bound_by_overhead():
    said = bottleneck(CallCost(seconds=2e-5, bytes=1e4, flops=1e3), MACHINE)
    assert said.startswith("overhead: a call takes 20.0 us, the work itself needs at least 0.1 us")


def test_without_ceilings_nothing_is_claimed():
    unknown = Speeds(
        memory_bytes_per_s=None,
        cache_bytes_per_s=None,
        flops_per_s=1e9,
        last_level_cache_bytes=None,
    )
    said = bottleneck(CallCost(seconds=1.0, bytes=1e9, flops=1e9), unknown)
    assert said.startswith("not known")
