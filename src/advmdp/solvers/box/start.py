"""The first iterate: the centre of each box, or rows of an earlier step moved inside."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel, kernel
from advmdp.rows.box import presolve_box_layer
from advmdp.solvers.box.memory import Memory, Point, Rows
from advmdp.solvers.centring import warm_share
from advmdp.solvers.certificate import set_scale, start_prices
from advmdp.solvers.layout import Layout, view2, view3

Floats = NDArray[np.float64]

FIXED_WIDTH = 1e-11
# The sum of a centred block may be off by this share of what it can move before it is closed by a common factor.
CENTRED = 0.02


@kernel
def prepare(layout: Layout, lower: Floats, upper: Floats, rows: Rows, memory: Memory) -> int:
    """Tighten the given bounds, tables (S_h, A, S_{h+1}) one after the other, and centre every block.

    The number of empty blocks is returned; if there are any, nothing is centred.
    """
    n_empty = 0
    for h in range(layout.states.shape[0]):
        n = layout.states[h]
        m = layout.nexts[h]
        N = layout.blocks[h]
        at = layout.next_at[h]
        if m > 0:
            n_empty += presolve_box_layer(
                view3(lower, at, n, N // n, m),
                view3(upper, at, n, N // n, m),
                view2(rows.low, at, m, N),
                view2(rows.high, at, m, N),
                memory.work[0],
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
        m = layout.nexts[h]
        N = layout.blocks[h]
        low = view2(rows.low, layout.next_at[h], m, N)
        high = view2(rows.high, layout.next_at[h], m, N)
        free = view2(rows.free, layout.next_at[h], m, N)
        inside = view2(rows.inside, layout.next_at[h], m, N)
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
        m = layout.nexts[h]
        N = layout.blocks[h]
        low = view2(rows.low, layout.next_at[h], m, N)
        high = view2(rows.high, layout.next_at[h], m, N)
        inside = view2(rows.inside, layout.next_at[h], m, N)
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


@inner_kernel
def start(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, mu: float, per_spread: float,
    careful: bool, x: Point, memory: Memory,
) -> float:  # fmt: skip
    """Set the first iterate at the kernels that ``memory.kernels`` holds (inside the boxes); return its mu.

    ``careful``: with masses that satisfy the flow equations.
    """
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        at = layout.next_at[h]
        for i in range(at, at + m * layout.blocks[h]):
            memory.reach[i] = 0.9 * memory.kernels[i] + 0.1 / m * rows.high[i]
            memory.entry_rounding[i] = 1e-15 * rows.high[i]
    spread = start_prices(
        layout, memory.kernels, memory.reach, log_prior, cost, careful, memory.work, memory.log_q,
        memory.mass, x.V, memory.log_weight,
    )  # fmt: skip
    set_scale(layout, memory.mass, memory.state_scale)
    mu = max(mu, per_spread * spread)
    count = 0.0
    for i in range(rows.free.shape[0]):
        count += 2.0 * rows.free[i]
    memory.products[0] = max(count, 1.0)
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        low = view2(rows.low, layout.next_at[h], m, N)
        high = view2(rows.high, layout.next_at[h], m, N)
        free = view2(rows.free, layout.next_at[h], m, N)
        P = view2(memory.kernels, layout.next_at[h], m, N)
        a = view2(x.a, layout.next_at[h], m, N)
        b = view2(x.b, layout.next_at[h], m, N)
        alpha = view2(x.alpha, layout.next_at[h], m, N)
        beta = view2(x.beta, layout.next_at[h], m, N)
        top = memory.work[0]
        bottom = memory.work[1]
        for i in range(N):
            memory.weight[at + i] = np.exp(memory.log_weight[at + i])
            memory.root_weight[at + i] = np.exp(0.5 * memory.log_weight[at + i])
            x.q[at + i] = 1.0
            top[i] = 0.0
            bottom[i] = 0.0
        for t in range(m):
            price = x.V[layout.state_at[h + 1] + t]
            for i in range(N):
                if free[t, i] > 0.0:
                    a[t, i] = P[t, i] - low[t, i]
                    b[t, i] = high[t, i] - P[t, i]
                    alpha[t, i] = mu / a[t, i]
                    beta[t, i] = mu / b[t, i]
                    d = 1.0 / (alpha[t, i] / a[t, i] + beta[t, i] / b[t, i])
                    top[i] += d * (price - alpha[t, i] + beta[t, i])
                    bottom[i] += d
                else:
                    a[t, i] = 1.0
                    b[t, i] = 1.0
                    alpha[t, i] = 0.0
                    beta[t, i] = 0.0
        for i in range(N):
            x.kappa[at + i] = -top[i] / bottom[i] if bottom[i] > 0.0 else 0.0
    return mu
