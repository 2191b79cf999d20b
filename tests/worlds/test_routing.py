"""routing: links fail in groups, traffic is repaired locally, delays follow the day and our own use."""

from __future__ import annotations

import itertools

import networkx
import numpy as np
import pytest

from advmdp import InvalidSpecError, load_mdp, make_adversary, make_world


def small(**options):
    """Source, two routers, target; both upper links are in group 0, both lower ones in group 1."""
    graph = networkx.DiGraph()
    graph.add_edge("s", "up", risk=0, delay=1.0)
    graph.add_edge("s", "low", risk=1, delay=2.0)
    graph.add_edge("up", "t", risk=0, delay=1.0)
    graph.add_edge("low", "t", risk=1, delay=2.0)
    return make_world("routing", graph=graph, source="s", target="t", hops=2, **{"outages": (0.3, 0.1), **options})


def test_a_failed_link_is_repaired_by_the_next_one():
    world = small()
    assert world.layer_sizes == (1, 2, 1)
    low, up = world.scene.states[1].index("low"), world.scene.states[1].index("up")
    # Asked for the upper link: it is down with probability 0.3, then the lower one is taken.
    np.testing.assert_allclose(world.kernels[0][0, 0, [up, low]], [0.7, 0.3])
    np.testing.assert_allclose(world.kernels[0][0, 1, [up, low]], [0.1, 0.9])


def test_the_built_network_has_three_links_per_router():
    world = make_world("routing")
    assert (world.n_states, world.n_actions, world.dim, world.horizon) == (33, 3, 4, 6)
    # With all links up, the three actions of an inner router lead to three routers.
    all_up = world.features[2][..., 0].argmax(axis=2)
    assert all(len(set(row)) == 3 for row in all_up.tolist())


@pytest.mark.parametrize(("seed", "density", "hops"), [(1, 0.3, 5), (2, 0.2, None), (5, 0.5, 3), (7, 0.15, 9)])
def test_every_path_ends_at_the_target_in_time(seed, density, hops):
    graph = networkx.gnp_random_graph(12, density, directed=True, seed=seed)
    world = make_world("routing", graph=graph, source=0, target=11, hops=hops)
    states = world.scene.states
    for h in range(world.horizon - 1):
        for i, node in enumerate(states[h]):
            heads = {states[h + 1][j] for j in np.nonzero(world.features[h][i].any(axis=(0, 2)))[0]}
            if node == "11":
                assert heads == {"11"}  # whoever arrived waits
            else:
                assert all(graph.has_edge(int(node), int(head)) for head in heads)
        for node in states[h + 1]:
            assert networkx.shortest_path_length(graph, int(node), 11) <= world.horizon - h - 1


def test_a_list_of_links_does_as_well_as_a_graph():
    links = [["s", "a"], ["s", "b"], ["a", "t"], ["b", "t"]]
    one = make_world("routing", graph=links, source="s", target="t", seed=4)
    two = make_world("routing", graph=networkx.DiGraph(links), source="s", target="t", seed=4)
    assert one.horizon == 4
    for a, b in itertools.zip_longest(one.kernels, two.kernels):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outages": (0.7, 0.7)}, "outages is .* sum to at most 1"),
        ({"outages": 0.1}, "outages is 0.1, should be probabilities"),
        ({"outages": (np.nan,)}, "outages is .*nan.*, should be probabilities"),
        ({"outages": ("often",)}, "outages is not an array of numbers"),
        ({"source": "s"}, "give graph as well"),
        ({"graph": [["a", "b"]], "source": "a", "target": "z"}, "target is 'z', should be one of the nodes"),
        ({"graph": [["a", "b"]], "source": "a", "target": "a"}, "source and target are both 'a'"),
        ({"graph": [["a", "b"]], "source": "b", "target": "a"}, "no path of links leads from 'b' to 'a'"),
        ({"graph": [["a", "b"]], "source": "a", "target": "b", "hops": 0}, "hops is 0, should be an integer >= 1"),
        ({"graph": 3, "source": "a", "target": "b"}, "no list of links"),
        ({"graph": [], "source": "a", "target": "b"}, "graph has no links"),
        ({"width": 1}, "width is 1"),
    ],
)
def test_bad_options_are_rejected(options, message):
    with pytest.raises(InvalidSpecError, match=message):
        make_world("routing", **options)


def test_a_link_must_belong_to_a_group_that_exists():
    with pytest.raises(InvalidSpecError, match=r"risk of link \('s', 'low'\) is 1, outages has 1 groups"):
        small(outages=(0.1,))


def test_a_delay_must_be_a_number():
    graph = networkx.DiGraph([("s", "t", {"delay": "long"})])
    with pytest.raises(InvalidSpecError, match=r"delay of link \('s', 't'\) is 'long', should be a finite number > 0"):
        make_world("routing", graph=graph, source="s", target="t")


def test_delays_follow_the_formula():
    world = small(outages=(0.0, 0.0))
    adversary = make_adversary("natural-losses", world, 100, seed=1, reaction=0.0)
    losses = np.array([adversary.flat_losses(0)])
    for k in range(1, 24):
        adversary.observe([0, 0], [0, 0])
        losses = np.vstack([losses, adversary.flat_losses(k)])
    # Without reaction 0 <= v <= 1: from free flow up to 1.15 times, of a largest delay 2 * 3.4.
    np.testing.assert_allclose(losses[:, 1].min(), 2.0 / 6.8, rtol=0.01)
    np.testing.assert_allclose(losses[:, 1].max(), 2.3 / 6.8, rtol=0.02)
    assert np.ptp(losses[:, 0]) > 0


def test_the_delay_is_that_of_the_link_taken_not_of_the_one_asked_for():
    """Who asks for a link that is down pays for the way of the repair, and adds to the traffic there."""
    world, cut = small(outages=(0.0, 0.0)), small(outages=(0.3, 0.1))
    up, low = make_adversary("natural-losses", world, 100, seed=1).losses(0)[0][0]
    asked = make_adversary("natural-losses", cut, 100, seed=1)
    np.testing.assert_allclose(asked.losses(0)[0][0], [0.7 * up + 0.3 * low, 0.9 * low + 0.1 * up], rtol=1e-12)
    # Group 0 is always down: asking for the upper link is asking for the lower one, in every respect.
    down = [make_adversary("natural-losses", small(outages=(1.0, 0.0)), 100, seed=1) for _ in range(2)]
    for _ in range(30):
        for action, adversary in enumerate(down):
            adversary.observe([0, cut.scene.states[1].index("low")], [action, 0])
    np.testing.assert_allclose(down[0].flat_losses(30), down[1].flat_losses(30), rtol=1e-12)
    assert np.ptp(down[0].losses(30)[0][0]) < 1e-12


def test_congestion_follows_our_own_past_use():
    world = small(outages=(0.0, 0.0))
    used, unused = (make_adversary("natural-losses", world, 100, seed=1) for _ in range(2))
    low = world.scene.states[1].index("low")
    for _ in range(50):
        used.observe([0, 1 - low], [0, 0])
        unused.observe([0, low], [1, 0])
    # Asking for the upper link all the time has made it slower than it is for those who never did, and no other.
    assert used.flat_losses(50)[0] > unused.flat_losses(50)[0]
    assert used.flat_losses(50)[1] < unused.flat_losses(50)[1]


def test_the_losses_of_a_saved_network_are_the_same(tmp_path):
    world = make_world("routing", seed=2)
    world.save(tmp_path / "net.npz")
    again = load_mdp(tmp_path / "net.npz")
    assert again.scene.states == world.scene.states
    one, two = (make_adversary("natural-losses", mdp, 10, seed=5).flat_losses(0) for mdp in (world, again))
    np.testing.assert_array_equal(one, two)
