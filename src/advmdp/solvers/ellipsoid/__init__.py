"""Primal-dual interior point for the mirror step over ellipsoidal row sets.

Per block, in units of the block's weight w_b: occupancy q, displacement xi = q chi, slacks
y = E0 q + E xi >= 0 with multipliers lam, and the cone |xi| <= q with multiplier u = (u_q, u_xi).  With prices V,

    stationarity   log(w q / prior) + cost - V(s) + P0.V - E0.lam - u_q = 0,     G'V - E'lam - u_xi = 0,
    flow           sum_a w q(s, a) = sum of w (P0_s q + G_s xi) over the blocks of the layer before,
    path           lam_t y_t = mu q,   (q, xi) o u = mu q (1, 0).

The weights, and the factor q of the path, make the method indifferent to the size of q_b: lam_t P_t = mu however
rarely the pair is played.  Weights appear in the Schur complement only, which is block tridiagonal in V.  Cone
scaling is Nesterov and Todd's, the step Mehrotra's predictor and corrector.
"""

from advmdp.solvers.ellipsoid.newton import CERTIFIABLE, Own, Point, Rows

__all__ = ["CERTIFIABLE", "Own", "Point", "Rows"]
