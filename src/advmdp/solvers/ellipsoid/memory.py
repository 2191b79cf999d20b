"""The data of the ellipsoid iteration: sets, iterates and working memory, in flat arrays (see ``layout``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp.solvers.layout import BufferSizes, Layout

Floats = NDArray[np.float64]


class Rows(NamedTuple):
    """The presolved sets: P = P0 + G chi, rows E0 + E chi >= 0, |chi| <= 1 (see ``presolve``)."""

    P0: Floats
    G: Floats
    E0: Floats
    E: Floats


class Point(NamedTuple):
    """An iterate, or a direction, in units of the block weights."""

    q: Floats
    xi: Floats
    y: Floats
    lam: Floats
    u: Floats  # (k + 1) per block: u_xi, then u_q last
    V: Floats


class Memory(NamedTuple):
    """Everything else that the iteration writes to; allocated once per shape."""

    log_weight: Floats
    weight: Floats
    root_weight: Floats
    state_scale: Floats  # per state: 1 / sqrt of the starting mass, scales the Schur complement
    reach: Floats  # kernels mixed with all that the sets allow
    dual_residual: Floats  # (k + 1) per block, q last
    row_residual: Floats
    rounding: Floats  # per row: the size of a residual that rounding explains
    flow_residual: Floats  # per state
    scaling: Floats  # (k + 1) per block: the point w of the NT scaling, q last
    scale: Floats  # per block: eta^-2, the factor of W^-2
    triangle: Floats  # Cholesky factors of the block matrices K
    rhs: Floats  # (k + 1) per block
    diag: Floats
    off: Floats
    stacked: Floats  # scratch: C L^-T sqrt(w), one row per next state
    column: Floats  # scratch: one column of L^-1 C' for all blocks of a layer
    work: Floats  # scratch: rows of blocks of the widest layer
    fastest: Floats  # scratch: one row
    inverse: Floats  # per row: 1 / y
    ratio: Floats  # per row: lam / y
    ready: Floats  # per row: q / y
    second: Floats  # per row: dlam dy
    row_term: Floats  # dlam = row_term - (lam / y) dy
    cone_term: Floats  # du = cone_term - W^-2 dx
    cone_scratch: Floats  # scratch: three cone vectors for all blocks of a layer
    chi: Floats  # where the iteration starts; xi / q of the certified iterate
    kernels: Floats
    bound: Floats
    log_q: Floats
    q: Floats
    kept_log_q: Floats  # the answer of the best certificate so far, if that was not good enough
    kept_q: Floats
    kept_kernels: Floats
    mass: Floats
    entry_rounding: Floats  # per entry of P: how well it is known
    blur: Floats  # per state: how well the logarithm of its mass is known


def make_point(sizes: BufferSizes) -> Point:
    """Room for an iterate or a direction."""
    return Point(
        np.zeros(sizes.block),
        np.zeros(sizes.free),
        np.zeros(sizes.row),
        np.zeros(sizes.row),
        np.zeros(sizes.cone),
        np.zeros(sizes.state),
    )


def make_memory(layout: Layout, sizes: BufferSizes) -> Memory:
    """Working memory for problems of this layout."""
    widest = int(layout.blocks.max())
    stacked = int((layout.blocks * (layout.free + 1) * layout.nexts).max())
    return Memory(
        log_weight=np.zeros(sizes.block),
        weight=np.zeros(sizes.block),
        root_weight=np.zeros(sizes.block),
        state_scale=np.zeros(sizes.state),
        reach=np.zeros(sizes.next),
        dual_residual=np.zeros(sizes.cone),
        row_residual=np.zeros(sizes.row),
        rounding=np.zeros(sizes.row),
        flow_residual=np.zeros(sizes.state),
        scaling=np.zeros(sizes.cone),
        scale=np.zeros(sizes.block),
        triangle=np.zeros(sizes.triangle),
        rhs=np.zeros(sizes.cone),
        diag=np.zeros(sizes.diag),
        off=np.zeros(sizes.off),
        stacked=np.zeros(stacked),
        column=np.zeros(int((layout.blocks * (layout.free + 1)).max())),
        work=np.zeros((8, widest)),
        fastest=np.zeros(widest),
        inverse=np.zeros(sizes.row),
        ratio=np.zeros(sizes.row),
        ready=np.zeros(sizes.row),
        second=np.zeros(sizes.row),
        row_term=np.zeros(sizes.row),
        cone_term=np.zeros(sizes.cone),
        cone_scratch=np.zeros(3 * int((layout.blocks * (layout.free + 1)).max())),
        chi=np.zeros(sizes.free),
        kernels=np.zeros(sizes.next),
        bound=np.zeros(sizes.block),
        log_q=np.zeros(sizes.block),
        q=np.zeros(sizes.block),
        kept_log_q=np.zeros(sizes.block),
        kept_q=np.zeros(sizes.block),
        kept_kernels=np.zeros(sizes.next),
        mass=np.zeros(sizes.state),
        entry_rounding=np.zeros(sizes.next),
        blur=np.zeros(sizes.state),
    )
