"""Routing through a network whose links fail in groups.

It stands for sending traffic (packets, lorries, calls) from a source to a target, hop by hop: the action is the link
asked for.  Links share risks, as cables in one duct do: when the duct is cut, all its links are down at once, and
traffic that asked for one of them leaves the node by its next link that works (local repair).  All up is one
scenario, each cut duct another; how often each is met, hop by hop, is an unknown mixture of these known kernels.
Delays by nature: free-flow times, raised by a daily rhythm of other people's traffic and by what we sent ourselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any

import numpy as np

from advmdp._checks import LAYER, above_zero, fits_in_memory, float_array, integer
from advmdp._unroll import Unrolled, certain
from advmdp.adversaries import Reacting
from advmdp.adversaries.natural import share
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, LinearMixtureMDP
from advmdp.registry import register_natural_losses, register_world
from advmdp.scene import Scene
from advmdp.seeding import Stream, generator

Link = tuple[str, str]


@register_world("routing")
def routing(
    *,
    stages: int = 5,
    width: int = 8,
    outages: Sequence[float] = (0.15, 0.1, 0.05),
    graph: Any = None,
    source: Hashable | None = None,
    target: Hashable | None = None,
    hops: int | None = None,
    seed: int = 0,
) -> LinearMixtureMDP:
    """Hop by hop from a source to a target, over links that fail in groups.

    Parameters
    ----------
    stages, width
        Of the network that is built if no graph is given: stages of ``width`` routers between source and target, each
        with links to the (at most three) nearest routers of the next stage.  The source is at half width.
    outages
        Probability that each group of links is down; what is left to 1 is the scenario with all links up.
        d is one more than their number.
    graph
        A directed networkx graph, or a list of links ``[from, to]``; then ``source`` and ``target`` are needed.  A link
        may have the attributes ``risk`` (the number of its group; by default drawn) and ``delay`` (its free-flow time,
        > 0; by default drawn).
    source, target
        Nodes of the graph.
    hops
        Length of an episode; by default the number of hops of the shortest path plus 2.  Who arrives earlier waits at
        the target.  With the network that is built it is ``stages + 1``.
    seed
        Of the groups and delays that are not given.
    """
    risks = float_array(outages, "outages", InvalidSpecError)
    if risks.ndim != 1 or not risks.size or not (risks.min() >= 0.0 and risks.sum() <= 1.0 + 1e-12):
        raise InvalidSpecError(f"outages is {outages!r}, should be probabilities that sum to at most 1")
    shares = risks.tolist()
    if graph is None:
        if (source, target, hops) != (None, None, None):
            raise InvalidSpecError("source, target and hops belong to a graph of yours: give graph as well")
        links = _staged(stages, width)
        start, end, horizon = "source", "target", stages + 1
        attributes: dict[Link, dict[str, Any]] = {}
    else:
        attributes = _links(graph)
        links = list(attributes)
        start, end = str(source), str(target)
        horizon = _hops(links, start, end, hops)
    rng = generator(seed, Stream.WORLD)
    groups = rng.integers(len(shares), size=len(links))
    delays = rng.uniform(0.3, 1.0, size=len(links))
    for number, (link, given) in enumerate(attributes.items()):
        if "risk" in given:
            groups[number] = risk = integer(given["risk"], f"risk of link {link}", 0, InvalidSpecError)
            if risk >= len(shares):
                raise InvalidSpecError(f"risk of link {link} is {risk}, outages has {len(shares)} groups")
        if "delay" in given:
            delays[number] = above_zero(given["delay"], f"delay of link {link}", InvalidSpecError)
    group = groups.tolist()

    # What can be asked for at a node depends on how many hops are left: states are hops with nodes.
    left = _hops_to(links, end)
    out: dict[str, list[tuple[str, int, int]]] = {}
    for number, (tail, head) in enumerate(links):
        out.setdefault(tail, []).append((head, number, left.get(head, horizon)))
    n_actions = max(map(len, out.values()))

    scenarios = range(-1, len(shares))  # -1: all links are up

    @cache
    def followed(risks: tuple[int, ...]) -> list[int]:
        """Which of the links of a node, in these groups, is taken: per scenario and action."""
        # The link asked for, or else the next one of this node that works; if none does, crews restore it first.
        count = len(risks)
        return [
            next((place for turn in range(count) if risks[place := (asked + turn) % count] != down), asked % count)
            for down in scenarios
            for asked in range(n_actions)
        ]

    fits_in_memory(LAYER * horizon, f"a world of {horizon} layers", InvalidSpecError)
    layers, nexts, taken = [[start]], list[list[int]](), list[list[int]]()
    for hop in range(horizon):
        heads = []
        for node in layers[-1]:
            if node == end:  # who is there waits
                heads.append([end] * len(scenarios) * n_actions)
                taken.append([-1] * len(scenarios) * n_actions)
                continue
            viable = [(head, number) for head, number, more in out[node] if more < horizon - hop]
            places = followed(tuple([group[number] for _, number in viable]))
            heads.append([viable[place][0] for place in places])
            taken.append([viable[place][1] for place in places])
        there = sorted(set().union(*heads))
        first = len(nexts) + len(layers[-1])
        place_of = {node: first + i for i, node in enumerate(there)}
        nexts += [[place_of[node] for node in row] for row in heads]
        layers.append(there)
    names = [node for layer in layers for node in layer]
    nexts.append([len(nexts)] * len(nexts[0]))  # the end
    tables = np.array(nexts).reshape(len(nexts), len(scenarios), n_actions)
    unrolled = Unrolled([certain(tables[:, i]) for i in range(len(scenarios))], 0, horizon)
    weights = np.array([max(1.0 - sum(shares), 0.0), *shares])
    scene = Scene(
        states=[*unrolled.named(names)[:-1], [end]],
        actions=[f"link {number}" for number in range(n_actions)],
        natural_losses="routing",
        details={
            "links": links,
            "taken": np.array(taken).reshape(-1, len(scenarios), n_actions).swapaxes(0, 1).reshape(len(scenarios), -1),
            "shares": weights,
            "delays": delays,
        },
    )
    return unrolled.mixture(weights, scene)


def _staged(stages: int, width: int) -> list[Link]:
    """Stages of routers; each has links to the router straight ahead and its neighbours."""
    integer(stages, "stages", 1, InvalidSpecError)
    integer(width, "width", 2, InvalidSpecError)
    fits_in_memory(LAYER * stages * width, f"a network of {stages} x {width} routers", InvalidSpecError)
    names = [[f"{stage + 1}{_letter(place)}" for place in range(width)] for stage in range(stages)]
    links: list[Link] = []
    places = [(width - 1) // 2]
    for here, there in itertools.pairwise([["source"] * width, *names]):
        for place in places:
            first = min(max(place - 1, 0), max(width - 3, 0))
            links += [(here[place], head) for head in there[first : first + 3]]
        places = list(range(width))
    return links + [(name, "target") for name in names[-1]]


def _letter(place: int) -> str:
    return chr(ord("a") + place) if place < 26 else f"_{place}"


def _links(graph: Any) -> dict[Link, dict[str, Any]]:
    """The links of a networkx graph or of a list, with their attributes; nodes by their names."""
    if hasattr(graph, "edges"):
        if not graph.is_directed():
            graph = graph.to_directed()
        found = {(str(tail), str(head)): dict(data) for tail, head, data in graph.edges(data=True)}
    else:
        try:
            found = {(str(tail), str(head)): {} for tail, head in graph}
        except (TypeError, ValueError) as error:
            raise InvalidSpecError(f"graph is no networkx graph, and no list of links [from, to]: {error}") from error
    if not found:
        raise InvalidSpecError("graph has no links")
    return found


def _hops_to(links: Sequence[Link], end: str) -> dict[str, int]:
    """Hops of the shortest path from each node to the target."""
    tails: dict[str, list[str]] = {}
    for tail, head in links:
        tails.setdefault(head, []).append(tail)
    left, frontier, hops = {end: 0}, [end], 0
    while frontier:
        hops += 1
        frontier = list(dict.fromkeys(tail for head in frontier for tail in tails.get(head, ()) if tail not in left))
        left.update(dict.fromkeys(frontier, hops))
    return left


def _hops(links: Sequence[Link], start: str, end: str, hops: int | None) -> int:
    nodes = {node for link in links for node in link}
    for what, node in (("source", start), ("target", end)):
        if node not in nodes:
            raise InvalidSpecError(f"{what} is {node!r}, should be one of the nodes {sorted(nodes)}")
    if start == end:
        raise InvalidSpecError(f"source and target are both {start!r}")
    shortest = _hops_to(links, end).get(start)
    if not shortest:
        raise InvalidSpecError(f"no path of links leads from {start!r} to {end!r}")
    return integer(shortest + 2 if hops is None else hops, "hops", shortest, InvalidSpecError)


@register_natural_losses("routing")
class Congestion(Reacting):
    """Expected delay of the link that is taken, by the road engineers' formula: free-flow time * (1 + 0.15 v^4).

    The link taken is the one asked for, or that of the repair where it is down; the expectation is over the true
    outages.  v is volume over capacity: other people's traffic, which follows the hour (each link with its own rush
    hour), plus ours, a moving average of how often past episodes are expected to have taken the link.  v stays
    in [0, 2], and delays are divided by the largest that is possible, so losses lie in [0, 1].  Waiting at the target
    is free.

    Parameters
    ----------
    hours
        Episodes per day: the period of the rhythm.
    reaction
        How much of v is ours at most, in [0, 1] (1: half of it).
    memory
        Episodes over which our own use is averaged.
    """

    def __init__(
        self, mdp: LayeredMDP, episodes: int, *, hours: int = 24, reaction: float = 1.0, memory: int = 50, seed: int = 0
    ) -> None:
        super().__init__(mdp, episodes, memory)
        self._hours = integer(hours, "hours", 1, InvalidSpecError)
        self._reaction = share(reaction, "reaction")
        details = mdp.scene.details
        self._taken = np.asarray(details["taken"])
        self._shares = np.asarray(details["shares"])
        delays = np.asarray(details["delays"], dtype=np.float64)
        # Number -1 is the last entry: no link, no delay.
        self._free = np.append(delays / (delays.max() * (1.0 + 0.15 * 2.0**4)), 0.0)
        # Rush hours cluster: most links peak within a few hours of one another.
        self._rush = np.append(generator(seed, Stream.ADVERSARY).normal(0.35, 0.1, size=delays.size), 0.0)

    def _react(self, k: int, usage: FloatArray) -> FloatArray:
        others = 0.5 + 0.5 * np.cos(2.0 * np.pi * (k / self._hours - self._rush))
        weights = np.outer(self._shares, usage)
        ours = np.bincount(self._taken.ravel() + 1, weights=weights.ravel(), minlength=self._free.size)
        volume = others + self._reaction * np.minimum(np.append(ours[1:], 0.0), 1.0)
        losses: FloatArray = self._shares @ (self._free * (1.0 + 0.15 * volume**4))[self._taken]
        return np.minimum(losses, 1.0)
