"""From a process as people describe it (own states, actions, costs, scenarios) to a model and a learner, and back."""

from advmdp.process.space import ENDED, Process

__all__ = ["ENDED", "Process"]
