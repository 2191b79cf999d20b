"""Online learners, one file per algorithm."""

from __future__ import annotations

from advmdp.learners.bank import VlsuobRepsBank
from advmdp.learners.base import Learner, load_learner, make_learner
from advmdp.learners.dilated_bonus import DilatedBonus
from advmdp.learners.exp3_policies import Exp3Policies
from advmdp.learners.ftl import FollowTheLeader
from advmdp.learners.hindsight import Hindsight
from advmdp.learners.lsuob_reps import LsuobReps
from advmdp.learners.mdp_e import MdpE
from advmdp.learners.o_reps import OReps, ORepsBandit
from advmdp.learners.oppo import Oppo
from advmdp.learners.planner import Planner
from advmdp.learners.pomd import Pomd
from advmdp.learners.portfolio import Portfolio
from advmdp.learners.powers import Powers
from advmdp.learners.restart import VlsuobRepsAnytime, VlsuobRepsRestart
from advmdp.learners.uc_o_reps import BanditUcOReps, UcOReps
from advmdp.learners.ucrl_vtr import UcrlVtr
from advmdp.learners.uniform import Uniform
from advmdp.learners.uob_reps import UobReps
from advmdp.learners.vlsuob_reps import VlsuobReps, VlsuobRepsTight
from advmdp.registry import learners

__all__ = [
    "BanditUcOReps",
    "DilatedBonus",
    "Exp3Policies",
    "FollowTheLeader",
    "Hindsight",
    "Learner",
    "LsuobReps",
    "MdpE",
    "OReps",
    "ORepsBandit",
    "Oppo",
    "Planner",
    "Pomd",
    "Portfolio",
    "Powers",
    "UcOReps",
    "UcrlVtr",
    "Uniform",
    "UobReps",
    "VlsuobReps",
    "VlsuobRepsAnytime",
    "VlsuobRepsBank",
    "VlsuobRepsRestart",
    "VlsuobRepsTight",
    "learners",
    "load_learner",
    "make_learner",
]
