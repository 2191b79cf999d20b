"""What is done where nothing else is asked for; apart from the rest, so that the command line can say so at once."""

from __future__ import annotations

#: What ``advmdp compare`` compares: the learner that we recommend, what people do instead, and those of the literature
#: with the theory's own constants.  Three unlike worlds, each with its losses: they drift, they switch, and they are
#: made against the planner.  None reacts, so that all learners of a seed meet the same.
WORLDS = ("queue", "random-mixture", "routing")
ADVERSARIES = ("drifting", "switching", "misleading")
LEARNERS = (
    "portfolio", "planner", "vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps", "uob-reps", "o-reps-bandit", "uniform",
)  # fmt: skip
EPISODES, SEEDS = 800, 5
#: Beside regret: what the portfolio trusts.
MEASURES = ("trust",)
#: Learners that others are measured against: the one that learns nothing, and the one that knows the transition.
REFERENCES = ("uniform", "o-reps-bandit")
#: Seconds between checkpoints of a cell.
CHECKPOINT_EVERY = 30.0
