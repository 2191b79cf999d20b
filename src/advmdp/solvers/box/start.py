"""Where the iteration over boxes starts: at the centre of each box, or at rows of an earlier step moved inside."""

from __future__ import annotations

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import inner_kernel, kernel
from advmdp.rows.box import presolve_box_layer
from advmdp.solvers.box.newton import Rows
from advmdp.solvers.centring import warm_share
from advmdp.solvers.layout import Layout, layer, view2, view3

FIXED_WIDTH = 1e-11
# The sum of a centred block may be off by this share of what it can move before it is closed by a common factor.
CENTRED = 0.02


@kernel
def prepare(layout: Layout, lower: Floats, upper: Floats, rows: Rows, work: Floats) -> int:
    """Tighten the given bounds, tables (S_h, A, S_{h+1}) one after the other, and centre every block.

    The number of empty blocks is returned; if there are any, nothing is centred.
    """
    n_empty = 0
    for h in range(layout.states.shape[0]):
        n, m, N, at = layout.states[h], layout.nexts[h], layout.blocks[h], layout.next_at[h]
        if m > 0:
            ((low, high, _, _),) = layer(layout, h, (rows,))
            n_empty += presolve_box_layer(
                view3(lower, at, n, N // n, m), view3(upper, at, n, N // n, m), low, high, work
            )
    if n_empty == 0:
        centre_boxes(layout, rows)
    return n_empty


@inner_kernel
def centre_boxes(layout: Layout, rows: Rows) -> None:
    """Find the centre of each block, the maximum of sum log(P - low) + log(high - P) over distributions, and
    decide which entries are fixed.

    With multiplier k of the sum, P - low = width (1 - s) / 2 where s = c / (1 + sqrt(1 + c^2)), c = k width / 2; the
    sum falls with k, and Newton's method with a bracket finds its root.
    """
    for h in range(layout.states.shape[0]):
        ((low, high, free, inside),) = layer(layout, h, (rows,))
        m, N = low.shape
        for b in range(N):
            left = 1.0
            widths = 0.0
            for t in range(m):
                left -= low[t, b]
                widths += high[t, b] - low[t, b]
            left = min(max(left, 0.0), widths)
            below = -np.inf
            above = np.inf
            slope = 2.0 * (1.0 - 2.0 * left / widths) / (widths / m) if widths > 0.0 else 0.0
            for _ in range(30):
                total = 0.0
                change = 0.0
                for t in range(m):
                    half = 0.5 * (high[t, b] - low[t, b])
                    c = slope * half
                    root = np.sqrt(1.0 + c * c)
                    total += half * (1.0 - c / (1.0 + root))
                    change += half * half / (root * (1.0 + root))
                if total > left:
                    below = slope
                else:
                    above = slope
                if abs(total - left) <= CENTRED * min(left, widths - left) or not change > 0.0:
                    break
                slope += (total - left) / change
                if slope <= below or slope >= above:
                    # A step out of the bracket: halve it, or double where it is still open.
                    if below == -np.inf:
                        slope = 2.0 * above - 1.0 / widths
                    elif above == np.inf:
                        slope = 2.0 * below + 1.0 / widths
                    else:
                        slope = 0.5 * (below + above)
            # Close the rest of the sum by a common factor, towards the nearer bounds.
            total = 0.0
            for t in range(m):
                half = 0.5 * (high[t, b] - low[t, b])
                c = slope * half
                inside[t, b] = half * (1.0 - c / (1.0 + np.sqrt(1.0 + c * c)))
                total += inside[t, b]
            shrink = total > left
            factor = left / total if shrink and total > 0.0 else 1.0
            if not shrink and widths > total:
                factor = (widths - left) / (widths - total)
            for t in range(m):
                width = high[t, b] - low[t, b]
                if shrink:
                    inside[t, b] *= factor
                else:
                    inside[t, b] = width - factor * (width - inside[t, b])
                wide = min(inside[t, b], width - inside[t, b])
                inside[t, b] += low[t, b]
                free[t, b] = 1.0 if wide > FIXED_WIDTH else 0.0


@kernel
def move_inside(layout: Layout, rows: Rows, last: Floats, before: Floats, out: Floats) -> float:
    """Kernels where a step ended that had been given ``before``, as rows strictly inside this set: clipped, moved to
    the centre except for a share of the way, which is returned, and made to sum to one.

    The iteration keeps row sums as they are, so they must be right from the start: an excess is taken from what lies
    above the lower bounds, a deficit from what is left below the upper ones.
    """
    share = warm_share(rows.inside, before, last)
    for h in range(layout.states.shape[0] - 1):
        ((low, high, _, inside),) = layer(layout, h, (rows,))
        m, N = low.shape
        given = view2(last, layout.next_at[h], m, N)
        P = view2(out, layout.next_at[h], m, N)
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
