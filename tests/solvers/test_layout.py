"""Flat buffers and what a layer has of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from advmdp._compiled import body_of, chosen_kernel, kernel
from advmdp.solvers.layout import (
    EXTENTS,
    SCRATCH,
    Layout,
    Per,
    addresses,
    allocate,
    kinds_of,
    layer,
    layer_views,
    make_layout,
    record,
    whole,
)

LAYOUT = make_layout((1, 3, 2, 1), 2, [5, 4], [2, 1], [2, 5])


@record
class Everything(NamedTuple):
    """A buffer of each kind."""

    block: Per.Block
    index: Per.Index
    next: Per.Next
    set: Per.Set
    entry: Per.Entry
    row: Per.Row
    free: Per.Free
    triangle: Per.Triangle
    slope: Per.Slope
    row_slope: Per.RowSlope
    state: Per.State
    diag: Per.Diag
    off: Per.Off
    stack: Per.Stack
    column: Per.Column
    work: Per.Work


@record
class Few(NamedTuple):
    """Another record."""

    block: Per.Block


@chosen_kernel
def answer(record: object, out: np.ndarray) -> None:
    raise NotImplementedError


@body_of(answer, Everything)
def _of_everything(record: Everything, out: np.ndarray) -> None:
    out[0] = 1.0


@body_of(answer, Few)
def _of_few(record: Few, out: np.ndarray) -> None:
    out[0] = 2.0


@kernel
def _ask(record: object, out: np.ndarray) -> None:
    answer(record, out)


@kernel
def _number_layer(layout: Layout, h: int, record: Everything, few: Few) -> float:
    """Add 1, 2, ... to the entries that layer h has of each buffer; the sizes of two of them and of other records."""
    here, other = layer(layout, h, (record, few))
    _number(here.block)
    _number(here.index)
    _number(here.set)
    _number(here.entry.reshape(-1))
    _number(here.next.reshape(-1))
    _number(here.row.reshape(-1))
    _number(here.free.reshape(-1))
    _number(here.triangle.reshape(-1))
    _number(here.slope.reshape(-1))
    _number(here.row_slope.reshape(-1))
    _number(here.state)
    _number(here.diag.reshape(-1))
    _number(here.off.reshape(-1))
    _number(here.stack.reshape(-1))
    _number(here.column.reshape(-1))
    _number(here.work.reshape(-1))
    (all_of,) = whole(layout, (record,))
    return here.slope.shape[1] + 100.0 * here.off.shape[0] + 10000.0 * other.block.shape[0] + 1e6 * all_of.state.size


@kernel
def _number(x: np.ndarray) -> None:
    for i in range(x.shape[0]):
        x[i] += i + 1


def test_layers_share_out_each_buffer_without_gaps_or_overlap() -> None:
    record = allocate(Everything, LAYOUT)
    for h in range(3):
        (here,) = layer_views(LAYOUT, h, (record,))
        for name, table in zip(record._fields, here, strict=True):
            assert len(table.shape) == len(EXTENTS[name])
            table += 1
    for name, buffer in zip(record._fields, record, strict=True):
        # Of states a layer has those of the next one too, but for the terminal one, which none has.
        expected = [1.0] + [2.0] * 5 + [0.0] if name == "state" else np.ones_like(buffer)
        if name in SCRATCH:  # the widest layer has it all
            assert buffer.max() <= 3.0
            assert buffer.min() >= 1.0
        else:
            np.testing.assert_array_equal(buffer, expected)


@pytest.mark.parametrize("h", [0, 1, 2])
def test_compiled_views_are_those_of_the_interpreter(h: int) -> None:
    record, same, few = allocate(Everything, LAYOUT), allocate(Everything, LAYOUT), allocate(Few, LAYOUT)
    found = _number_layer(LAYOUT, h, addresses(record), addresses(few))
    here, other = layer_views(LAYOUT, h, (same, few))
    assert kinds_of(Everything) == list(EXTENTS)
    for table in here:
        table += 1 + np.arange(table.size).reshape(table.shape)
    for compiled, interpreted in zip(record, same, strict=True):
        np.testing.assert_array_equal(compiled, interpreted)
    assert found == here.slope.shape[1] + 100 * here.off.shape[0] + 10000 * other.block.shape[0] + 7e6


def test_a_chosen_kernel_has_the_body_of_the_type_of_its_first_argument() -> None:
    out = np.zeros(1)
    _ask(addresses(allocate(Everything, LAYOUT)), out)
    assert out[0] == 1.0
    _ask(addresses(allocate(Few, LAYOUT)), out)
    assert out[0] == 2.0
