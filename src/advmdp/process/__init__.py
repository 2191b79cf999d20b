"""From a process as people describe it (own states, actions, costs, scenarios) to a model and a learner, and back."""

from advmdp.process.agent import Agent, OpenEpisode, load_agent
from advmdp.process.explanation import Explanation
from advmdp.process.space import ENDED, Process

__all__ = ["ENDED", "Agent", "Explanation", "OpenEpisode", "Process", "load_agent"]
