"""Losses that come late: which episodes wait for some, and what has come since the last update."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._checks import float_array, integer
from advmdp.episodes import CheckedEpisode, Episode, LateLosses, check_episode, checked_losses
from advmdp.errors import InvalidEpisodeError
from advmdp.layered import FloatArray, Layers


class Waiting(NamedTuple):
    """An episode some of whose losses have not come yet."""

    number: int
    #: Its known losses are in it, NaN elsewhere; ``later`` says which ones are waited for.
    episode: CheckedEpisode
    #: See :class:`advmdp.episodes.LateLosses`.
    weights: FloatArray


class Ledger(NamedTuple):
    """Who waits, and what has come; a value, like all that a learner knows."""

    #: The oldest first.
    waiting: tuple[Waiting, ...] = ()
    #: Losses of earlier episodes, for the next update.
    arrived: tuple[LateLosses, ...] = ()

    def wait(self, number: int, episode: CheckedEpisode, weights: FloatArray) -> Ledger:
        """With one more episode that waits, after an update that used all that had arrived."""
        return Ledger((*self.waiting, Waiting(number, episode, weights)))

    def told(self, number: int, losses: Any) -> tuple[Ledger, Waiting, FloatArray]:
        """After losses were told: what is left to come, who had waited, and the new losses (NaN elsewhere)."""
        record = next((record for record in self.waiting if record.number == number), None)
        if record is None:
            others = [record.number for record in self.waiting]
            raise InvalidEpisodeError(
                f"episode {number} waits for no losses; "
                + (f"these do: {others}" if others else "no episode does (update with losses=None, or None in them)")
            )
        episode, missing = record.episode, _mask(record.episode)
        given, later = checked_losses(losses, missing.size)
        for h, (loss, known) in enumerate(zip(given, episode.losses, strict=True)):
            where = f"layer {h}, state {episode.states[h]}, action {episode.actions[h]}"
            if not (np.isnan(loss) or 0.0 <= loss <= 1.0):
                raise InvalidEpisodeError(f"{where}: loss {loss} is not a number in [0, 1]")
            if not (np.isnan(loss) or missing[h] or loss == known):
                raise InvalidEpisodeError(f"{where}: loss {loss}, but {known} was told before")
        still = missing & (False if later is None else later)
        whole = np.where(missing, given, episode.losses)
        complete = not np.isnan(whole).any()
        every = episode.action_losses
        if every is not None:
            every = every.copy()
            every[np.arange(whole.size), episode.actions] = whole
        later = still if still.any() else None
        now = episode._replace(losses=whole, action_losses=every, complete=complete, later=later)
        changed = record._replace(episode=now)
        rest = tuple(changed if other is record else other for other in self.waiting)
        if now.later is None:
            rest = tuple(other for other in rest if other is not changed)
        return self._replace(waiting=rest), changed, np.where(missing, given, np.nan)

    def arrive(self, record: Waiting, losses: FloatArray) -> Ledger:
        """With losses of an episode for the next update."""
        late = LateLosses(record.episode.states, record.episode.pairs, losses, record.weights)
        return self._replace(arrived=(*self.arrived, late))

    def tree(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "waiting": [_tree(r.episode, r.weights) | {"number": r.number} for r in self.waiting],
            "arrived": [late_tree(late) for late in self.arrived],
        }

    @classmethod
    def restore(cls, tree: dict[str, Any], layers: Layers, told: int) -> Ledger:
        """The inverse of :meth:`tree`, after so many episodes; ValueError where it makes no sense."""
        waiting = []
        for saved in tree["waiting"]:
            number = integer(saved["number"], "number", 0, ValueError)
            episode, weights = _restored(saved, layers)
            if episode.later is None or number >= told:
                raise ValueError(f"episode {number} of {told} waits for no losses")
            waiting.append(Waiting(number, episode, weights))
        return cls(tuple(waiting), tuple(restored_late(saved, layers) for saved in tree["arrived"]))


def late_tree(late: LateLosses) -> dict[str, Any]:
    """For a checkpoint."""
    return {**late._asdict(), "later": None, "actions": None, "action_losses": None}


def restored_late(saved: dict[str, Any], layers: Layers) -> LateLosses:
    """The inverse, or ValueError."""
    episode, weights = _restored(saved, layers)
    return LateLosses(episode.states, episode.pairs, episode.losses, weights)


def _mask(episode: CheckedEpisode) -> NDArray[np.bool_]:
    return np.zeros(episode.losses.size, dtype=bool) if episode.later is None else episode.later


def _tree(episode: CheckedEpisode, weights: FloatArray) -> dict[str, Any]:
    return {
        "states": episode.states,
        "actions": episode.actions,
        "pairs": None,
        "losses": episode.losses,
        "action_losses": episode.action_losses,
        "later": _mask(episode),
        "weights": weights,
    }


def _restored(saved: dict[str, Any], layers: Layers) -> tuple[CheckedEpisode, FloatArray]:
    states, losses = np.asarray(saved["states"]), saved["losses"]
    actions = saved["actions"]
    if actions is None:
        actions = np.asarray(saved["pairs"]) - layers.pair_offsets[:-1] - states * layers.n_actions
    if saved["later"] is not None:
        losses = [None if wait else loss for wait, loss in zip(saved["later"], losses, strict=True)]
    episode = check_episode(Episode(states, actions, losses, action_losses=saved["action_losses"]), layers)
    weights = np.array(float_array(saved["weights"], "weights", ValueError))
    if weights.shape[:1] != episode.losses.shape or not np.isfinite(weights).all():
        raise ValueError(f"weights of shape {weights.shape}: wrong shape, or entries that are not finite")
    return episode, weights
