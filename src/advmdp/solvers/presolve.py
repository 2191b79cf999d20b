"""Where the mirror step looks for the presolve of its rows."""

from advmdp.rows.box import presolve_box_layer
from advmdp.rows.ellipsoid import EMPTY_MARGIN

__all__ = ["EMPTY_MARGIN", "presolve_box_layer"]
