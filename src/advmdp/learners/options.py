"""The options of the learners, each declared and checked once.

A learner names a class of options as ``Options``; its fields are keyword arguments of the constructor and attributes
of the learner.  Classes of options are built from one another, so that ``eta`` means the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from advmdp._checks import integer
from advmdp.confidence.regression import Geometry, Radius
from advmdp.errors import InvalidSpecError
from advmdp.layered import LinearMixtureModel
from advmdp.learners.parts.predictors import NAMED, Ridge

Entropy = Literal["pairs", "triples", "conditional"]

# Of radii: thinner sets are lost to rounding.
LEAST_SCALE = 1e-10


def require(valid: bool, option: str, value: object, wanted: str) -> None:
    """Raise InvalidSpecError, naming the option, its value and what would be right, unless ``valid``."""
    if not valid:
        raise InvalidSpecError(f"{option} is {value!r}, should be {wanted}")


def number(value: object, above: float) -> bool:
    """Whether this is a finite number above a limit."""
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return real and above < value < np.inf  # type: ignore[operator]


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """None."""

    def __post_init__(self) -> None:
        """Where classes of options that are built from others end their checks."""


@dataclass(frozen=True, kw_only=True)
class LossOptions(NoOptions):
    """What is known of the losses: ``known``, a part of them, and ``groups``, labels of pairs that have the same; both
    lists over layers of ``(S_h, A)``, or None."""

    known: Any = None
    groups: Any = None


@dataclass(frozen=True, kw_only=True)
class StepOptions(NoOptions):
    """``eta``: the step size; None stands for that of the theorem."""

    eta: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.eta is None or number(self.eta, 0.0), "eta", self.eta, "a number > 0, or None")


@dataclass(frozen=True, kw_only=True)
class LinearOptions(StepOptions):
    """``gamma``: the share of uniform play; ``resamples``: draws that estimate an inverse covariance, None: exact."""

    gamma: float | None = None
    resamples: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = self.gamma is None or (number(self.gamma, 0.0) and self.gamma < 1.0)
        require(valid, "gamma", self.gamma, "a number in (0, 1), or None")
        if self.resamples is not None and integer(self.resamples, "resamples", 1, InvalidSpecError) > 100_000:
            raise InvalidSpecError(
                f"resamples is {self.resamples}, should be at most 100,000: an update draws them all"
            )


@dataclass(frozen=True, kw_only=True)
class SharperOptions(StepOptions):
    """``step``: whether its size is fixed or adapts; ``predictor``: what losses are expected to be."""

    step: Literal["fixed", "adaptive"] = "fixed"
    predictor: Any = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.step in ("fixed", "adaptive"), "step", self.step, "'fixed' or 'adaptive'")
        if self.step == "adaptive" and self.eta is not None:
            raise InvalidSpecError("eta goes with step 'fixed': step 'adaptive' finds its own")
        valid = self.predictor in ("none", *NAMED) if isinstance(self.predictor, str) else callable(self.predictor)
        named = ", ".join(f"{name!r}" for name in ("none", *NAMED))
        wanted = f"one of {named}, ridge(features), or a function of the number of the episode"
        require(valid or isinstance(self.predictor, (Ridge, Mapping)), "predictor", self.predictor, wanted)


@dataclass(frozen=True, kw_only=True)
class SetOptions(NoOptions):
    """``radius_scale``: factor on the radii of the sets; ``zeta``: failure probability."""

    radius_scale: float = 1.0
    zeta: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        wide = number(self.radius_scale, LEAST_SCALE)
        require(wide, "radius_scale", self.radius_scale, f"a number above {LEAST_SCALE:g}")
        require(number(self.zeta, 0.0) and self.zeta < 1.0, "zeta", self.zeta, "a probability in (0, 1)")


@dataclass(frozen=True, kw_only=True)
class FullOptions(SetOptions, StepOptions):
    """A set and a step."""


@dataclass(frozen=True, kw_only=True)
class BanditOptions(FullOptions):
    """``gamma``: implicit exploration; None stands for that of the theorem."""

    gamma: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = self.gamma is None or self.gamma == 0.0 or number(self.gamma, 0.0)
        require(valid, "gamma", self.gamma, "a number >= 0, or None")


@dataclass(frozen=True, kw_only=True)
class GeometryOptions(SetOptions):
    """``geometry``: the shape of the sets around a regression."""

    geometry: Geometry = "ellipsoid"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.geometry in ("ellipsoid", "box"), "geometry", self.geometry, "'ellipsoid' or 'box'")


@dataclass(frozen=True, kw_only=True)
class MixtureOptions(SharperOptions, GeometryOptions, BanditOptions, LossOptions):
    """``entropy`` of the step, whether to use the ``simplex`` of weights, ``lam``, the regularisation, ``bounds``, how
    occupancies are bounded, ``feedback`` and ``seen``, which losses are seen."""

    entropy: Entropy = "pairs"
    simplex: bool | None = False
    lam: float | None = None
    bounds: Literal["exact", "forward"] = "exact"
    feedback: Literal["bandit", "actions", "full"] = "bandit"
    seen: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        names = ("pairs", "triples", "conditional")
        require(self.entropy in names, "entropy", self.entropy, "'pairs', 'triples' or 'conditional'")
        require(self.simplex is None or isinstance(self.simplex, bool), "simplex", self.simplex, "True or False")
        require(self.lam is None or number(self.lam, 0.0), "lam", self.lam, "a number > 0, or None")
        require(
            self.feedback in ("bandit", "actions", "full"), "feedback", self.feedback, "'bandit', 'actions', 'full'"
        )
        if self.seen is not None and self.feedback == "full":
            raise InvalidSpecError("seen goes with feedback 'bandit' or 'actions': with 'full' all losses are seen")
        require(self.bounds in ("exact", "forward"), "bounds", self.bounds, "'exact' or 'forward'")
        if self.groups is not None:
            others = {"feedback": "bandit", "predictor": "none", "seen": None}
            for name, value in others.items():
                if not (getattr(self, name) is value or getattr(self, name) == value):
                    raise InvalidSpecError(f"groups goes with {name}={value!r}, not with {getattr(self, name)!r}")
        if self.entropy == "triples" and self.geometry == "ellipsoid":
            raise InvalidSpecError("entropy 'triples' goes with geometry 'box', not with 'ellipsoid'")


@dataclass(frozen=True, kw_only=True)
class RadiusOptions(MixtureOptions):
    """``radius``: which bound on the error of the estimate; ``shared``: one estimate for all layers."""

    radius: Radius = "paper"
    shared: bool | None = False

    def __post_init__(self) -> None:
        super().__post_init__()
        names = ("paper", "paper-uniform", "determinant", "joint", "likelihood")
        require(self.radius in names, "radius", self.radius, f"one of {', '.join(names)}")
        require(self.shared is None or isinstance(self.shared, bool), "shared", self.shared, "True, False or None")
        if self.radius == "likelihood" and self.lam is not None:
            raise InvalidSpecError("radius 'likelihood' is of no regression: lam should be None")
        if self.shared and (self.radius not in ("joint", "likelihood") or self.lam is not None):
            raise InvalidSpecError("shared=True goes with radius 'joint' and its own lam, or with 'likelihood'")


@dataclass(frozen=True, kw_only=True)
class ValueOptions(SetOptions):
    """``lam``: regularisation; None stands for 1 / B^2."""

    lam: float | None = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.lam is None or number(self.lam, 0.0), "lam", self.lam, "a number > 0, or None")

    def regularisation(self, model: LinearMixtureModel) -> float:
        """lambda in force."""
        return model.bound**-2 if self.lam is None else self.lam


@dataclass(frozen=True, kw_only=True)
class ValueStepOptions(ValueOptions, StepOptions):
    """With a step size."""
