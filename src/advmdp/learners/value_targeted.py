"""Value-targeted regression: what the learners of linear mixtures with full information share.

They need P only through the expected value of the next state, P V(s, a) = <phi_V(s, a), theta_h> with
phi_V(s, a) = sum_{s'} phi(s' | s, a) V(s'), and regress the value of the state that came on phi_V of the visited pair.
The sources maximise rewards; here losses are minimised, so that a bonus is subtracted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from advmdp._compiled import allocating_kernel, kernel
from advmdp.confidence import radii
from advmdp.confidence.estimators import RidgeEstimate, ValueTargets
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, IntArray, LinearMixtureModel
from advmdp.learners.base import Learner
from advmdp.learners.linear_mixture import checked_sums
from advmdp.learners.reps import require

#: In place of a policy: V(s) = min_a Q(s, a).
GREEDY = np.empty(0)
GREEDY.flags.writeable = False


class ValueTargetedLearner(Learner):
    """Optimistic action values from a ridge estimate theta_h of layers 0..H-2.

    Q(s, a) = l(s, a) + clip(<phi_V(s, a), theta_h> - beta_h |phi_V(s, a)|_{Gram^-1}, 0, H - 1 - h), V the value of the
    next layer; H - 1 - h steps, and so at most that much loss, follow layer h.
    """

    feedback = "full"
    needs = LinearMixtureModel
    _problem: LinearMixtureModel

    def __init__(
        self,
        problem: LinearMixtureModel,
        episodes: int,
        *,
        lam: float | None,
        radius_scale: float,
        zeta: float,
        seed: int,
    ) -> None:
        super().__init__(problem, episodes, seed=seed)
        self.lam, self.radius_scale, self.zeta = lam, radius_scale, zeta
        require(lam is None or 0.0 < lam < np.inf, "lam", lam, "a number > 0, or None")
        #: lambda in force; None stands for 1 / B^2.
        self.regularisation = problem.bound**-2 if lam is None else lam
        require(0.0 < radius_scale < np.inf, "radius_scale", radius_scale, "a number > 0")
        require(0.0 < zeta < 1.0, "zeta", zeta, "a probability in (0, 1)")
        self._take_sums(ValueTargets.empty(self._layers.horizon, problem.dim))

    # ------------------------------------------------------------------------------- optimism

    def _radius(self, h: int) -> float:
        """beta_h before ``radius_scale``: targets of layer h lie in an interval of length H - 1 - h."""
        horizon = self._layers.horizon
        determinant = self._estimate.log_determinants[h]
        parts = (horizon - 1, self._problem.dim, self.regularisation, self.zeta, self._problem.bound)
        return radii.scalar(determinant, *parts, span=horizon - 1 - h)

    def _optimistic_values(self, losses: FloatArray, policy: FloatArray) -> FloatArray:
        """Q, flat, of a flat policy, or of the one that is best for Q (``GREEDY``)."""
        layers = self._layers
        values = np.empty(layers.n_pairs)
        optimistic_backward(
            *self._problem.flat_features,
            layers.size_array,
            layers.n_actions,
            self._estimate.centres,
            self._estimate.inverse_grams,
            self.radii,
            losses,
            policy,
            values,
        )
        return values

    # ------------------------------------------------------------------------------ regression

    def _targets(self, episode: CheckedEpisode, values: FloatArray, power: int = 1) -> tuple[FloatArray, FloatArray]:
        """phi_{V^power} of the visited pairs, (H - 1, d), and V^power of the states that came, (H - 1,).

        V(s) = sum_a pi(a | s) Q(s, a) of the policy in force; ``values`` is Q.
        """
        layers = self._layers
        regressors = np.zeros((layers.horizon - 1, self._problem.dim))
        targets = np.empty(layers.horizon - 1)
        value_targets(
            *self._problem.flat_features,
            layers.size_array,
            layers.n_actions,
            episode.states,
            episode.actions,
            self._flat_policy,
            values,
            power,
            regressors,
            targets,
        )
        return regressors, targets

    def _regress(self, episode: CheckedEpisode, values: FloatArray) -> None:
        """Gram_h += phi_V phi_V',  b_h += phi_V V(s'), at the visited pairs."""
        self._take_sums(self._sums.add(*self._targets(episode, values)))

    def _take_sums(self, sums: ValueTargets) -> None:
        self._sums = sums
        self._estimate = sums.estimate(self.regularisation)

    # -------------------------------------------------------------------------- its quantities

    @property
    def estimate(self) -> RidgeEstimate:
        """theta_h, Gram matrices and their log-determinants, from the episodes so far."""
        return self._estimate

    @property
    def radii(self) -> FloatArray:
        """beta_h of layers 0..H-2 in force."""
        return self.radius_scale * np.array([self._radius(h) for h in range(self._layers.horizon - 1)])

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "sums": self._sums.tree()}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._take_sums(checked_sums(ValueTargets, state.pop("sums"), self._layers.horizon, self._problem.dim))
        super()._set_state(state)


@allocating_kernel
def optimistic_backward(
    features: FloatArray,
    offsets: IntArray,
    sizes: IntArray,
    n_actions: int,
    centres: FloatArray,
    inverse_grams: FloatArray,
    radii: FloatArray,
    losses: FloatArray,
    policy: FloatArray,
    values: FloatArray,
) -> None:
    """The formula of :class:`ValueTargetedLearner`, layer by layer."""
    horizon = sizes.size - 1
    dim = centres.shape[1]
    feature = np.empty(dim)
    pair = losses.size
    state_values = np.zeros(losses.size // n_actions + 1)
    state = losses.size // n_actions  # the terminal one, of value zero
    for h in range(horizon - 1, -1, -1):
        n, m = sizes[h], sizes[h + 1]
        following = state
        state -= n
        pair -= n * n_actions
        for s in range(n):
            first = pair + s * n_actions
            for a in range(n_actions):
                ahead = 0.0
                if h < horizon - 1:
                    feature[:] = 0.0
                    row = offsets[h] + (s * n_actions + a) * m * dim
                    for t in range(m):
                        value = state_values[following + t]
                        for j in range(dim):
                            feature[j] += value * features[row + t * dim + j]
                    square = 0.0
                    for i in range(dim):
                        ahead += feature[i] * centres[h, i]
                        inner = 0.0
                        for j in range(dim):
                            inner += inverse_grams[h, i, j] * feature[j]
                        square += feature[i] * inner
                    ahead -= radii[h] * np.sqrt(max(square, 0.0))
                values[first + a] = losses[first + a] + min(max(ahead, 0.0), horizon - 1.0 - h)
            if policy.size == 0:
                state_values[state + s] = values[first : first + n_actions].min()
            else:
                for a in range(n_actions):
                    state_values[state + s] += policy[first + a] * values[first + a]


@kernel
def value_targets(
    features: FloatArray,
    offsets: IntArray,
    sizes: IntArray,
    n_actions: int,
    states: IntArray,
    actions: IntArray,
    policy: FloatArray,
    values: FloatArray,
    power: int,
    regressors: FloatArray,
    targets: FloatArray,
) -> None:
    """regressors[h] += sum_t phi(t | s_h, a_h) V(t)^power,  targets[h] = V(s_{h+1})^power."""
    dim = regressors.shape[1]
    pair = 0
    for h in range(targets.size):
        pair += sizes[h] * n_actions
        row = offsets[h] + (states[h] * n_actions + actions[h]) * sizes[h + 1] * dim
        for t in range(sizes[h + 1]):
            value = 0.0
            for i in range(pair + t * n_actions, pair + (t + 1) * n_actions):
                value += policy[i] * values[i]
            value = value**power
            for j in range(dim):
                regressors[h, j] += value * features[row + t * dim + j]
            if t == states[h + 1]:
                targets[h] = value
