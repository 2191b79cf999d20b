"""Where the ragged data of all layers lies in flat buffers, shared by every solver of the mirror step."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np import arrayobj

from advmdp import _interpreted
from advmdp._arrays import Floats, Integers
from advmdp._compiled import inner_kernel

Record = TypeVar("Record")

# Numbers in a cache line: tables are turned by so many at a time.
LINE = 8


class Layout(NamedTuple):
    """Sizes and buffer offsets per layer; one entry per layer of decisions (H of them)."""

    states: Integers  # n, states of the layer
    nexts: Integers  # m, states of the next layer
    around: Integers  # n + m
    blocks: Integers  # N = n * A
    rows: Integers  # inequality rows per block
    free: Integers  # k, free coordinates per block
    cones: Integers  # k + 1
    triangles: Integers  # (k + 1)(k + 2) / 2
    block_at: Integers  # offsets into buffers of each kind of EXTENTS
    next_at: Integers
    row_at: Integers
    free_at: Integers
    cone_at: Integers
    triangle_at: Integers
    slope_at: Integers
    row_slope_at: Integers
    state_at: Integers  # one more entry, for the terminal state
    diag_at: Integers  # one more, the end
    off_at: Integers


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


#: What a layer has of a buffer of each kind: an array of these sizes.  Of states, its own and then the next ones.
EXTENTS = {
    "block": ("blocks",), "next": ("nexts", "blocks"), "row": ("rows", "blocks"), "free": ("free", "blocks"),
    "cone": ("cones", "blocks"), "triangle": ("triangles", "blocks"), "slope": ("nexts", "free", "blocks"),
    "row_slope": ("rows", "free", "blocks"), "state": ("around",), "diag": ("states", "states"),
    "off": ("states", "nexts"),
}  # fmt: skip


class Per:
    """Types of the buffers in a record; a plain ``Floats`` there is scratch, the same for all layers."""

    Block = Annotated[Floats, "block"]
    Next = Annotated[Floats, "next"]
    Row = Annotated[Floats, "row"]
    Free = Annotated[Floats, "free"]
    Cone = Annotated[Floats, "cone"]
    Triangle = Annotated[Floats, "triangle"]
    Slope = Annotated[Floats, "slope"]
    RowSlope = Annotated[Floats, "row_slope"]
    State = Annotated[Floats, "state"]
    Diag = Annotated[Floats, "diag"]
    Off = Annotated[Floats, "off"]


def make_layout(
    layer_sizes: tuple[int, ...], n_actions: int, rows: list[int], free: list[int]
) -> tuple[Layout, BufferSizes]:
    """Offsets for the given layers, with ``rows`` and ``free`` (k) per layer.

    The last layer leads to the terminal state, whose price is zero: it has no next states (m = 0), no rows
    and no free coordinates.
    """
    n = np.array(layer_sizes[:-1], dtype=np.int64)
    m = np.array([*layer_sizes[1:-1], 0], dtype=np.int64)
    r = np.array(rows, dtype=np.int64)
    k = np.array(free, dtype=np.int64)
    counts = {
        "states": n, "nexts": m, "around": n + m, "blocks": n * n_actions, "rows": r, "free": k, "cones": k + 1,
        "triangles": (k + 1) * (k + 2) // 2,
    }  # fmt: skip
    lengths = {kind: np.prod([counts[name] for name in names], axis=0) for kind, names in EXTENTS.items()}
    lengths["state"] = n
    ends = {kind: np.concatenate([[0], np.cumsum(length)]).astype(np.int64) for kind, length in lengths.items()}
    offsets = {f"{kind}_at": end if kind in ("state", "diag") else end[:-1].copy() for kind, end in ends.items()}
    totals = {kind: int(end[-1]) for kind, end in ends.items()}
    totals["state"] += 1  # the terminal state
    return Layout(**counts, **offsets), BufferSizes(**totals)


def _kinds_of(record: Any) -> dict[str, str | None]:
    """The kind of each buffer of a record (a NamedTuple), None for scratch."""
    hints = get_type_hints(record, include_extras=True)
    return {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}


kinds_of: Callable[[Any], dict[str, str | None]] = cache(_kinds_of)


def allocate(record: type[Record], sizes: BufferSizes, **scratch: Floats) -> Record:
    """A record of buffers, all zero."""
    kinds = kinds_of(record).items()
    return record(**{name: np.zeros(getattr(sizes, kind)) for name, kind in kinds if kind is not None}, **scratch)


# Views are borrowed: they hold no reference to their buffer, which must outlive them.  Every kernel is given its
# buffers as arguments, so it does; and a view costs a pointer addition, where slicing and reshaping would cost
# range checks at run time and, kernel by kernel, a good part of the time of compilation.


def _borrow(context: Any, builder: Any, buffer: Any, value: Any, view: Any, start: Any, shape: list[Any]) -> Any:
    """Code for a view of this type and shape into a buffer."""
    source = arrayobj.make_array(buffer)(context, builder, value)
    made = arrayobj.make_array(view)(context, builder)
    strides = [source.itemsize]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    arrayobj.populate_array(made, builder.gep(source.data, [start]), shape, strides, source.itemsize, None)
    return made._getvalue()


def _view(buffer: Any, ndim: int) -> Any:
    """The typing and code generation of a contiguous view with ``ndim`` axes into a flat buffer."""
    view = types.Array(buffer.dtype, ndim, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _borrow(context, builder, buffer, arguments[0], view, arguments[1], list(arguments[2:]))

    return view(buffer, types.intp, *[types.intp] * ndim), generate


@intrinsic
def _view1(context: Any, buffer: Any, start: Any, length: Any) -> Any:
    return _view(buffer, 1)


@intrinsic
def _view2(context: Any, buffer: Any, start: Any, rows: Any, columns: Any) -> Any:
    return _view(buffer, 2)


@intrinsic
def _view3(context: Any, buffer: Any, start: Any, rows: Any, inner: Any, columns: Any) -> Any:
    return _view(buffer, 3)


@intrinsic
def _layer(context: Any, layout: Any, h: Any, records: Any) -> Any:
    def typed(part: Any, kind: Any) -> Any:
        return part if kind is None else types.Array(part.dtype, len(EXTENTS[kind]), "C")

    classes = [record.instance_class for record in records]
    kinds = [list(kinds_of(one).values()) for one in classes]
    views = [list(map(typed, record, kind)) for record, kind in zip(records, kinds, strict=True)]
    named = list(map(types.BaseTuple.from_types, views, classes))
    made = types.BaseTuple.from_types(named)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        @cache
        def number(name: str) -> Any:
            field = Layout._fields.index(name)
            table = arrayobj.make_array(layout[field])(context, builder, builder.extract_value(arguments[0], field))
            return builder.load(builder.gep(table.data, [arguments[1]]))

        def borrowed(place: tuple[int, int]) -> Any:
            record, field = place
            value = builder.extract_value(arguments[2], place)
            kind = kinds[record][field]
            if kind is None:
                if context.enable_nrt:  # a caller that counts references gives back the one that it is handed
                    context.nrt.incref(builder, records[record][field], value)
                return value
            shape = [number(name) for name in EXTENTS[kind]]
            buffer, view = records[record][field], views[record][field]
            return _borrow(context, builder, buffer, value, view, number(f"{kind}_at"), shape)

        parts = [
            context.make_tuple(builder, name, [borrowed((i, j)) for j in range(len(name))])
            for i, name in enumerate(named)
        ]
        return context.make_tuple(builder, made, parts)

    return made(layout, types.intp, records), generate


def layer_views(layout: Layout, h: int, records: tuple[Any, ...]) -> tuple[Any, ...]:
    """What ``layer`` is to kernels."""

    def part(buffer: Floats, kind: str | None) -> Floats:
        if kind is None:
            return buffer
        shape = [int(getattr(layout, name)[h]) for name in EXTENTS[kind]]
        return _interpreted.view(buffer, getattr(layout, f"{kind}_at")[h], *shape)

    return tuple(
        record._make(part(*pair) for pair in zip(record, kinds_of(type(record)).values(), strict=True))
        for record in records
    )


# ``view1(buffer, start, length)`` and its like with two and three axes, for use in kernels.
view1: Any = _interpreted.view if _interpreted.INTERPRETED else _view1
view2: Any = _interpreted.view if _interpreted.INTERPRETED else _view2
view3: Any = _interpreted.view if _interpreted.INTERPRETED else _view3
# ``layer(layout, h, (record, ...))``: the records with what layer h has of each of their buffers.
layer: Any = layer_views if _interpreted.INTERPRETED else _layer


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
