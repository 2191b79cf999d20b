"""Where the iteration over boxes starts: at a point inside each box, or at rows of an earlier step moved inside."""

from __future__ import annotations

from advmdp._arrays import Floats
from advmdp._compiled import inner_kernel, kernel
from advmdp.rows.box import presolve_box_layer
from advmdp.solvers.box.newton import Rows
from advmdp.solvers.centring import warm_share
from advmdp.solvers.layout import Layout, layer, view2, view3, whole

FIXED_WIDTH = 1e-11


@kernel
def prepare(layout: Layout, lower: Floats, upper: Floats, rows: Rows, work: Floats) -> int:
    """Tighten the given bounds, tables (S_h, A, S_{h+1}) one after the other, and find a point inside every block.

    The number of empty blocks is returned; if there are any, no points are sought.
    """
    n_empty = 0
    for h in range(layout.shape[0] - 1):
        n, m, N, at = layout[h].states, layout[h].nexts, layout[h].blocks, layout[h].next_at
        if m > 0:
            ((low, high, _, _),) = layer(layout, h, (rows,))
            n_empty += presolve_box_layer(
                view3(lower, at, n, N // n, m), view3(upper, at, n, N // n, m), low, high, work
            )
    if n_empty == 0:
        find_inside(layout, rows)
    return n_empty


@inner_kernel
def find_inside(layout: Layout, rows: Rows) -> None:
    """A point of each block, at the same share of the way from low to high in every entry, and which are fixed.

    The analytic centre would save half an iteration at most, and takes as long to find.
    """
    for h in range(layout.shape[0] - 1):
        ((low, high, free, inside),) = layer(layout, h, (rows,))
        m, N = low.shape
        for b in range(N):
            left = 1.0
            widths = 0.0
            for t in range(m):
                left -= low[t, b]
                widths += high[t, b] - low[t, b]
            share = min(max(left / widths, 0.0), 1.0) if widths > 0.0 else 0.0
            for t in range(m):
                width = high[t, b] - low[t, b]
                inside[t, b] = low[t, b] + share * width
                free[t, b] = 1.0 if width * min(share, 1.0 - share) > FIXED_WIDTH else 0.0


@kernel
def move_inside(layout: Layout, rows: Rows, last: Floats, before: Floats, out: Floats) -> float:
    """Kernels where a step ended that had been given ``before``, as rows strictly inside this set: clipped, moved to
    the point inside except for a share of the way, which is returned, and made to sum to one.

    The iteration keeps row sums as they are, so they must be right from the start: an excess is taken from what lies
    above the lower bounds, a deficit from what is left below the upper ones.
    """
    (every,) = whole(layout, (rows,))
    share = warm_share(every.inside, before, last)
    for h in range(layout.shape[0] - 2):
        ((low, high, _, inside),) = layer(layout, h, (rows,))
        m, N = low.shape
        given = view2(last, layout[h].next_at, m, N)
        P = view2(out, layout[h].next_at, m, N)
        for i in range(N):
            total = 0.0
            bottom = 0.0
            top = 0.0
            for t in range(m):
                clipped = min(max(given[t, i], low[t, i]), high[t, i])
                P[t, i] = share * clipped + (1.0 - share) * inside[t, i]
                total += P[t, i]
                bottom += low[t, i]
                top += high[t, i]
            if total > 1.0:
                kept = (1.0 - bottom) / (total - bottom)
                for t in range(m):
                    P[t, i] = low[t, i] + kept * (P[t, i] - low[t, i])
            elif total < 1.0:
                kept = (top - 1.0) / (top - total)
                for t in range(m):
                    P[t, i] = high[t, i] - kept * (high[t, i] - P[t, i])
    return share
