"""The candidate's launcher, asked with tensors of the grader."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias, cast

from inferproof_remote import build_cuda
from inferproof_remote.build_triton import (
    NotCompiled,
    Variant,
    compile_variants,
    launched_as,
    variant_of,
)
from inferproof_remote.cuda_driver import find_attributes
from inferproof_remote.draws import CANDIDATE
from inferproof_remote.gpu_layout import shared_bytes, tensor_bytes, tensor_offsets, tensor_rows
from inferproof_remote.gpu_process import DeviceProcess
from inferproof_remote.gpu_timing import LONGEST
from inferproof_remote.grade import Order
from inferproof_remote.incidents import BenchError
from inferproof_remote.inputs import Tensors
from inferproof_remote.job import as_number, as_table, as_texts
from inferproof_remote.kernel import Dims
from inferproof_remote.launches import LaunchPlan, Resolved, parse_asked, resolve
from inferproof_remote.numerics import copy_bytes, tensor_of
from inferproof_remote.stream import Stream
from inferproof_remote.workshop import Workshop

Json: TypeAlias = dict[str, object]
_CHAIN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAnswer:
    """One call; `guards` counts bytes that were written beside each tensor."""

    seconds: float
    outputs: Tensors
    guards: Mapping[str, int]
    mutated: tuple[str, ...]


class Candidate:
    """A cubin behind our launcher."""

    def __init__(self, order: Order, bits: bytes, harness: bytes) -> None:
        self._order = order
        self._bits = bits
        self._harness = harness
        self._asked = parse_asked(order.manifest)
        self._shapes = TritonShapes(order) if order.manifest["language"] == "triton" else None
        self._cubins = [] if self._shapes else [_cubin(order)]
        self._limit_s = order.limit("call_s")
        self.process = DeviceProcess("gpu_launcher", shared_bytes=shared_bytes(order.kernel))
        self.device: Mapping[str, object] = {}
        self.needs: Mapping[str, Mapping[str, object]] = {}

    def __enter__(self) -> Self:
        self.process.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.__exit__(kind, error, trace)

    def compile_for(self, shapes: Sequence[Dims]) -> None:
        """Compile what depends on the shape.

        Raises:
            NotCompiled: a kernel does not compile for one of them.
            UnfitLaunch: the launches have no sensible size under one of them.
        """
        if self._shapes is not None:
            self._cubins = self._shapes.compile([self._resolved(dims) for dims in shapes])

    def start(self) -> None:
        """Start the launcher and hand it the device code."""
        self.process.start_apart(CANDIDATE)
        whole = self._harness + b"".join(self._cubins)
        self.process.shared.view(0, len(whole))[:] = whole
        answer = self.process.ask(
            {
                "do": "open",
                "harness_bytes": len(self._harness),
                "cubins_bytes": [len(each) for each in self._cubins],
                "seed": Stream(self._bits, "addresses").word(),
            },
            _CHAIN_S,
        )
        self.device = as_table(answer["device"], "device")

    def kernels(self) -> tuple[str, ...]:
        """Return the kernels that one call launches, each once."""
        return tuple(dict.fromkeys(each.kernel for each in self._asked.launches))

    def call(self, dims: Dims, inputs: Tensors, *, without: str | None = None) -> GpuAnswer:
        """Run one call, or what is left of it without the launches of one kernel.

        Raises:
            Ended: the device code crashed or hangs.
            UnfitLaunch: the launches have no sensible size under `dims`.
        """
        kernel, shared = self._order.kernel, self.process.shared
        offsets = tensor_offsets(kernel, dims)
        for tensor in kernel.inputs:
            copy_bytes(
                inputs[tensor.name], shared.view(offsets[tensor.name], tensor_bytes(tensor, dims))
            )
        request = self._request("call", dims) | {
            "shape": ",".join(map(str, dims.values())),
            "offsets": offsets,
            "without": without,
        }
        answer = self.process.ask(request, self._limit_s)
        self._note_needs(answer["needs"])
        return GpuAnswer(
            seconds=as_number(answer["seconds"], "seconds"),
            outputs={
                tensor.name: tensor_of(
                    shared.view(offsets[tensor.name], tensor_bytes(tensor, dims)),
                    *(tensor.dtype, tensor.extents(dims)),
                )
                for tensor in kernel.results
            },
            guards={
                name: int(as_number(count, name))
                for name, count in as_table(answer["guards"], "guards").items()
            },
            mutated=as_texts(answer["mutated"], "mutated"),
        )

    def lay_chain(self, chain_id: str, dims: Dims, seed: int) -> None:
        """Lay out a chain of calls under `dims`, with inputs that `seed` decides."""
        request = self._request("chain", dims)
        self.process.ask(request | {"id": chain_id, "seed": seed, "longest": LONGEST}, _CHAIN_S)

    def laid_out(self, dims: Dims) -> tuple[Json, list[bytes]]:
        """Return what one call under `dims` launches on what, and the cubins that it needs."""
        return self._request("call", dims), self._cubins

    def _request(self, verb: str, dims: Dims) -> Json:
        plan = self._plan(dims)
        return {
            "do": verb,
            **plan.to_json(),
            **tensor_rows(self._order.kernel, dims),
        }

    def _plan(self, dims: Dims) -> LaunchPlan:
        plan = self._resolved(dims)
        return plan if self._shapes is None else self._shapes.launched(plan)

    def _resolved(self, dims: Dims) -> LaunchPlan:
        sms = device_here()["multiprocessors"]
        return resolve(self._asked, self._order.kernel, dims, sms=sms)

    def _note_needs(self, raw: object) -> None:
        rows = [as_table(each, "needs") for each in cast("Sequence[object]", raw)]
        self.needs = {str(row["kernel"]): row for row in rows}


class TritonShapes:
    """Triton kernels as cubins, one for each kind of shape."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._places: dict[str, int] = {}
        self._variants: list[Variant] = []

    def compile(self, plans: Sequence[LaunchPlan]) -> list[bytes]:
        """Return the cubins that these plans need, each once."""
        asked = {self._key(each): each for plan in plans for each in plan.launches}
        order = self._order
        workshop = Workshop(
            source_dir=order.candidate, out_dir=order.library.parent, limits=order.limits
        )
        source, entry = str(order.manifest["source"]), str(order.manifest["entry"])
        wanted = [self._variant(each) for each in asked.values()]
        self._variants = compile_variants(source, entry, wanted, workshop)
        if len(self._variants) != len(asked):
            raise NotCompiled("compile_failed", ())
        self._places = {key: place for place, key in enumerate(asked)}
        return [each.cubin for each in self._variants]

    def launched(self, plan: LaunchPlan) -> LaunchPlan:
        """Return a plan with its compiled kernels."""
        places = [self._places[self._key(each)] for each in plan.launches]
        return launched_as(plan, [(place, self._variants[place]) for place in places])

    def _variant(self, launch: Resolved) -> dict[str, object]:
        device = device_here()
        return variant_of(launch, self._order.kernel, 10 * device["major"] + device["minor"])

    def _key(self, launch: Resolved) -> str:
        return json.dumps(self._variant(launch), sort_keys=True)


@functools.cache
def device_here() -> Mapping[str, int]:
    """Return what the device is like.

    Raises:
        BenchError: there is none.
    """
    found = find_attributes()
    if found is None:
        raise BenchError("there is no NVIDIA GPU here")
    return found


def _cubin(order: Order) -> bytes:
    arch = build_cuda.native_arch()
    path: Path = order.library.parent / f"{arch}.cubin"
    if not path.is_file():
        raise BenchError(f"the build left no {arch}.cubin for the device that is here")
    return path.read_bytes()
