"""Online learners, one file per algorithm."""

from __future__ import annotations

from advmdp.learners.base import Learner, load_learner, make_learner
from advmdp.learners.ftl import FollowTheLeader
from advmdp.learners.hindsight import Hindsight
from advmdp.learners.uniform import Uniform
from advmdp.registry import learners

__all__ = [
    "FollowTheLeader",
    "Hindsight",
    "Learner",
    "Uniform",
    "learners",
    "load_learner",
    "make_learner",
]
