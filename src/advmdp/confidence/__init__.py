"""What the data says about the kernel: sets of kernels, one row set per state-action pair."""

from advmdp.confidence.base import ConfidenceSet
from advmdp.confidence.box import BoxSet
from advmdp.confidence.ellipsoid import EllipsoidSet
from advmdp.confidence.known import KnownKernels
from advmdp.confidence.l1 import L1Set
from advmdp.confidence.misspecification import Misspecification

__all__ = ["BoxSet", "ConfidenceSet", "EllipsoidSet", "KnownKernels", "L1Set", "Misspecification"]
