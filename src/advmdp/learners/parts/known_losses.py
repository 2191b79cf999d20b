"""What a user knows of the losses beforehand: a part of them, and which pairs have the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from advmdp.confidence import ConfidenceSet
from advmdp.episodes import CheckedEpisode
from advmdp.errors import InvalidEpisodeError, InvalidMDPError, InvalidSpecError
from advmdp.layered import FloatArray, IntArray, Layers
from advmdp.solvers.occupancy_bounds import extreme_rows

#: Losses that differ by no more are the same.
ROUNDING = 1e-9


class KnownPart:
    """A part c of every loss l that is known before the first episode: 0 <= c <= l <= 1.

    Only l - c has to be learnt.  An estimate of it plus c has the bias and the variance of the estimate, so whatever is
    proved for losses in [0, 1] holds.
    """

    def __init__(self, layers: Layers, table: Sequence[ArrayLike]) -> None:
        try:
            #: c, flat over pairs.
            self.table: FloatArray = layers.loss_table(table, "known")
        except InvalidMDPError as error:
            raise InvalidSpecError(str(error)) from error
        self.layers = layers

    def rest(self, episode: CheckedEpisode) -> CheckedEpisode:
        """The episode with l - c in place of l, or InvalidEpisodeError where a loss is less than what was known."""
        late = tuple(one._replace(losses=self._less(one.pairs, one.losses)) for one in episode.late)
        losses = self._less(episode.pairs, episode.losses)
        every, table = episode.action_losses, episode.loss_table
        if every is not None:
            every = self._less(episode.state_pairs(self.layers), every)
        if table is not None:
            table = self._less(np.arange(table.size), table)
        return episode._replace(losses=losses, late=late, action_losses=every, loss_table=table)

    def _less(self, pairs: IntArray, losses: FloatArray) -> FloatArray:
        rest = losses - self.table[pairs]
        if (rest < -ROUNDING).any():  # False where the loss was not seen
            place = int(np.flatnonzero((rest < -ROUNDING).ravel())[0])
            pair = int(pairs.ravel()[place])
            raise InvalidEpisodeError(
                f"{self.layers.name_pair(pair)}: loss {losses.ravel()[place]} is less than the part of it that was "
                f"said to be known, {self.table[pair]}"
            )
        found: FloatArray = np.maximum(rest, 0.0)
        return found


class Groups:
    """Pairs with the same label have the same loss in every episode: what is seen at one is seen at all."""

    def __init__(self, layers: Layers, labels: Sequence[ArrayLike]) -> None:
        try:
            given = layers.flatten(labels, "groups")
        except InvalidMDPError as error:
            raise InvalidSpecError(str(error)) from error
        wrong = np.flatnonzero(given != np.round(given))
        if wrong.size:
            pair = int(wrong[0])
            raise InvalidSpecError(f"groups, {layers.name_pair(pair)}: label {given[pair]} should be an integer")
        able = np.flatnonzero(layers.uniform_policy > 0.0)
        labels_of, counted = np.unique(given[able], return_inverse=True)
        self.layers = layers
        #: The group of each pair, numbered from 0; -1 where the action is unavailable.
        self.of_pair: IntArray = np.full(layers.n_pairs, -1)
        self.of_pair[able] = counted
        self._members = np.split(able[np.argsort(counted, kind="stable")], np.cumsum(np.bincount(counted))[:-1])
        layer = np.searchsorted(layers.pair_offsets, able, side="right")
        #: Groups, each as often as there are layers that it reaches into.
        self.spans = len(np.unique(np.stack([counted, layer]), axis=1).T)
        self.count = len(labels_of)

    def spread(self, pairs: IntArray, losses: FloatArray) -> tuple[IntArray, IntArray]:
        """All pairs of the groups of these pairs whose losses were seen, and for each the place of one of them.

        InvalidEpisodeError where two pairs of a group had different losses.
        """
        seen = np.flatnonzero(~np.isnan(losses))
        groups, first, place = np.unique(self.of_pair[pairs[seen]], return_index=True, return_inverse=True)
        differ = np.abs(losses[seen] - losses[seen[first]][place]) > ROUNDING
        if differ.any():
            one = int(differ.argmax())
            other = int(first[place[one]])
            names = [self.layers.name_pair(int(pairs[seen[i]])) for i in (other, one)]
            values = [losses[seen[i]] for i in (other, one)]
            raise InvalidEpisodeError(
                f"{names[0]} and {names[1]} were said to share their loss, and it was {values[0]} and {values[1]}"
            )
        members = [self._members[group] for group in groups]
        sources = [np.full(len(found), seen[i]) for found, i in zip(members, first, strict=True)]
        empty = np.empty(0, dtype=np.int64)
        return np.concatenate([empty, *members]), np.concatenate([empty, *sources])

    def seen(self, pairs: IntArray, losses: FloatArray) -> tuple[IntArray, FloatArray]:
        """All pairs whose losses are known from those of these pairs, and the losses."""
        members, sources = self.spread(pairs, losses)
        return members, losses[sources]

    def total(self, occupancy: FloatArray) -> FloatArray:
        """For each pair how often its group is met, at most once, if its pairs are met this often: an upper bound."""
        sums = np.bincount(self.of_pair[self.of_pair >= 0], occupancy[self.of_pair >= 0], self.count)
        found: FloatArray = np.minimum(sums, 1.0)[self.of_pair]
        return found

    def upper_hits(self, confidence_set: ConfidenceSet, policy: FloatArray, pairs: IntArray) -> FloatArray:
        """U_G, the largest probability over the set of meeting the group of each of these pairs at least once.

        f(s) = sum_a pi(a | s) [1 if (s, a) is in G, else max_p p.f], from the last layer to the first.
        """
        found = {int(group): self._hit(confidence_set, policy, int(group)) for group in self.of_pair[pairs]}
        return np.array([found[int(group)] for group in self.of_pair[pairs]])

    def _hit(self, confidence_set: ConfidenceSet, policy: FloatArray, group: int) -> float:
        values = np.zeros(1)
        tables = self.layers.split(policy), self.layers.split(self.of_pair == group)
        for h, (chosen, inside) in reversed(list(enumerate(zip(*tables, strict=True)))):
            reached = np.zeros(chosen.shape)
            if values.any():
                reached = extreme_rows(confidence_set, h, values)
            values = np.where(chosen > 0.0, chosen * np.where(inside, 1.0, reached), 0.0).sum(axis=1)
        return min(float(values[0]), 1.0)


def known_losses(learner: Any) -> tuple[KnownPart | None, Groups | None]:
    """What the options ``known`` and ``groups`` of a learner say; the learner keeps copies of them, to be saved."""
    layers, known, groups = learner._layers, None, None
    if getattr(learner.options, "known", None) is not None:
        known = KnownPart(layers, learner.options.known)
        learner.known = layers.split(known.table)
    if getattr(learner.options, "groups", None) is not None:
        groups = Groups(layers, learner.options.groups)
        learner.groups = layers.split(groups.of_pair)
    return known, groups


def require_known(known: KnownPart | None, episode: CheckedEpisode) -> None:
    """InvalidEpisodeError where a loss is less than the part of it that is known."""
    if known is not None:
        known.rest(episode)
