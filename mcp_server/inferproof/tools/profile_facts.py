"""A profile of device code in a few lines: bottleneck with its proof, roofline, levers, change."""

from collections.abc import Iterable

from inferproof.core.evidence import ProfileFacts
from inferproof.core.profile_facts import CountedLaunch, DeviceProfile, Roofline
from inferproof.tools.results import Fact, clip

_COUNTERS = {
    "dram_pct": "DRAM {:.0f} %",
    "l2_pct": "L2 {:.0f} %",
    "l1_pct": "L1 {:.0f} %",
    "sm_pct": "multiprocessors {:.0f} %",
    "tensor_pct": "tensor pipes {:.1f} %",
    "occupancy_pct": "warps active {:.0f} %",
    "registers": "{:.0f} registers",
    "shared_bytes": "{:.0f} bytes shared",
    "waves": "{:.2f} waves",
}
_WAITS = 3


def device_facts(device: DeviceProfile) -> Iterable[Fact]:
    """Return what bounds the hottest launch and why, and how far the call is from the roofline."""
    found = device.bottleneck
    yield Fact(name="device", value=clip(device.name, 80))
    yield Fact(name="profiler", value=clip(device.tool or "none", 80))
    yield Fact(name="hottest_kernel", value=clip(found.kernel, 80))
    yield from (Fact(name="proof", value=clip(each, 300)) for each in found.proof)
    yield from (Fact(name="lever", value=each) for each in found.levers)
    if device.roofline is not None:
        yield from _roofline(device.roofline)
    if device.floor_s is not None:
        yield Fact(name="launches", value=device.launches)
        yield Fact(name="launches_alone", value=round(device.floor_s * 1e6, 3), unit="us")


def launch_rows(device: DeviceProfile) -> Iterable[str]:
    """Return one line of counters for each hot launch; `not found` where there is none."""
    for each in device.kernels:
        yield f"{each.share:.1%} launch {each.launch} {clip(each.kernel, 80)}: {_line(each)}"


def changes(now: ProfileFacts, before: ProfileFacts) -> Iterable[Fact]:
    """Return what changed since the parent's last profile, if both are of one shape."""
    if now.dims != before.dims:
        yield Fact(name="parent", value="its last profile is of another shape")
        return
    if now.seconds_per_call and before.seconds_per_call:
        was, is_now = before.seconds_per_call, now.seconds_per_call
        said = f"{was * 1e6:.2f} to {is_now * 1e6:.2f} us ({was / is_now:.3f} x)"
        yield Fact(name="parent time_per_call", value=said)
    if now.device is None or before.device is None:
        return
    bounds = f"{before.device.bottleneck.name} to {now.device.bottleneck.name}"
    yield Fact(name="parent bottleneck", value=bounds)
    if now.device.kernels and before.device.kernels:
        said = _moved(before.device.kernels[0], now.device.kernels[0])
        yield Fact(name="parent counters", value=said)


def _roofline(stands: Roofline) -> Iterable[Fact]:
    measured = f"{stands.share:.0%} of the measured {stands.bound} ceiling"
    yield Fact(name="roofline", value=f"{measured}: at least {stands.least_s * 1e6:.2f} us")
    if stands.datasheet_share is None:
        told = "this chip is not in our table"
    else:
        told = f"{stands.datasheet_share:.0%} of the datasheet"
    yield Fact(name="datasheet", value=told)


def _line(counted: CountedLaunch) -> str:
    told = [
        form.format(counted.counters[name])
        if name in counted.counters
        else f"{name.removesuffix('_pct')} not found"
        for name, form in _COUNTERS.items()
    ]
    waits = sorted(counted.stalls.items(), key=lambda item: -item[1])[:_WAITS]
    told += [f"waits for {name} {share:.0%}" for name, share in waits]
    return ", ".join(told)


def _moved(before: CountedLaunch, now: CountedLaunch) -> str:
    pairs = [
        f"{name} {before.counters[name]:.4g} to {now.counters[name]:.4g}"
        for name in _COUNTERS
        if name in before.counters and name in now.counters
        if before.counters[name] != now.counters[name]
    ]
    return ", ".join(pairs) or "the same"
