"""An episode as a learner sees it, the rules that it must obey, and the simulator that plays one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._checks import float_array
from advmdp._compiled import kernel
from advmdp.errors import InvalidEpisodeError, InvalidMDPError
from advmdp.layered import FloatArray, IntArray, LayeredMDP, Layers, Rows
from advmdp.layered.rows import RowParts, entry_of, next_state, row_begin, row_end
from advmdp.occupancy import check_policy

#: Stands for the ``possible_rows`` of a model that rules nothing out.
_ALL_POSSIBLE: RowParts = (
    np.empty((0, 3), dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, np.bool_)
)  # fmt: skip
#: Stands for the mask of a shape whose actions are all available.
_ALL_AVAILABLE = np.empty(0, dtype=np.bool_)
for _empty in (*_ALL_POSSIBLE, _ALL_AVAILABLE):
    _empty.flags.writeable = False  # as those of a model are: one compiled function for both


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """What was seen in one episode.

    Parameters
    ----------
    states
        The visited state of each layer, H numbers, or H + 1 with the terminal one.
    actions
        The action taken in each layer, H numbers.
    losses
        The loss suffered in each layer, H numbers in [0, 1].  NaN where it was not seen and never will be; None where
        it comes later by :meth:`advmdp.Learner.tell` (None in place of the list: all of them).
    loss_table
        With full information: the losses of all pairs, a list over layers of ``(S_h, A)`` (or that as one flat
        vector).
    index
        Number of the episode, from 0; if given, a learner notices lost and repeated episodes.
    action_losses
        Losses of all actions at the visited states, a list over layers of A numbers, NaN where not seen.
    total
        The sum of the H losses, where that is all that was seen; ``losses`` are then None, or NaN, and never come.

    Examples
    --------
    Three steps of your own system, told to a learner; the second loss was not seen:

    >>> episode = Episode(states=[0, 1, 0], actions=[1, 0, 1], losses=[0.2, float("nan"), 1.0], index=0)
    """

    states: ArrayLike
    actions: ArrayLike
    losses: ArrayLike | Sequence[float | None] | None
    loss_table: Sequence[ArrayLike] | FloatArray | None = None
    index: int | None = None
    action_losses: Sequence[ArrayLike] | FloatArray | None = None
    total: float | None = None


class LateLosses(NamedTuple):
    """Losses of an earlier episode that came after the next update: what a learner is told of them."""

    states: IntArray
    #: Flat index of each visited pair.
    pairs: IntArray
    #: NaN where nothing new was said.
    losses: FloatArray
    #: What :meth:`advmdp.Learner._weights` said of the H visited pairs when the episode was played.
    weights: FloatArray


class CheckedEpisode(NamedTuple):
    """An episode that passed :func:`check_episode`, as arrays: what a learner's update works on."""

    states: IntArray
    actions: IntArray
    #: NaN where not seen (yet).
    losses: FloatArray
    #: Flat index of each visited pair.
    pairs: IntArray
    #: Flat losses of all pairs, with full information.
    loss_table: FloatArray | None
    #: Whether every loss was seen, or their total.
    complete: bool = True
    #: Which losses come later; None if none does.
    later: NDArray[np.bool_] | None = None
    #: Losses of earlier episodes that have come since the last update.
    late: tuple[LateLosses, ...] = ()
    #: Losses of all actions at the visited states, ``(H, A)``, NaN where not seen; None if no more than ``losses`` was.
    action_losses: FloatArray | None = None
    #: The learner's state in which it was played, if that is not the current one: other episodes were told meanwhile.
    played: Any = None
    #: The sum of the losses, where no more was seen.
    total: float | None = None

    def played_in(self, state: Any) -> Any:
        """The learner's state in which it was played, given the current one."""
        return state if self.played is None else self.played

    def seen(self, layers: Layers) -> tuple[IntArray, FloatArray]:
        """All pairs whose losses were told, flat, and these losses; NaN for visited pairs whose loss was not seen."""
        if self.loss_table is not None:
            return np.arange(self.loss_table.size), self.loss_table
        if self.action_losses is None:
            return self.pairs, self.losses
        told = ~np.isnan(self.action_losses)
        return self.state_pairs(layers)[told], self.action_losses[told]

    def state_pairs(self, layers: Layers) -> IntArray:
        """Flat indices of all pairs of the visited states, ``(H, A)``."""
        return (self.pairs - self.actions)[:, None] + np.arange(layers.n_actions)

    def scatter(self, values: FloatArray, n_pairs: int) -> FloatArray:
        """A flat vector over pairs with these H values at the visited pairs: zero elsewhere, and where they are NaN."""
        table = np.zeros(n_pairs)
        table[self.pairs] = values if self.complete else np.nan_to_num(values)
        return table


def check_episode(
    episode: Episode, layers: Layers, possible: Rows | None = None, full_information: bool = False
) -> CheckedEpisode:
    """Raise InvalidEpisodeError, naming what is wrong and where, unless an episode is possible.

    ``possible`` is the ``possible_rows`` of a model.
    """
    if not isinstance(episode, Episode):
        raise InvalidEpisodeError(f"expected an Episode, got {type(episode).__name__}")
    horizon = layers.horizon
    states = _integers(episode.states, "states")
    actions = _integers(episode.actions, "actions")
    unseen = episode.losses is None and episode.total is not None
    losses, later = checked_losses(np.full(horizon, np.nan) if unseen else episode.losses, horizon)
    if states.size not in (horizon, horizon + 1):
        raise InvalidEpisodeError(
            f"states has {states.size} entries, should have {horizon} (or {horizon + 1} with the terminal state)"
        )
    if actions.size != horizon:
        raise InvalidEpisodeError(f"actions has {actions.size} entries, should have {horizon}")

    pairs = np.empty(horizon, dtype=np.int64)
    problem = index_pairs(
        states, actions, losses, layers.size_array, layers.pair_offsets, layers.n_actions,
        _ALL_AVAILABLE if layers.available is None else layers.available, pairs,
        _ALL_POSSIBLE if possible is None else tuple(possible),
    )  # fmt: skip
    if problem >= 0:
        h, kind = divmod(int(problem), 5)
        if kind == 0:
            raise InvalidEpisodeError(
                f"layer {h}: state {states[h]} does not exist, should be from 0 to {layers.sizes[h] - 1}"
            )
        where = f"layer {h}, state {states[h]}"
        if kind == 1:
            raise InvalidEpisodeError(
                f"{where}: action {actions[h]} does not exist, should be from 0 to {layers.n_actions - 1}"
            )
        where = f"{where}, action {actions[h]}"
        if kind == 2:
            raise InvalidEpisodeError(f"{where}: loss {losses[h]} is not a number in [0, 1]")
        if kind == 4:
            able = np.flatnonzero(layers.split(layers.available)[h][states[h]]).tolist()  # type: ignore[arg-type]
            raise InvalidEpisodeError(f"{where}: this action is unavailable, should be one of {able}")
        raise InvalidEpisodeError(f"{where}: next state {states[h + 1]} is impossible under the model")
    table = every = None
    if full_information and later is None:
        table = full_table(episode.loss_table, layers, pairs, losses)
    if episode.action_losses is not None:
        losses, later, every = with_action_losses(episode.action_losses, layers, pairs, actions, losses, later)
    complete = problem == -1 if every is None else not np.isnan(losses).any()
    checked = CheckedEpisode(states[:horizon], actions, losses, pairs, table, complete, later, action_losses=every)
    return checked if episode.total is None else with_total(checked, episode.total)


def with_total(episode: CheckedEpisode, given: Any) -> CheckedEpisode:
    """The episode with the total of its losses, which must be possible, and agree with those that were seen."""
    horizon = episode.losses.size
    total = float_array(given, "total", InvalidEpisodeError)
    if total.ndim or not 0.0 <= total <= horizon * (1.0 + 1e-12):
        raise InvalidEpisodeError(
            f"total is {given!r}, should be a number from 0 to {horizon}, the sum of {horizon} losses"
        )
    if not np.isnan(episode.losses).all():
        least = float(np.nansum(episode.losses))
        most = least + np.count_nonzero(np.isnan(episode.losses))
        if not least - 1e-9 <= total <= most + 1e-9:
            raise InvalidEpisodeError(
                f"total is {given!r}, but by the losses that were seen it is from {least:g} to {most:g}"
            )
    return episode._replace(total=float(total), complete=True, later=None)


def with_action_losses(
    given: Any, layers: Layers, pairs: IntArray, actions: IntArray, losses: FloatArray, later: NDArray[np.bool_] | None
) -> tuple[FloatArray, NDArray[np.bool_] | None, FloatArray]:
    """Losses of the visited pairs, which of them come later, and those of all actions there, checked.

    Entries of unavailable actions are ignored; a loss that is given in either place is known in both.
    """
    shape = (layers.horizon, layers.n_actions)
    try:
        every = np.array(float_array(given, "action_losses", InvalidEpisodeError))
    except ValueError as error:
        raise InvalidEpisodeError(
            f"action_losses should be a list over {shape[0]} layers of {shape[1]} numbers"
        ) from error
    if every.shape != shape:
        raise InvalidEpisodeError(f"action_losses has shape {every.shape}, should be {shape} (layers, actions)")
    if layers.available is not None:
        every[~layers.available[(pairs - actions)[:, None] + np.arange(shape[1])]] = np.nan
    wrong = ~(np.isnan(every) | ((every >= 0.0) & (every <= 1.0)))
    if wrong.any():
        h, a = (int(i) for i in np.argwhere(wrong)[0])
        where = layers.name_pair(int(pairs[h] - actions[h]) + a)
        raise InvalidEpisodeError(f"action_losses, {where}: loss {every[h, a]} is not a number in [0, 1]")
    layer = np.arange(shape[0])
    taken = every[layer, actions]
    differ = np.abs(taken - losses) > 1e-9  # False where either is NaN
    if differ.any():
        h = int(differ.argmax())
        raise InvalidEpisodeError(
            f"{layers.name_pair(int(pairs[h]))}: action_losses has {taken[h]}, but the observed loss is {losses[h]}; "
            "they should be equal"
        )
    losses = np.where(np.isnan(losses), taken, losses)
    every[layer, actions] = losses
    if later is not None:
        later = later & np.isnan(losses)
        later = later if later.any() else None
    return losses, later, every


def checked_losses(values: Any, horizon: int) -> tuple[FloatArray, NDArray[np.bool_] | None]:
    """H losses as an array, NaN where not seen, and which of them come later (None if none does)."""
    if type(values) is np.ndarray and values.dtype == np.float64 and values.shape == (horizon,):
        return values, None
    later = None
    if values is None:
        values = [None] * horizon
    if isinstance(values, (list, tuple)) and any(value is None for value in values):
        later = np.array([value is None for value in values])
        values = [np.nan if value is None else value for value in values]
    array = float_array(values, "losses", InvalidEpisodeError)
    if array.ndim != 1:
        raise InvalidEpisodeError(f"losses should be a list of numbers, got {values!r}")
    if array.size != horizon:
        raise InvalidEpisodeError(f"losses has {array.size} entries, should have {horizon}")
    return array, later


def play(
    mdp: LayeredMDP,
    policy: Sequence[ArrayLike],
    losses: Sequence[ArrayLike],
    rng: np.random.Generator,
    index: int | None = None,
) -> Episode:
    """Play one episode: H actions drawn from the policy, H transitions from the kernels.

    ``policy`` and ``losses`` are lists over layers of ``(S_h, A)``; the episode has arrays of shape (H,).
    Exactly 2 H numbers are drawn from ``rng``, whatever happens, so that two learners that are given equal
    generators meet the same luck.  The whole loss table is in the episode; a bandit learner ignores it.

    Parameters
    ----------
    mdp
        The world.
    policy
        A list over layers of ``(S_h, A)``, rows summing to one.
    losses
        The loss of every pair in this episode, in [0, 1], a list over layers of ``(S_h, A)``.
    rng
        Where the 2 H numbers come from.
    index
        Number of the episode, from 0.

    Examples
    --------
    >>> import numpy as np
    >>> from advmdp import make_world, occupancy
    >>> world = make_world("grid", height=2, width=2)
    >>> policy = occupancy.uniform_policy(world.layer_sizes, world.n_actions)
    >>> episode = play(world, policy, [np.full_like(table, 0.5) for table in policy], np.random.default_rng(0))
    >>> episode.losses
    array([0.5, 0.5])
    """
    layers = mdp.layers
    flat_policy = layers.flatten(policy, "policy")
    check_policy(layers, flat_policy)
    flat_losses = layers.loss_table(losses)
    states = np.empty(layers.horizon, dtype=np.int64)
    actions = np.empty(layers.horizon, dtype=np.int64)
    observed = np.empty(layers.horizon)
    simulate(
        tuple(mdp.rows),
        layers.size_array,
        layers.n_actions,
        flat_policy,
        flat_losses,
        rng.random(2 * layers.horizon),
        states,
        actions,
        observed,
    )
    return Episode(states, actions, observed, layers.split(flat_losses), index)


def _integers(values: Any, what: str) -> IntArray:
    if type(values) is np.ndarray and values.dtype == np.int64 and values.ndim == 1:
        return values
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidEpisodeError(f"{what} is not a list of integers: {error}") from error
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise InvalidEpisodeError(f"{what} should be a list of integers, got {values!r}")
    return array.astype(np.int64, copy=False)


def full_table(given: Any, layers: Layers, pairs: IntArray, losses: FloatArray) -> FloatArray:
    """The whole loss table, flat, checked against the losses that were observed."""
    if given is None:
        raise InvalidEpisodeError("loss_table is missing: this learner needs full information")
    try:
        table = layers.loss_table(given, "loss_table")
    except (InvalidMDPError, TypeError, ValueError) as error:
        raise InvalidEpisodeError(str(error)) from error
    h = int(first_difference(table, pairs, losses))
    if h >= 0:
        raise InvalidEpisodeError(
            f"{layers.name_pair(int(pairs[h]))}: loss_table has {table[pairs[h]]}, but the observed loss "
            f"is {losses[h]}; they should be equal"
        )
    return table


@kernel
def first_difference(table: FloatArray, pairs: IntArray, losses: FloatArray) -> int:
    """First layer in which the loss of the visited pair is not that of the table, or -1."""
    for h in range(pairs.size):
        if abs(table[pairs[h]] - losses[h]) > 1e-9:  # a loss that was not seen is NaN, and differs from nothing
            return h
    return -1


@kernel
def index_pairs(
    states: IntArray,
    actions: IntArray,
    losses: FloatArray,
    sizes: IntArray,
    pair_offsets: IntArray,
    n_actions: int,
    available: NDArray[np.bool_],
    pairs: IntArray,
    possible_parts: RowParts,
) -> int:
    """Flat indices of the visited pairs; of the first error 5 h + (0 state, 1 action, 2 loss, 3 transition, 4 mask).

    Without one, -1 if all losses were seen and -2 if some are NaN.  Empty ``available`` or ``possible_parts`` rule
    nothing out, and the last transition always leads to the end.
    """
    possible = Rows(possible_parts[0], possible_parts[1], possible_parts[2], possible_parts[3])
    sound = -1
    for h in range(states.size):
        if not 0 <= states[h] < sizes[h]:
            return 5 * h
        if h == actions.size:
            break
        if not 0 <= actions[h] < n_actions:
            return 5 * h + 1
        if np.isnan(losses[h]):
            sound = -2
        elif not 0.0 <= losses[h] <= 1.0:
            return 5 * h + 2
        pairs[h] = pair_offsets[h] + states[h] * n_actions + actions[h]
        if available.size > 0 and not available[pairs[h]]:
            return 5 * h + 4
    if possible.values.size > 0:
        for h in range(actions.size - 1):
            entry = entry_of(possible, h, states[h] * n_actions + actions[h], sizes[h + 1], states[h + 1])
            if entry < 0 or not possible.values[entry]:
                return 5 * h + 3
    return sound


@kernel
def draw(weights: FloatArray, start: int, count: int, uniform: float) -> int:
    """Inverse-transform sampling from ``weights[start : start + count]``, which sum to one."""
    total = 0.0
    last = 0
    for i in range(count):
        weight = weights[start + i]
        if weight > 0.0:
            last = i
            total += weight
            if uniform < total:
                return i
    # Rounding left the sum a little below one: the last possible outcome.
    return last


@kernel
def simulate(
    parts: RowParts,
    sizes: IntArray,
    n_actions: int,
    policy: FloatArray,
    losses: FloatArray,
    uniforms: FloatArray,
    states: IntArray,
    actions: IntArray,
    observed: FloatArray,
) -> float:
    """a_h ~ pi(. | s_h),  s_{h+1} ~ P_h(. | s_h, a_h), with the losses met on the way; their sum is returned."""
    rows = Rows(parts[0], parts[1], parts[2], parts[3])
    total = 0.0
    state = 0
    here = 0
    for h in range(sizes.size - 1):
        pair = state * n_actions
        action = draw(policy, here + pair, n_actions, uniforms[2 * h])
        pair += action
        states[h] = state
        actions[h] = action
        observed[h] = losses[here + pair]
        total += observed[h]
        m = sizes[h + 1]
        begin = row_begin(rows, h, pair, m)
        chosen = draw(rows.values, begin, row_end(rows, h, pair, m) - begin, uniforms[2 * h + 1])
        state = next_state(rows, h, begin, begin + chosen)
        here += sizes[h] * n_actions
    return total
