"""Boxes of probabilities in the interior point of the mirror step.

A block has flows y_t with sum q (multiplier kappa), slacks a = y - low q and b = high q - y, one after the other in
the rows of a layer, with multipliers alpha and beta.  With prices V,

    log(w q / prior) + cost - V(s) + low.alpha - high.beta - kappa = 0,     V_t - alpha_t + beta_t + kappa = 0,

and alpha a = beta b = mu q on the path.  The block matrix is never factored: with

    d_t = 1 / (alpha/a + beta/b),  e_t = (low alpha/a + high beta/b) d_t,  p_t = e_t - (sum e - 1) d_t / sum d,
    Kq = 1/q + sum alpha beta / (a b) (high - low)^2 d + (sum e - 1)^2 / sum d

the Schur complement of a block is w [(e_s - p)(e_s - p)' / Kq + diag(d) - d d' / sum d].  An entry whose interval
is narrower than ``FIXED_WIDTH`` is a constant: d_t = 0 and e_t its value.
"""

from advmdp.solvers.box.newton import CERTIFIABLE, Own, Point, Rows
from advmdp.solvers.box.start import move_inside, prepare

__all__ = ["CERTIFIABLE", "Own", "Point", "Rows", "move_inside", "prepare"]
