"""From a `Process` of your own to a spec file: this module registers a world and its costs, `workshop.toml` names them.

    cd examples && advmdp run workshop.toml

`imports = ["workshop"]` in the spec (or `--import workshop` on the command line) imports it, in worker processes too.
"""

from __future__ import annotations

from functools import partial

import advmdp


def actions(step, wear):
    """An empty list ends the episode."""
    return [] if wear == "broken" else ["run", "repair"] if wear else ["run"]


def gentle(step, wear, action):
    """One scenario of how it goes on."""
    return {0: 1.0} if action == "repair" else {wear: 0.5, wear + 1: 0.5}


def harsh(step, wear, action):
    """Another."""
    return {0: 1.0} if action == "repair" else {wear + 1: 0.8, "broken": 0.2}


process = advmdp.Process(0, actions, [gentle, harsh], horizon=6, cost_range=(0, 50))


def cost(repair, step, wear, action):
    """In euros."""
    return repair if action == "repair" else 8.0 * wear


@advmdp.register_world("workshop")
def workshop(*, share: float = 0.5) -> advmdp.LinearMixtureMDP:
    """The machine in reality: gentle with this share, else harsh."""
    return process.mdp([share, 1.0 - share])


@advmdp.register_adversary("spare-parts")
class SpareParts(advmdp.Adversary):
    """Running costs 8 euros for each grade of wear; a repair costs 10, and 40 while parts are scarce."""

    def __init__(self, mdp, episodes, *, period=100, seed=0):
        super().__init__(mdp, episodes)
        self.tables = [process.losses(partial(cost, repair)) for repair in (10.0, 40.0)]
        self.period = period

    def losses(self, k):
        return self.tables[k // self.period % 2]
