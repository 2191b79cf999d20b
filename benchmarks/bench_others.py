"""The same work done here and by other public packages, in one run; what is not installed is said and left out.

    python -m benchmarks.bench_others

*Finite horizon*: the best policy of a random MDP with S states, A actions and N steps, kernels dense, and of the plain
10 x 10 grid with slip, whose kernels are sparse (pymdptoolbox and QuantEcon get them as sparse matrices, the form that
suits them best).  Values must be equal to 1e-9.  *O-REPS*: a run with full information on the 10 x 10 grid of PyNOL's
online-MDP application, whose checkout must be on the path (that part is not in its package); both sides see the same
losses, both times are those of the update alone, and the mean losses are printed.

Times are processor time: in the first part the best of several rounds that take turns, in the second the mean of a run.
First calls, which may compile, are not counted.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise

import numpy as np
import scipy.sparse as sparse

from advmdp import LayeredMDP, make_world, occupancy
from advmdp.confidence import KnownKernels
from advmdp.solvers import mirror_descent_step

ROUNDS = 7


def optional(module: str, package: str):
    """The module, or None with a note."""
    try:
        found = import_module(module)
    except ImportError as error:
        print(f"{package}: not here ({error})")
        return None
    try:
        print(f"{package} {version(package)}")
    except PackageNotFoundError:
        print(f"{package}, a checkout")
    return found


def best_times(contestants: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Least processor time of each, in turns, each repeated for at least a hundredth of a second."""
    repeats = {}
    for name, call in contestants.items():
        call()
        start = time.process_time()
        call()
        repeats[name] = max(1, int(0.01 / max(time.process_time() - start, 1e-6)))
    best = dict.fromkeys(contestants, np.inf)
    for _ in range(ROUNDS):
        for name, call in contestants.items():
            start = time.process_time()
            for _ in range(repeats[name]):
                call()
            best[name] = min(best[name], (time.process_time() - start) / repeats[name])
    return best


def show(title: str, times: dict[str, float]) -> None:
    print(f"\n{title}")
    for name, seconds in times.items():
        print(f"  {name:<34}{1e3 * seconds:10.3f} ms  x {seconds / times['advmdp']:.2f}")


# ------------------------------------------------------------------------------------------ finite horizon


def finite_horizon(title: str, world: LayeredMDP, losses, P, rewards, steps: int, start, toolbox, econ) -> None:
    """P is (S, A, S), stationary; ``start`` the distribution with which the rivals' values are weighted."""
    n_states, n_actions = rewards.shape
    scarce = np.count_nonzero(P) < 0.2 * P.size
    contestants: dict[str, Callable[[], object]] = {"advmdp": lambda: occupancy.best_policy(world, losses)}
    ours = contestants["advmdp"]()[1]
    values = {}
    if toolbox is not None:
        by_action = [P[:, a, :] for a in range(n_actions)]
        given = [sparse.csr_matrix(table) for table in by_action] if scarce else np.array(by_action)
        problem = toolbox.FiniteHorizon(given, rewards, 1.0, steps)
        problem.run()
        values["pymdptoolbox"] = problem.V[:, 0]
        contestants["pymdptoolbox"] = problem.run
    if econ is not None:
        if scarce:
            states, actions = np.divmod(np.arange(n_states * n_actions), n_actions)
            flat = sparse.csr_matrix(P.reshape(-1, n_states))
            problem = econ.DiscreteDP(rewards.ravel(), flat, 1.0, states, actions)
        else:
            problem = econ.DiscreteDP(rewards, P, 1.0)
        values["QuantEcon"] = econ.backward_induction(problem, steps)[0][0]
        contestants["QuantEcon"] = lambda: econ.backward_induction(problem, steps)
    for name, value in values.items():
        assert abs(-start @ value - ours) < 1e-9 * max(1.0, abs(ours)), (name, -start @ value, ours)
    show(title, best_times(contestants))


def random_finite_horizon(n_states: int, n_actions: int, steps: int, *rivals) -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(n_states), size=(n_states, n_actions))
    table = rng.random((n_states, n_actions))
    # One step more here: a first state, from which every state is as likely.
    start = np.full((1, n_actions, n_states), 1.0 / n_states)
    world = LayeredMDP([start, *[P] * (steps - 1), np.ones((n_states, n_actions, 1))])
    losses = [np.zeros((1, n_actions)), *[table] * steps]
    title = f"finite horizon, dense: S = {n_states}, A = {n_actions}, N = {steps}"
    finite_horizon(title, world, losses, P, -table, steps, start[0, 0], *rivals)


def grid_finite_horizon(*rivals) -> None:
    world = make_world("grid", height=10, width=10, noise={"slip": 0.1})
    starts = np.cumsum([0, *world.layer_sizes])
    P = np.zeros((starts[-1], world.n_actions, starts[-1]))
    for h, kernel in enumerate(world.kernels):
        P[starts[h] : starts[h + 1], :, starts[h + 1] : starts[h + 2]] = kernel
    P[-1, :, -1] = 1.0
    rng = np.random.default_rng(0)
    losses = [rng.random((size, world.n_actions)) for size in world.layer_sizes[:-1]]
    rewards = -np.concatenate([*losses, np.zeros((1, world.n_actions))])
    title = f"finite horizon, sparse: grid 10 x 10 as a layered MDP, S = {starts[-1]}, A = {world.n_actions}, "
    title += f"N = {world.horizon}"
    finite_horizon(title, world, losses, P, rewards, world.horizon, np.eye(starts[-1])[0], *rivals)


# -------------------------------------------------------------------------------------------------- O-REPS


def layered_grid(domain) -> tuple[LayeredMDP, np.ndarray]:
    """Their 10 x 10 grid as a layered MDP, and the position of each of our states in their order."""
    depth = np.array(domain.layers[0])
    order = [np.flatnonzero(depth == h) for h in range(domain.layer_num)]
    kernels = [domain.transition[np.ix_(here, range(2), there)] for here, there in pairwise(order)]
    return LayeredMDP(kernels), np.concatenate(order[:-1])


def o_reps(grids, base, environments, episodes: int = 60) -> None:
    """Their learner as their example runs it, and ours from the same start with the same step size."""
    domain = grids.GridWorld(10, 10, [(0, 1), (1, 0)], 0.9)
    world, order = layered_grid(domain)
    rng = np.random.default_rng(0)
    tables = [(rng.random((100, 2)) < 0.5).astype(float) for _ in range(3)]
    eta = episodes**-0.5
    theirs = base.Hedge(domain=domain, step_size=eta, prior="minimum")
    first = theirs.x.reshape(-1, 2)[order]
    q = world.layers.split(np.maximum(first, 0.0).ravel())
    known, log_q, warm = KnownKernels(world.kernels), None, None
    seconds, totals, gaps = np.zeros(2), np.zeros(2), 0.0
    for k in range(episodes + 2):
        counted = k >= 2  # the first ones compile
        loss = tables[min(max(k - 2, 0) * 3 // episodes, 2)]
        environment = environments.Environment()
        flat = loss.ravel()[:-2]
        environment.func = lambda x, flat=flat: np.dot(x, flat)
        layered = world.layers.split(loss[order].ravel())
        start = time.process_time()
        x = theirs.opt(environment)[0]
        middle = time.process_time()
        step = mirror_descent_step(known, q, layered, eta, log_q=log_q, warm=warm)
        end = time.process_time()
        if counted:
            # What their policy loses: x is no occupancy measure exactly, since entries are raised to 0.001.
            policy = occupancy.policy_of(world.layers.split(x.reshape(-1, 2)[order].ravel()))
            totals += (
                occupancy.expected_loss(world, policy, layered),
                sum(float((mass * table).sum()) for mass, table in zip(q, layered, strict=True)),
            )
            seconds += middle - start, end - middle
        q, log_q, warm, gaps = step.q, step.log_q, step.warm, max(gaps, step.gap)
    show(
        f"O-REPS, known kernel, full information, grid 10 x 10: one episode's update, mean of {episodes}",
        {"advmdp": seconds[1] / episodes, "PyNOL (CVXPY projection)": seconds[0] / episodes},
    )
    print(f"  mean loss per episode: advmdp {totals[1] / episodes:.4f}, PyNOL {totals[0] / episodes:.4f}")
    print(f"  duality gap of our steps: at most {gaps:.1e}; PyNOL keeps q >= 0.001, we do not")


def main() -> None:
    warnings.simplefilter("ignore")
    rivals = (
        optional("mdptoolbox.mdp", "pymdptoolbox"),
        optional("quantecon.markov.ddp", "quantecon"),
    )
    grids = optional("applications.online_mdp.grid_world.loop_free_ssp", "pynol")
    for sizes in ((10, 2, 10), (100, 5, 50), (400, 4, 20)):
        random_finite_horizon(*sizes, *rivals)
    grid_finite_horizon(*rivals)
    if grids is not None:
        o_reps(grids, import_module("pynol.learner.base"), import_module("pynol.environment.environment"))


if __name__ == "__main__":
    main()
