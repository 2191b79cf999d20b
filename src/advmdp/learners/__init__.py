"""Online learners, one file per algorithm."""

from __future__ import annotations

from advmdp.learners.bank import VlsuobRepsBank as VlsuobRepsBank
from advmdp.learners.base import Learner as Learner
from advmdp.learners.base import load_learner as load_learner
from advmdp.learners.base import make_learner as make_learner
from advmdp.learners.dilated_bonus import DilatedBonus as DilatedBonus
from advmdp.learners.dilated_bonus import DilatedBonusTotal as DilatedBonusTotal
from advmdp.learners.dilated_bonus_linear import DilatedBonusLinear as DilatedBonusLinear
from advmdp.learners.do_reps import DoReps as DoReps
from advmdp.learners.exp3_policies import Exp3Policies as Exp3Policies
from advmdp.learners.ftl import FollowTheLeader as FollowTheLeader
from advmdp.learners.hindsight import Hindsight as Hindsight
from advmdp.learners.lazy_fpl import LazyFpl as LazyFpl
from advmdp.learners.lsuob_reps import LsuobReps as LsuobReps
from advmdp.learners.mdp_e import MdpE as MdpE
from advmdp.learners.mdp_linexp3 import MdpLinExp3 as MdpLinExp3
from advmdp.learners.o_reps import OReps as OReps
from advmdp.learners.o_reps import ORepsBandit as ORepsBandit
from advmdp.learners.occupancy_values import HfO2ps as HfO2ps
from advmdp.learners.occupancy_values import OccupancyEnsemble as OccupancyEnsemble
from advmdp.learners.oppo import Oppo as Oppo
from advmdp.learners.oppo_linear import OppoLinear as OppoLinear
from advmdp.learners.planner import Planner as Planner
from advmdp.learners.pomd import Pomd as Pomd
from advmdp.learners.portfolio import Portfolio as Portfolio
from advmdp.learners.powers import Powers as Powers
from advmdp.learners.powers import PowersDynamic as PowersDynamic
from advmdp.learners.q_reps import QReps as QReps
from advmdp.learners.restart import VlsuobRepsRestart as VlsuobRepsRestart
from advmdp.learners.tsallis_reps import TsallisReps as TsallisReps
from advmdp.learners.tsallis_reps import TsallisRepsOptimistic as TsallisRepsOptimistic
from advmdp.learners.uc_o_reps import BanditUcOReps as BanditUcOReps
from advmdp.learners.uc_o_reps import UcOReps as UcOReps
from advmdp.learners.ucrl_vtr import UcrlVtr as UcrlVtr
from advmdp.learners.uniform import Uniform as Uniform
from advmdp.learners.uob_reps import DelayedUobReps as DelayedUobReps
from advmdp.learners.uob_reps import UobReps as UobReps
from advmdp.learners.uob_reps_linear import UobRepsLinear as UobRepsLinear
from advmdp.learners.vls_o_reps import VlsOReps as VlsOReps
from advmdp.learners.vlsuob_reps import VlsuobReps as VlsuobReps
from advmdp.learners.vlsuob_reps import VlsuobRepsAnytime as VlsuobRepsAnytime
from advmdp.learners.vlsuob_reps import VlsuobRepsSharp as VlsuobRepsSharp
from advmdp.learners.vlsuob_reps import VlsuobRepsTight as VlsuobRepsTight
from advmdp.registry import learners as learners

__all__ = sorted(name for name, value in globals().items() if isinstance(value, type) or name.endswith("_learner"))
