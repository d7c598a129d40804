"""What every process that holds a device answers alike: timing of chains, and errors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import cast

from inferproof_remote.cuda_driver import CudaError, Driver
from inferproof_remote.cuda_launch import LaunchError
from inferproof_remote.gpu_chain import Chain, Kind, Operation, TensorPlan
from inferproof_remote.gpu_wire import Json, SharedBytes, Wire, WireClosed
from inferproof_remote.job import as_number, as_table


class ChainTimer:
    """Times one chain as asked, and hands out what its watched link wrote."""

    def __init__(
        self,
        chain: Chain,
        operation: Operation,
        driver: Driver,
        shared: SharedBytes,
        outputs: Sequence[TensorPlan],
        *,
        guards: Callable[[], dict[str, int]],
    ) -> None:
        self._chain = chain
        self._operation = operation
        self._driver = driver
        self._shared = shared
        self._outputs = outputs
        self._guards = guards

    def answer(self, request: Mapping[str, object]) -> Json:
        """Return the seconds of each replay asked for, in that order, by both clocks."""
        told: Json = {}
        taken: list[Json] = []
        for row in rows_of(request["replays"]):
            kind, links, cold = cast("list[object]", row["of"])
            timing = self._chain.time(
                cast("Kind", kind),
                int(as_number(links, "links")),
                cold=cold is True,
                operation=self._operation,
                key=(whole_of(row, "key"), whole_of(row, "salt")),
                watched=whole_of(row, "watched"),
            )
            taken.append(asdict(timing))
            if row["keep"] is True:
                told |= self._kept(as_table(request["offsets"], "offsets"))
        if request["guards"] is True:
            told |= {"guards": self._guards()}
        return told | {"replays": taken}

    def _kept(self, offsets: Mapping[str, object]) -> Json:
        for tensor, address in zip(self._outputs, self._chain.kept, strict=True):
            target = self._shared.address + whole_of(offsets, tensor.name)
            self._driver.read(target, address, tensor.size_bytes)
        return {"sums": self._chain.sums().hex()}


def tensor_plans(raw: object) -> tuple[TensorPlan, ...]:
    """Return tensors from their JSON."""
    plans: list[TensorPlan] = []
    for row in rows_of(raw):
        span = cast("list[int] | None", row["span"])
        plans.append(
            TensorPlan(
                name=str(row["name"]),
                dtype=str(row["dtype"]),
                count=whole_of(row, "count"),
                fixed=row["fixed"] is True,
                mutated=row["mutated"] is True,
                span=None if span is None else (span[0], span[1]),
            )
        )
    return tuple(plans)


def device_json(driver: Driver) -> Json:
    """Return what the device is, as plain JSON."""
    return asdict(driver.describe())


def serve(wire: Wire, answer: Callable[[Mapping[str, object]], Json]) -> None:
    """Answer requests until the grader hangs up; an error of the device ends it."""
    while True:
        try:
            request = wire.receive()
        except WireClosed:
            return
        try:
            wire.send(answer(request))
        except LaunchError as error:
            wire.send({"refused": str(error)})
        except CudaError as error:
            wire.send({"failed": str(error), "name": error.name})
            return


def whole_of(table: Mapping[str, object], name: str) -> int:
    """Return one whole number of a request."""
    value = table[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise LaunchError(f"{name} is {value!r}, not a whole number")
    return value


def rows_of(raw: object) -> list[Mapping[str, object]]:
    """Return the rows of a request."""
    return [as_table(each, "row") for each in cast("list[object]", raw)]
