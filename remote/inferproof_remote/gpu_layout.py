"""Where the tensors of a call lie in the memory that grader and launcher share; no torch."""

from math import prod
from typing import TypeAlias

from inferproof_remote.cuda_kernels import ITEM_BYTES
from inferproof_remote.expressions import evaluate
from inferproof_remote.gpu_wire import spread
from inferproof_remote.kernel import Dims, Kernel, TensorShape

Json: TypeAlias = dict[str, object]
_LEAST_SHARED_BYTES = 1 << 24


def tensor_rows(kernel: Kernel, dims: Dims) -> Json:
    """Return the tensors of a call as rows of a request."""
    return {
        "inputs": [_row(each, kernel, dims) for each in kernel.inputs],
        "outputs": [_row(each, kernel, dims) for each in kernel.outputs],
    }


def tensor_offsets(kernel: Kernel, dims: Dims) -> dict[str, int]:
    """Return where in the shared memory each tensor of a call lies."""
    tensors = (*kernel.inputs, *kernel.outputs)
    return spread({each.name: tensor_bytes(each, dims) for each in tensors})[0]


def shared_bytes(kernel: Kernel) -> int:
    """Return room for the largest call that the contract allows."""
    most = {name: extent.high for name, extent in kernel.extents.items()}
    tensors = (*kernel.inputs, *kernel.outputs)
    needed = spread({each.name: tensor_bytes(each, most) for each in tensors})[1]
    return max(needed, _LEAST_SHARED_BYTES)


def tensor_bytes(tensor: TensorShape, dims: Dims) -> int:
    """Return the size of a tensor."""
    return prod(tensor.extents(dims)) * ITEM_BYTES[tensor.dtype]


def _row(tensor: TensorShape, kernel: Kernel, dims: Dims) -> Json:
    span = tensor.span
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "count": prod(tensor.extents(dims)),
        "fixed": tensor.name in kernel.prepare,
        "mutated": tensor.name in kernel.mutates,
        "span": None if span is None else [evaluate(bound, dims) for bound in span],
    }
