"""advmdp: online learning in adversarial Markov decision processes."""

from advmdp import confidence, errors, occupancy
from advmdp.adversaries import Adversary, make_adversary
from advmdp.episodes import Episode, play
from advmdp.errors import (
    ConcurrentUseError,
    CorruptCheckpointError,
    InvalidEpisodeError,
    InvalidMDPError,
    InvalidSpecError,
)
from advmdp.experiments import RunResult, run
from advmdp.layered import (
    LayeredMDP,
    LinearMixtureMDP,
    LinearMixtureModel,
    TabularModel,
    load_mdp,
)
from advmdp.learners import Learner, load_learner, make_learner
from advmdp.registry import register_adversary, register_learner, register_natural_losses, register_world
from advmdp.scene import Scene
from advmdp.worlds import make_world

__version__ = "0.1.0"

__all__ = [
    "Adversary",
    "ConcurrentUseError",
    "CorruptCheckpointError",
    "Episode",
    "InvalidEpisodeError",
    "InvalidMDPError",
    "InvalidSpecError",
    "LayeredMDP",
    "Learner",
    "LinearMixtureMDP",
    "LinearMixtureModel",
    "RunResult",
    "Scene",
    "TabularModel",
    "confidence",
    "errors",
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
    "run",
]
