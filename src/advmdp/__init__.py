"""advmdp: online learning in adversarial Markov decision processes."""

from typing import TYPE_CHECKING

from advmdp import confidence, errors, occupancy
from advmdp._lazy import lazy
from advmdp._threads import use_threads
from advmdp._warm_up import warm_up
from advmdp.adversaries import Adversary, make_adversary
from advmdp.episodes import Episode, play
from advmdp.errors import (
    ConcurrentUseError,
    CorruptCheckpointError,
    InvalidEpisodeError,
    InvalidMDPError,
    InvalidSpecError,
    StoreBusyError,
)
from advmdp.layered import (
    LayeredMDP,
    LinearMDP,
    LinearMDPModel,
    LinearMixtureMDP,
    LinearMixtureModel,
    TabularModel,
    load_mdp,
)
from advmdp.learners import Learner, load_learner, make_learner
from advmdp.learners.parts.predictors import ridge
from advmdp.registry import register_adversary, register_learner, register_natural_losses, register_world
from advmdp.scene import Scene
from advmdp.solvers import SolverError
from advmdp.worlds import make_world

if TYPE_CHECKING:
    from advmdp.experiments import RunResult, run
    from advmdp.process import Agent, Process, load_agent
else:  # these need pandas, pyarrow and more, or are not everybody's
    __getattr__ = lazy(
        __name__,
        Agent="advmdp.process",
        Process="advmdp.process",
        RunResult="advmdp.experiments.runner",
        experiments="advmdp.experiments",
        load_agent="advmdp.process",
        run="advmdp.experiments.runner",
        theory="advmdp.theory",
    )

__version__ = "0.1.0"

__all__ = [
    "Adversary",
    "Agent",
    "ConcurrentUseError",
    "CorruptCheckpointError",
    "Episode",
    "InvalidEpisodeError",
    "InvalidMDPError",
    "InvalidSpecError",
    "LayeredMDP",
    "Learner",
    "LinearMDP",
    "LinearMDPModel",
    "LinearMixtureMDP",
    "LinearMixtureModel",
    "Process",
    "RunResult",
    "Scene",
    "SolverError",
    "StoreBusyError",
    "TabularModel",
    "confidence",
    "errors",
    "load_agent",
    "load_learner",
    "load_mdp",
    "make_adversary",
    "make_learner",
    "make_world",
    "occupancy",
    "play",
    "register_adversary",
    "register_learner",
    "register_natural_losses",
    "register_world",
    "ridge",
    "run",
    "use_threads",
    "warm_up",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "experiments", "theory"})
