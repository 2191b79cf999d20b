"""The world (what is true) and the model (what a learner may know): validated, immutable data.

An episodic layered MDP has layers 0..H; layers 0 and H hold one state each, and every transition leads
from a layer to the next one.  A *pair* is a state with an action.  Tables over pairs (losses, policies,
occupancy measures) are lists over layers of arrays ``(S_h, A)``; inside the library the same numbers live
in one flat vector, of which the list entries are views (see :class:`Layers`).
"""

from advmdp.layered.mdps import LayeredMDP, LinearMDP, LinearMixtureMDP
from advmdp.layered.models import LinearMDPModel, LinearMixtureModel, TabularModel
from advmdp.layered.persistence import load_mdp, problem_from_tree, problem_tree
from advmdp.layered.rows import Rows, SparseRows, Table, flat_rows
from advmdp.layered.shape import BoolArray, FloatArray, IntArray, Layers, logarithm
from advmdp.layered.validation import TOLERANCE, checked_available, layer_sizes, masked_layers, with_copied_rows

__all__ = [
    "TOLERANCE",
    "BoolArray",
    "FloatArray",
    "IntArray",
    "LayeredMDP",
    "Layers",
    "LinearMDP",
    "LinearMDPModel",
    "LinearMixtureMDP",
    "LinearMixtureModel",
    "Rows",
    "SparseRows",
    "Table",
    "TabularModel",
    "checked_available",
    "flat_rows",
    "layer_sizes",
    "load_mdp",
    "logarithm",
    "masked_layers",
    "problem_from_tree",
    "problem_tree",
    "with_copied_rows",
]
