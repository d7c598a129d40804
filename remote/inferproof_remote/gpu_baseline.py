"""The process that runs the contract's own baselines, in the same chains as a candidate."""

import contextlib
import importlib.util
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import torch
from torch import Tensor

from inferproof_remote.cuda_driver import Driver, Handle
from inferproof_remote.cuda_launch import LaunchError
from inferproof_remote.gpu_chain import SLOTS, Chain, Harness, Operation, TensorPlan
from inferproof_remote.gpu_serve import ChainTimer, device_json, serve, tensor_plans
from inferproof_remote.gpu_wire import Json, SharedBytes, Wire
from inferproof_remote.job import as_number, as_table
from inferproof_remote.numerics import DTYPES

COMPILED = "torch.compile"
_WARM_CALLS = 3

Compute: TypeAlias = Callable[..., Mapping[str, Tensor]]


class TorchRecorder:
    """Records and replays in one stream of torch."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self.stream: Handle = self._stream.cuda_stream

    def record(self, body: Callable[[Handle], None]) -> Callable[[], None]:
        """Return what replays the work of `body`."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="relaxed"):
            body(torch.cuda.current_stream().cuda_stream)

        def replay() -> None:
            with torch.cuda.stream(self._stream):
                graph.replay()

        return replay


class Baselines:
    """Answers one request at a time."""

    def __init__(self, shared: SharedBytes, contract_file: str) -> None:
        self._shared = shared
        torch.cuda.init()
        self._driver = Driver()
        self._function = _load(Path(contract_file))
        self._harness: Harness | None = None
        self._timers: dict[str, ChainTimer] = {}
        self._held: list[Tensor] = []
        self._slots_held: list[dict[str, Tensor]] = []  # graphs know only their addresses

    def answer(self, request: Mapping[str, object]) -> Json:
        """Return the answer to one request."""
        match request["do"]:
            case "open":
                size = int(as_number(request["harness_bytes"], "harness_bytes"))
                self._harness = Harness(self._driver, bytes(self._shared.view(0, size)))
                return {"device": device_json(self._driver)}
            case "chain":
                return self._chain(request)
            case "time":
                return self._timers[str(request["id"])].answer(request)
            case other:
                raise LaunchError(f"no such request: {other!r}")

    def _chain(self, request: Mapping[str, object]) -> Json:
        if self._harness is None:
            raise LaunchError("nothing was opened")
        inputs, outputs = tensor_plans(request["inputs"]), tensor_plans(request["outputs"])
        shapes = {
            name: cast("list[int]", shape)
            for name, shape in as_table(request["extents"], "extents").items()
        }
        params = as_table(request["params"], "params")
        mutated = [each for each in inputs if each.mutated]
        slots = self._slots((*inputs, *outputs), shapes)
        self._slots_held += slots
        recorder = TorchRecorder()
        chain = Chain(
            self._harness,
            recorder,
            inputs=inputs,
            outputs=(*outputs, *mutated),
            places=[{name: each.data_ptr() for name, each in slot.items()} for slot in slots],
            seed=int(as_number(request["seed"], "seed")),
            allocate=self._allocate,
            longest=int(as_number(request["longest"], "longest")),
        )
        run = self._operation(
            request["compiled"] is True,
            [{each.name: slot[each.name] for each in inputs} for slot in slots],
            params,
            ([each.name for each in outputs], [each.name for each in mutated]),
        )
        self._warm(inputs, slots, run)
        self._timers[str(request["id"])] = ChainTimer(
            *(chain, run, self._driver, self._shared, (*outputs, *mutated)),
            guards=dict[str, int],
        )
        return {}

    def _slots(
        self, tensors: Sequence[TensorPlan], shapes: Mapping[str, Sequence[int]]
    ) -> list[dict[str, Tensor]]:
        fixed = {each.name: self._tensor(each, shapes[each.name]) for each in tensors if each.fixed}
        return [
            fixed
            | {
                each.name: self._tensor(each, shapes[each.name])
                for each in tensors
                if not each.fixed
            }
            for _ in range(SLOTS)
        ]

    def _operation(
        self,
        compiled: bool,
        slots: Sequence[Mapping[str, Tensor]],
        params: Mapping[str, object],
        results: tuple[Sequence[str], Sequence[str]],
    ) -> Operation:
        """Return the baseline for a chain; `results` names its outputs and what it changes."""
        outputs, mutated = results
        function = self._function
        if compiled:
            function = torch.compile(function, dynamic=False)  # pyright: ignore[reportUnknownMemberType]

        def run(slot: int, stream: Handle) -> Sequence[int]:
            del stream  # torch's own present one
            made = function(**slots[slot], **params)
            held = [made[name].contiguous() for name in outputs]
            self._held = held  # until the sum over them is recorded
            return [each.data_ptr() for each in (*held, *(slots[slot][n] for n in mutated))]

        return run

    def _warm(
        self,
        inputs: Sequence[TensorPlan],
        slots: Sequence[Mapping[str, Tensor]],
        run: Operation,
    ) -> None:
        """Compile and tune on valid inputs, outside of any recording."""
        for slot in slots:
            for number, tensor in enumerate(inputs):
                if self._harness is not None and not tensor.fixed:
                    place = slot[tensor.name].data_ptr()
                    self._harness.draw(place, tensor, number + 1, 0)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            try:
                for slot in [*range(SLOTS)] * _WARM_CALLS:
                    run(slot, stream.cuda_stream)
            except RuntimeError as error:  # of the compiler that a baseline needs
                raise LaunchError(f"this baseline cannot run here: {error}"[:300]) from error
        torch.cuda.synchronize()

    def _tensor(self, tensor: TensorPlan, shape: Sequence[int]) -> Tensor:
        padded = tensor.vectors * 16 // DTYPES[tensor.dtype].itemsize
        whole = torch.empty(padded, dtype=DTYPES[tensor.dtype], device="cuda")
        return whole[: tensor.count].view(*shape)

    def _allocate(self, size_bytes: int) -> int:
        return self._driver.allocate(size_bytes)


def _load(path: Path) -> Compute:
    spec = importlib.util.spec_from_file_location("contract", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["contract"] = module  # where torch.compile looks for it
    spec.loader.exec_module(module)
    return cast("Compute", module.baseline)


def main(
    socket_fd: int, shared_fd: int, shared_bytes: int, contract_file: str, load: str = ""
) -> None:
    """Serve the grader at the other end of a socket; `load` says that something will compile."""
    wire = Wire(socket.socket(fileno=socket_fd))
    if load:
        with contextlib.suppress(ImportError):  # told as the baseline's absence once it is asked
            importlib.import_module("torch._inductor.compile_fx")  # seconds, while others are busy
    baselines = Baselines(SharedBytes(shared_fd, shared_bytes), contract_file)
    wire.send({"ready": True})
    serve(wire, baselines.answer)
