"""Where the ragged data of all layers lies in flat buffers, shared by every solver of the mirror step.

A :func:`record` of buffers (a NamedTuple) is handed to kernels as the address of a table of addresses: numba would
unpack a tuple of arrays wherever it is handed on, and count references to each of them.  :data:`layer` and
:data:`whole` make views, which own nothing.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, get_type_hints

import numpy as np
from numba import types
from numba.extending import intrinsic, lower_getattr_generic, models, register_model
from numba.np import arrayobj
from numpy.typing import NDArray

from advmdp import _interpreted
from advmdp._arrays import Floats, Integers
from advmdp._compiled import inner_kernel

Record = TypeVar("Record", bound=tuple[Any, ...])
#: One entry of :data:`LAYER` per layer of decisions, and one for the ends; ``layout[h].states`` in kernels.
Layout = NDArray[np.void]

# Numbers in a cache line: tables are turned by so many at a time.
LINE = 8

#: What a layer has of a buffer of each kind: an array of these sizes.  Of states, its own and then the next ones.
EXTENTS = {
    "block": ("blocks",), "index": ("blocks",), "next": ("nexts", "blocks"), "set": ("sets",),
    "entry": ("nexts", "sets"), "row": ("rows", "sets"), "free": ("free", "sets"), "triangle": ("triangles", "sets"),
    "slope": ("nexts", "free", "sets"), "row_slope": ("rows", "free", "sets"), "state": ("around",),
    "diag": ("states", "states"), "off": ("states", "nexts"), "stack": ("nexts", "columns", "sets"),
    "column": ("columns", "sets"), "work": ("lines", "widest"),
}  # fmt: skip
#: Scratch: buffers that the layers use in turn.
SCRATCH = ("stack", "column", "work")
#: n states, m next states, n + m, N = n A blocks, R row sets, inequalities and free coordinates k per row set, k + 1,
#: entries of a triangle of size k, rows of ``work``, blocks of the widest layer; then offsets.
LAYER: Any = np.dtype(
    [(name, np.int64) for name in dict.fromkeys(name for names in EXTENTS.values() for name in names)]
    + [(f"{kind}_at", np.int64) for kind in EXTENTS]
)


class Per:
    """Types of the buffers in a record."""

    Block = Annotated[Floats, "block"]
    Index = Annotated[Integers, "index"]
    Next = Annotated[Floats, "next"]
    Set = Annotated[Floats, "set"]
    Entry = Annotated[Floats, "entry"]
    Row = Annotated[Floats, "row"]
    Free = Annotated[Floats, "free"]
    Triangle = Annotated[Floats, "triangle"]
    Slope = Annotated[Floats, "slope"]
    RowSlope = Annotated[Floats, "row_slope"]
    State = Annotated[Floats, "state"]
    Diag = Annotated[Floats, "diag"]
    Off = Annotated[Floats, "off"]
    Stack = Annotated[Floats, "stack"]
    Column = Annotated[Floats, "column"]
    Work = Annotated[Floats, "work"]


def make_layout(
    layer_sizes: tuple[int, ...], n_actions: int, rows: Sequence[int], free: Sequence[int],
    sets: Sequence[int] | None = None,
) -> Layout:  # fmt: skip
    """For the given layers, with ``rows`` and ``free`` (k) of all layers but the last, and row ``sets`` unless every
    pair has its own.

    The last layer leads to the terminal state, whose price is zero: it has no next states (m = 0) and no row sets.
    """
    layout: Any = np.zeros(len(layer_sizes), LAYER)
    here = layout[:-1]
    here["states"] = layer_sizes[:-1]
    here["nexts"] = [*layer_sizes[1:-1], 0]
    here["around"] = here["states"] + here["nexts"]
    here["blocks"] = here["states"] * n_actions
    here["sets"] = [*(here["blocks"][:-1] if sets is None else sets), 0]
    here["rows"], here["free"] = [*rows, 0], [*free, 0]
    here["columns"] = here["free"] + 1
    here["triangles"] = here["free"] * here["columns"] // 2
    layout["lines"], layout["widest"] = 8, here["blocks"].max()
    for kind, names in EXTENTS.items():
        lengths = np.prod([here[name] for name in names if name != "around"] or here["states"][None], axis=0)
        layout[f"{kind}_at"][1:] = 0 if kind in SCRATCH else np.cumsum(lengths)
        layout[f"{kind}_at"][-1] = lengths.max() if kind in SCRATCH else lengths.sum()
    table: Layout = layout.view(np.recarray) if _interpreted.INTERPRETED else layout
    return table


def length_of(layout: Layout, kind: str) -> int:
    """Of a buffer; one of states has an entry for the terminal state as well."""
    return int(layout[f"{kind}_at"][-1]) + (kind == "state")


def _kinds_of(kind: Any) -> list[str]:
    """The kind of each buffer of a record."""
    return [hint.__metadata__[0] for hint in get_type_hints(kind, include_extras=True).values()]


kinds_of: Callable[[Any], list[str]] = cache(_kinds_of)


def allocate(kind: Any, layout: Layout) -> Any:
    """A record of buffers, all zero."""
    return kind(*(_shaped(np.zeros(length_of(layout, each), _dtype(each)), layout, each) for each in kinds_of(kind)))


def _dtype(kind: str) -> Any:
    return np.int64 if kind == "index" else np.float64


def record(kind: type[Record]) -> type[Record]:
    """Let kernels take records of this kind: as :attr:`At`, the address of a table of the addresses of its buffers."""
    made: Any = kind
    names = {"__module__": kind.__module__, "__qualname__": f"{kind.__qualname__}.At", "record": kind}
    # Numba calls what is compiled for a type by the name of the type.
    made.At = type(f"{kind.__module__}.{kind.__qualname__}", (namedtuple("At", "table"),), names)
    return kind


def addresses(made: Any) -> Any:
    """A record as kernels take it, which keeps it alive.  Interpreted, they take the record itself."""
    if _interpreted.INTERPRETED:
        return made
    table = np.array([buffer.__array_interface__["data"][0] for buffer in made])
    at = made.At(table.__array_interface__["data"][0])
    at.held = made, table
    return at


def _shaped(buffer: Floats, layout: Layout, kind: str) -> Floats:
    return buffer.reshape(layout["lines"][0], -1) if kind == "work" else buffer


# --------------------------------------------------------------------------------------------------------
# Views in kernels: they cost a pointer addition, where slicing and reshaping would cost range checks at run time and,
# kernel by kernel, a good part of the time of compilation.


def _borrow(context: Any, builder: Any, view: Any, data: Any, start: Any, shape: list[Any]) -> None:
    """Make a view of this shape, ``start`` entries behind a pointer."""
    item = context.get_constant(types.intp, 8)
    strides = [item]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    first = builder.gep(data, [start])
    arrayobj.populate_array(view, first, shape, strides, item, None)


def _view(buffer: Any, ndim: int) -> Any:
    """The typing and code generation of a contiguous view with ``ndim`` axes into a flat buffer."""
    view = types.Array(buffer.dtype, ndim, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, start, *shape = arguments
        made = arrayobj.make_array(view)(context, builder)
        _borrow(context, builder, made, arrayobj.make_array(buffer)(context, builder, value).data, start, shape)
        return made._getvalue()

    return view(buffer, types.intp, *[types.intp] * ndim), generate


@intrinsic
def _view1(context: Any, buffer: Any, start: Any, length: Any) -> Any:
    return _view(buffer, 1)


@intrinsic
def _view2(context: Any, buffer: Any, start: Any, rows: Any, columns: Any) -> Any:
    return _view(buffer, 2)


class Part(types.NamedTuple):
    """The type of a record of views: where the sizes of the layer are and where the addresses, so that a kernel has the
    code of those views alone that it uses."""

    def __init__(self, record: Any, entire: bool) -> None:
        self.kinds, self.entire = kinds_of(record), entire
        numbers = {True: types.int64, False: types.float64}
        views = [types.Array(numbers[kind == "index"], len(self.sizes(kind)), "C") for kind in self.kinds]
        super().__init__(views, record)  # type: ignore[no-untyped-call]
        self.name = f"{'Whole' if entire else 'Part'}({self.name})"

    @property
    def key(self) -> Any:
        """What tells it from other types: numba has one of each."""
        return self.instance_class, self.entire

    def sizes(self, kind: str) -> tuple[str, ...]:
        """The names of the sizes of such a view."""
        return (f"{kind}_at",) if self.entire and kind != "work" else EXTENTS[kind]


@register_model(Part)
class PartModel(models.StructModel):
    """Two addresses."""

    def __init__(self, manager: Any, part: Part) -> None:
        super().__init__(manager, part, [("sizes", types.intp), ("table", types.intp)])  # type: ignore[no-untyped-call]


@lower_getattr_generic(Part)  # type: ignore[untyped-decorator]
def _field(context: Any, builder: Any, part: Part, value: Any, name: str) -> Any:
    index = part.fields.index(name)
    kind, view = part.kinds[index], part.types[index]

    def number(struct_index: int, offset: int) -> Any:
        place = builder.add(builder.extract_value(value, struct_index), context.get_constant(types.intp, offset))
        found = builder.load(builder.inttoptr(place, context.get_value_type(types.intp).as_pointer()))
        found.set_metadata("invariant.load", builder.module.add_metadata([]))  # loops need not look again
        return found

    start = context.get_constant(types.intp, 0) if part.entire else number(0, LAYER.fields[f"{kind}_at"][1])
    shape = [number(0, LAYER.fields[size][1]) for size in part.sizes(kind)]
    if part.entire and kind == "state":
        shape = [builder.add(shape[0], context.get_constant(types.intp, 1))]
    made = arrayobj.make_array(view)(context, builder)
    _borrow(context, builder, made, builder.inttoptr(number(1, 8 * index), made.data.type), start, shape)
    return made._getvalue()


def _views(layout: Any, records: Any, entire: bool) -> Any:
    """The typing and code generation of :data:`layer` and :data:`whole`."""
    made = types.BaseTuple.from_types([Part(each.instance_class.record, entire) for each in records])

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, *h, given = arguments
        table = arrayobj.make_array(layout)(context, builder, value)
        number = h[0] if h else builder.sub(table.nitems, context.get_constant(types.intp, 1))
        first = builder.ptrtoint(table.data, number.type)
        sizes = builder.add(first, builder.mul(number, context.get_constant(types.intp, LAYER.itemsize)))
        parts = []
        for i, part in enumerate(made):
            pair = builder.insert_value(context.get_constant_undef(part), sizes, 0)
            parts.append(builder.insert_value(pair, builder.extract_value(given, (i, 0)), 1))
        return context.make_tuple(builder, made, parts)

    return (made(layout, records) if entire else made(layout, types.intp, records)), generate


@intrinsic
def _layer(context: Any, layout: Any, h: Any, records: Any) -> Any:
    return _views(layout, records, False)


@intrinsic
def _whole(context: Any, layout: Any, records: Any) -> Any:
    return _views(layout, records, True)


def layer_views(layout: Layout, h: int, records: tuple[Any, ...]) -> tuple[Any, ...]:
    """What ``layer`` is to kernels, for records of arrays."""

    def part(buffer: Floats, kind: str) -> Floats:
        shape = [int(layout[name][h]) for name in EXTENTS[kind]]
        return _interpreted.view(buffer.ravel(), int(layout[f"{kind}_at"][h]), *shape)

    return tuple(
        record._make(part(*pair) for pair in zip(record, kinds_of(type(record)), strict=True)) for record in records
    )


# ``view1(buffer, start, length)`` and ``view2(buffer, start, rows, columns)``, for use in kernels.
view1: Any = _interpreted.view if _interpreted.INTERPRETED else _view1
view2: Any = _interpreted.view if _interpreted.INTERPRETED else _view2
# ``layer(layout, h, (record, ...))``: the records with what layer h has of each of their buffers.
layer: Any = layer_views if _interpreted.INTERPRETED else _layer
# ``whole(layout, (record, ...))``: the records with all of each buffer, as vectors; ``work`` has rows.
whole: Any = (lambda layout, records: records) if _interpreted.INTERPRETED else _whole


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
