"""The two optimisation steps of every learner: the mirror-descent step and the occupancy bounds."""

from advmdp.solvers.conditional import ConditionalStep, conditional_step, conditional_value
from advmdp.solvers.mirror import mirror_descent_step
from advmdp.solvers.occupancy_bounds import lower_occupancy, upper_occupancy
from advmdp.solvers.step import MirrorStep, SolverError

__all__ = [
    "ConditionalStep",
    "MirrorStep",
    "SolverError",
    "conditional_step",
    "conditional_value",
    "lower_occupancy",
    "mirror_descent_step",
    "upper_occupancy",
]
