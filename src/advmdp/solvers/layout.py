"""Where the ragged data of all layers lies in flat buffers, shared by every solver of the mirror step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numba.np import arrayobj
from numpy.typing import NDArray

from advmdp import _interpreted
from advmdp._compiled import inner_kernel

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Layout(NamedTuple):
    """Sizes and buffer offsets per layer; one entry per layer of decisions (H of them)."""

    states: Integers  # n, states of the layer
    nexts: Integers  # m, states of the next layer
    blocks: Integers  # N = n * A
    rows: Integers  # inequality rows per block
    free: Integers  # k, free coordinates per block
    block_at: Integers  # offset into buffers with one entry per block
    next_at: Integers  # ... m per block
    row_at: Integers  # ... rows per block
    free_at: Integers  # ... k per block
    cone_at: Integers  # ... k + 1 per block
    triangle_at: Integers  # ... (k + 1)(k + 2) / 2 per block
    slope_at: Integers  # ... m * k per block (G)
    row_slope_at: Integers  # ... rows * k per block (E)
    state_at: Integers  # ... one per state; one more entry for the terminal state
    diag_at: Integers  # ... n * n per layer
    off_at: Integers  # ... n * m per layer


class BufferSizes(NamedTuple):
    """Lengths of the buffers that the offsets of a :class:`Layout` point into."""

    block: int
    next: int
    row: int
    free: int
    cone: int
    triangle: int
    slope: int
    row_slope: int
    state: int
    diag: int
    off: int


def make_layout(
    layer_sizes: tuple[int, ...], n_actions: int, rows: list[int], free: list[int]
) -> tuple[Layout, BufferSizes]:
    """Offsets for the given layers, with ``rows`` and ``free`` (k) per layer.

    The last layer leads to the terminal state, whose price is zero: it has no next states (m = 0), no rows
    and no free coordinates.
    """
    n = np.array(layer_sizes[:-1], dtype=np.int64)
    m = np.array([*layer_sizes[1:-1], 0], dtype=np.int64)
    N = n * n_actions
    r = np.array(rows, dtype=np.int64)
    k = np.array(free, dtype=np.int64)
    lengths = [
        N, m * N, r * N, k * N, (k + 1) * N, (k + 1) * (k + 2) // 2 * N, m * k * N, r * k * N,
        n, n * n, n * m,
    ]  # fmt: skip
    ends = [np.concatenate([[0], np.cumsum(length)]).astype(np.int64) for length in lengths]
    offsets = [end[:-1].copy() for end in ends]
    offsets[8] = ends[8]
    totals = [int(end[-1]) for end in ends]
    totals[8] += 1  # the terminal state
    return Layout(n, m, N, r, k, *offsets), BufferSizes(*totals)


# Views are borrowed: they hold no reference to their buffer, which must outlive them.  Every kernel is given its
# buffers as arguments, so it does; and a view costs a pointer addition, where slicing and reshaping would cost
# range checks at run time and, kernel by kernel, a good part of the time of compilation.


def _borrow(ndim: int) -> Any:
    """The typing and code generation of a contiguous view with ``ndim`` axes into a flat buffer."""

    def typed(buffer: Any) -> Any:
        view = types.Array(buffer.dtype, ndim, "C")
        signature = view(buffer, types.intp, *[types.intp] * ndim)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            buffer_type, view_type = signature.args[0], signature.return_type
            source = arrayobj.make_array(buffer_type)(context, builder, arguments[0])
            view = arrayobj.make_array(view_type)(context, builder)
            shape = list(arguments[2:])
            strides = [source.itemsize]
            for length in reversed(shape[1:]):
                strides.insert(0, builder.mul(strides[0], length))
            arrayobj.populate_array(
                view, builder.gep(source.data, [arguments[1]]), shape, strides, source.itemsize, None
            )
            return view._getvalue()

        return signature, generate

    return typed


@intrinsic
def _view1(context: Any, buffer: Any, start: Any, length: Any) -> Any:
    return _borrow(1)(buffer)


@intrinsic
def _view2(context: Any, buffer: Any, start: Any, rows: Any, columns: Any) -> Any:
    return _borrow(2)(buffer)


@intrinsic
def _view3(context: Any, buffer: Any, start: Any, rows: Any, inner: Any, columns: Any) -> Any:
    return _borrow(3)(buffer)


@intrinsic
def _view4(context: Any, buffer: Any, start: Any, rows: Any, second: Any, third: Any, columns: Any) -> Any:
    return _borrow(4)(buffer)


# ``view1(buffer, start, length)`` and its like with two to four axes, for use in kernels.
view1: Any = _interpreted.view if _interpreted.INTERPRETED else _view1
view2: Any = _interpreted.view if _interpreted.INTERPRETED else _view2
view3: Any = _interpreted.view if _interpreted.INTERPRETED else _view3
view4: Any = _interpreted.view if _interpreted.INTERPRETED else _view4


@inner_kernel
def copy_into(target: Floats, source: Floats) -> None:
    """target = source, as far as it goes.  (Numba's own assignment of arrays may allocate.)"""
    for i in range(target.shape[0]):
        target[i] = source[i]


@inner_kernel
def fill(x: Floats, value: float) -> None:
    """Set every entry of a vector."""
    for i in range(x.shape[0]):
        x[i] = value
