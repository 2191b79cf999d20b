"""The second-order cone |xi| <= q: its Nesterov-Todd scaling, the second-order correction, the way to its boundary."""

from __future__ import annotations

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import inner_kernel


@inner_kernel
def inner_products(x: Floats, y: Floats, k: int, out: Floats) -> None:
    """``out_b``: sum of x y over the first k coordinates."""
    N = x.shape[1]
    for b in range(N):
        out[b] = 0.0
    for j in range(k):
        left = x[j]
        right = y[j]
        for b in range(N):
            out[b] += left[b] * right[b]


@inner_kernel
def find_scaling(q: Floats, xi: Floats, u: Floats, w: Floats, scale: Floats, work: Floats) -> None:
    """Nesterov-Todd scaling of (q, xi) and u: W^-2 = scale (2 (Jw)(Jw)' - J), with w'Jw = 1."""
    k, N = xi.shape
    xx = work[0]
    uu = work[1]
    xu = work[2]
    inner_products(xi, xi, k, xx)
    inner_products(u, u, k, uu)
    inner_products(xi, u, k, xu)
    for b in range(N):
        norm = np.sqrt(xx[b])
        size = np.sqrt(uu[b])
        x_det = np.sqrt((q[b] - norm) * (q[b] + norm))
        u_det = np.sqrt((u[k, b] - size) * (u[k, b] + size))
        twice = np.sqrt(2.0 + 2.0 * (xu[b] + q[b] * u[k, b]) / (x_det * u_det))
        scale[b] = u_det / x_det
        xx[b] = 1.0 / (x_det * twice)
        uu[b] = 1.0 / (u_det * twice)
    for j in range(k):
        for b in range(N):
            w[j, b] = xi[j, b] * xx[b] - u[j, b] * uu[b]
    for b in range(N):
        w[k, b] = q[b] * xx[b] + u[k, b] * uu[b]


@inner_kernel
def apply_scaling(w: Floats, x: Floats, factor: Floats, sign: float, out: Floats, work: Floats) -> None:
    """``out = W x`` (sign 1) or ``W^-1 x`` (sign -1): factor (w_q, +-w_xi'; +-w_xi, I + w_xi w_xi' / (1 + w_q)).

    ``factor`` is eta (or 1/eta for the inverse) per block; q is the last coordinate.
    """
    size, N = x.shape
    k = size - 1
    inner = work
    inner_products(w, x, k, inner)
    for j in range(k):
        for b in range(N):
            along = inner[b] / (1.0 + w[k, b]) + sign * x[k, b]
            out[j, b] = factor[b] * (x[j, b] + along * w[j, b])
    for b in range(N):
        out[k, b] = factor[b] * (w[k, b] * x[k, b] + sign * inner[b])


@inner_kernel
def corrector(
    q: Floats, u: Floats, dq: Floats, dxi: Floats, du: Floats, w: Floats, scale: Floats,
    target: float, point: Floats, left: Floats, right: Floats, work: Floats, out: Floats,
) -> None:  # fmt: skip
    """``out = W^-1 z - u`` with l o z = target q e - (W^-1 dx) o (W du), l = W u = W^-1 x the scaled point."""
    k, N = dxi.shape
    eta = work[4]
    inverse = work[5]
    for b in range(N):
        inverse[b] = np.sqrt(scale[b])
    for b in range(N):
        eta[b] = 1.0 / inverse[b]
    for j in range(k):
        for b in range(N):
            out[j, b] = dxi[j, b]
    for b in range(N):
        out[k, b] = dq[b]
    apply_scaling(w, out, inverse, -1.0, left, work[0])
    apply_scaling(w, du, eta, 1.0, right, work[0])
    apply_scaling(w, u, eta, 1.0, point, work[0])
    # left := target e - left o right
    inner = work[0]
    det = work[1]
    inner_products(left, right, k + 1, inner)
    for j in range(k):
        for b in range(N):
            left[j, b] = -(left[k, b] * right[j, b] + right[k, b] * left[j, b])
    for b in range(N):
        left[k, b] = target * q[b] - inner[b]
    # right := l \ left, the solution of the arrow system of l
    inner_products(point, point, k, det)
    inner_products(point, left, k, inner)
    for b in range(N):
        norm = np.sqrt(det[b])
        det[b] = (point[k, b] - norm) * (point[k, b] + norm)
    for b in range(N):
        right[k, b] = (point[k, b] * left[k, b] - inner[b]) / det[b]
    for j in range(k):
        for b in range(N):
            right[j, b] = (left[j, b] - right[k, b] * point[j, b]) / point[k, b]
    apply_scaling(w, right, inverse, -1.0, out, work[0])
    for j in range(k + 1):
        for b in range(N):
            out[j, b] -= u[j, b]


@inner_kernel
def predictor(q: Floats, xi: Floats, u: Floats, target: float, work: Floats, out: Floats) -> None:
    """``out = target q x^-1 - u``, with the inverse J x / x'Jx of x = (xi, q) in the cone's algebra."""
    k, N = xi.shape
    inner_products(xi, xi, k, work)
    for b in range(N):
        norm = np.sqrt(work[b])
        work[b] = target * q[b] / ((q[b] - norm) * (q[b] + norm))
    for b in range(N):
        out[k, b] = work[b] * q[b] - u[k, b]
    for j in range(k):
        for b in range(N):
            out[j, b] = -work[b] * xi[j, b] - u[j, b]


@inner_kernel
def move(w: Floats, scale: Floats, cone_term: Floats, dq: Floats, dxi: Floats, work: Floats, du: Floats) -> None:
    """``du = cone_term - W^-2 dx = cone_term - scale (2 (Jw) (Jw)'dx - J dx)``."""
    k, N = dxi.shape
    inner_products(w, dxi, k, work)
    for b in range(N):
        work[b] = 2.0 * (w[k, b] * dq[b] - work[b])
    for j in range(k):
        for b in range(N):
            du[j, b] = cone_term[j, b] + scale[b] * (work[b] * w[j, b] - dxi[j, b])
    for b in range(N):
        du[k, b] = cone_term[k, b] - scale[b] * (work[b] * w[k, b] - dq[b])


@inner_kernel
def longest_step(k: int, point: Floats, head: Floats, step: Floats, step_head: Floats, work: Floats) -> float:
    """Largest alpha for which (head, point) + alpha (step_head, step), points of k coordinates, stays in the cone."""
    N = head.shape[0]
    pp = work[0]
    ps = work[1]
    ss = work[2]
    inner_products(point, point, k, pp)
    inner_products(point, step, k, ps)
    inner_products(step, step, k, ss)
    for b in range(N):
        norm = np.sqrt(pp[b])
        size = np.sqrt(ss[b])
        c = (head[b] - norm) * (head[b] + norm)
        a = (step_head[b] - size) * (step_head[b] + size)
        half = head[b] * step_head[b] - ps[b]
        disc = half * half - a * c
        root = np.sqrt(max(disc, 0.0))
        top = c if half < 0.0 else half + root
        bottom = root - half if half < 0.0 else -a
        pp[b] = top / bottom if disc >= 0.0 and bottom > 0.0 else np.inf
    best = np.inf
    for b in range(N):
        best = min(best, pp[b])
    return best
