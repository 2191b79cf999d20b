"""What is done where nothing else is asked for; apart from the rest, so that the command line can say so at once."""

from __future__ import annotations

#: What ``advmdp compare`` compares: the learner that we recommend, what people do instead, and those of the literature
#: with the theory's own constants; three unlike worlds, losses that change.
WORLDS = ("random-mixture", "frozen-lake", "routing")
ADVERSARIES = ("switching",)
LEARNERS = (
    "portfolio", "planner", "vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps", "uob-reps", "o-reps-bandit", "uniform",
)  # fmt: skip
EPISODES, SEEDS = 1000, 5
#: Learners that others are measured against: the one that learns nothing, and the one that knows the transition.
REFERENCES = ("uniform", "o-reps-bandit")
#: Seconds between checkpoints of a cell.
CHECKPOINT_EVERY = 30.0
