"""The data of the box iteration: intervals, iterates and working memory, in flat arrays (see ``layout``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp.solvers.layout import BufferSizes, Layout

Floats = NDArray[np.float64]


class Rows(NamedTuple):
    """Tightened intervals (m per block), 1 where an entry is free and 0 where it is fixed, and an
    interior point, which is also the value of the fixed entries."""

    low: Floats
    high: Floats
    free: Floats
    inside: Floats


class Point(NamedTuple):
    """An iterate, or a direction, in units of the block weights."""

    q: Floats
    a: Floats
    b: Floats
    alpha: Floats
    beta: Floats
    kappa: Floats
    V: Floats


class Memory(NamedTuple):
    """Everything else that the iteration writes to; allocated once per shape."""

    log_weight: Floats
    weight: Floats
    root_weight: Floats
    state_scale: Floats  # per state: 1 / sqrt of the starting mass, scales the Schur complement
    reach: Floats  # kernels mixed with all that the sets allow
    q_residual: Floats
    y_residual: Floats
    flow_residual: Floats
    a_inverse: Floats  # 1 / a
    b_inverse: Floats
    alpha_ratio: Floats  # alpha / a
    beta_ratio: Floats
    a_ready: Floats  # q / a where the entry is free, else 0
    b_ready: Floats
    a_second: Floats  # dalpha da
    b_second: Floats
    spread: Floats  # d
    share: Floats  # p
    q_inverse: Floats  # 1 / Kq
    sum_inverse: Floats  # 1 / sum d, or 0 where every entry is fixed
    excess: Floats  # sum e - 1
    alpha_term: Floats  # dalpha = alpha_term - alpha/a da
    beta_term: Floats  # dbeta = beta_term - beta/b db
    y_rhs: Floats
    q_rhs: Floats
    diag: Floats
    off: Floats
    stacked: Floats
    laplacian: Floats  # scratch: one diagonal
    work: Floats
    fastest: Floats  # scratch: one row of blocks
    kernels: Floats
    bound: Floats  # per block: a lower bound of P.V over its box
    products: Floats  # one entry: the number of complementarity products
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
        q=np.zeros(sizes.block),
        a=np.ones(sizes.next),
        b=np.ones(sizes.next),
        alpha=np.ones(sizes.next),
        beta=np.ones(sizes.next),
        kappa=np.zeros(sizes.block),
        V=np.zeros(sizes.state),
    )


def make_memory(layout: Layout, sizes: BufferSizes) -> Memory:
    """Working memory for problems of this layout."""
    block, entry = sizes.block, sizes.next
    lengths = {
        "log_weight": block, "weight": block, "root_weight": block, "state_scale": sizes.state,
        "reach": entry, "q_residual": block, "y_residual": entry,
        "flow_residual": sizes.state, "a_inverse": entry, "b_inverse": entry, "alpha_ratio": entry, "beta_ratio": entry,
        "spread": entry, "share": entry, "q_inverse": block,
        "sum_inverse": block, "excess": block, "alpha_term": entry, "beta_term": entry,
        "y_rhs": entry, "q_rhs": block,
        "a_ready": entry, "b_ready": entry, "a_second": entry, "b_second": entry, "diag": sizes.diag, "off": sizes.off,
        "fastest": int(layout.blocks.max()), "stacked": int((layout.blocks * layout.nexts).max()),
        "laplacian": int(layout.states.max()), "kernels": entry, "bound": block, "products": 1, "log_q": block,
        "q": block, "kept_log_q": block, "kept_q": block, "kept_kernels": entry,
        "mass": sizes.state, "entry_rounding": entry, "blur": sizes.state,
    }  # fmt: skip
    return Memory(
        work=np.zeros((8, int(layout.blocks.max()))),
        **{name: np.zeros(length) for name, length in lengths.items()},
    )
