"""Likelihood-ratio sets beside those of the joint radius: widths, what forecasters cost, time, coverage.

    python -m benchmarks.bench_likelihood

*Widths*: sum over all pairs and next states of the length of the hull of the row set, with the joint radius (and the
simplex) over that with `radius="likelihood"`; default worlds, uniform play, zeta = 0.05, mean over seeds.  *Price*:
max L - A in nats, per layer, for the Dirichlet(1/2) mixture of all weights (by 100,000 draws), the bound on it, the
smoothed plug-in forecaster, and what the sets use: the mean of plug-in and bound.  *Time*: of one more episode and the
set after it, in microseconds, beside one mirror step over the same set.  *Coverage*: runs of 50 episodes, ten layers,
four kernels, actions chosen by the data, looked at after every episode.
"""

from __future__ import annotations

import time
from math import log

import numpy as np

from advmdp import make_adversary, make_learner, make_world, occupancy, play, run
from advmdp.confidence import ConfidenceSet
from advmdp.confidence.likelihood_ratio import Likelihood, dirichlet_regret, likelihood_ratio, likelihoods
from advmdp.confidence.regression import joint_regression
from advmdp.solvers import mirror_descent_step
from advmdp.theory.lemmas import likelihood as lemmas

WORLDS = ("grid", "frozen-lake", "river-swim", "routing", "inventory", "queue", "random-mixture", "pricing")
SIZES, SEEDS, DRAWS, RUNS = (300, 3000), 2, 100_000, 1000
FORMS = {"joint": joint_regression, "likelihood": likelihood_ratio}


def width(confidence_set: ConfidenceSet) -> float:
    lower, upper = confidence_set.hull()
    return sum(float((b - a).sum()) for a, b in zip(lower[:-1], upper[:-1], strict=True))


def histories(world, rng: np.random.Generator, shared: bool) -> dict[int, dict[str, tuple[ConfidenceSet, object]]]:
    """Sets and data of both kinds after each number of episodes."""
    policy = occupancy.uniform_policy(world.layer_sizes, world.n_actions)
    losses = [np.zeros((n, world.n_actions)) for n in world.layer_sizes[:-1]]
    parts = {name: form(world.model, shared=shared) for name, form in FORMS.items()}
    data = {name: estimator.empty() for name, (estimator, _) in parts.items()}
    found = {}
    for k in range(max(SIZES)):
        episode = play(world, policy, losses, rng)
        for name, (estimator, _) in parts.items():
            data[name] = estimator.add(data[name], episode.states, episode.actions)
        if k + 1 in SIZES:
            found[k + 1] = {name: (sets(data[name]), data[name]) for name, (_, sets) in parts.items()}
    return found


def prices(data: Likelihood, rng: np.random.Generator) -> list[float]:
    """Of the mixture, its bound, the plug-in forecaster and the mean; mean over groups of layers."""
    found = data.likeliest
    groups, dim = found.weights.shape
    best, totals = np.empty(groups), np.empty(groups)
    likelihoods(found.rows.vectors, found.rows.groups, found.seen, found.counts, found.weights, best, totals)
    bound = np.array([dirichlet_regret(n, dim) for n in totals])
    draws = rng.dirichlet(np.full(dim, 0.5), DRAWS)
    mixture = np.empty(groups)
    for g in range(groups):
        first, last = np.searchsorted(found.seen, found.rows.groups[g : g + 2])
        values = np.log(draws @ found.rows.vectors[found.seen[first:last]].T) @ found.counts[first:last] - best[g]
        mixture[g] = -log(np.exp(values).mean())
    plug_in = best - data.log_forecast
    mean = np.maximum(-data.estimate.evidence - found.gaps, 0.0)
    return [float(column.mean()) for column in (mixture, bound, plug_in, mean)]


def speed(name: str) -> tuple[float, float, float]:
    """Median microseconds of one more episode with its set, joint and likelihood, and of one mirror step."""
    world = make_world(name)
    learner = make_learner("vlsuob-reps-tight", world.model, 300, radius="likelihood")
    run(world, learner, make_adversary("stochastic", world, 300), 300, progress=False)
    rng, taken = np.random.default_rng(0), {name: [] for name in (*FORMS, "step")}
    parts = {form: make(world.model) for form, make in FORMS.items()}
    data = {form: estimator.empty() for form, (estimator, _) in parts.items()}
    for k in range(400):
        episode = play(world, learner.policy, world.layers.split(np.zeros(world.layers.n_pairs)), rng)
        for form, (estimator, sets) in parts.items():
            start = time.perf_counter()
            data[form] = estimator.add(data[form], episode.states, episode.actions)
            sets(data[form])
            taken[form].append(time.perf_counter() - start if k >= 200 else np.nan)
    state = learner._now.state
    for _ in range(20):
        start = time.perf_counter()
        mirror_descent_step(
            state.set, None, state.loss_estimate, learner.step_size, log_q=state.step.log_q, warm=state.step.last.warm
        )
        taken["step"].append(time.perf_counter() - start)
    joint, likelihood, step = (1e6 * float(np.nanmedian(times)) for times in taken.values())
    return joint, likelihood, step


def main() -> None:
    rows = []
    print("| world | apart, 300 | apart, 3000 | shared, 300 | shared, 3000 |\n|---|--:|--:|--:|--:|")
    for name in WORLDS:
        world = make_world(name)
        cells = []
        for shared in (False, True):
            if shared and not world.model.shared:
                cells += ["-"] * len(SIZES)
                continue
            found = [histories(world, np.random.default_rng(seed), shared) for seed in range(SEEDS)]
            for n in SIZES:
                ratios = [width(each[n]["joint"][0]) / width(each[n]["likelihood"][0]) for each in found]
                cells.append(f"{np.mean(ratios):.2f}")
            label = f"{name}{', shared' if shared else ''}"
            rows.append((label, prices(found[0][max(SIZES)]["likelihood"][1], np.random.default_rng(0))))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"\n| {max(SIZES)} episodes | mixture | its bound | plug-in | mean |\n|---|--:|--:|--:|--:|")
    for label, values in rows:
        print(f"| {label} | {' | '.join(f'{value:.1f}' for value in values)} |")
    print("\n| world | joint | likelihood | mirror step |\n|---|--:|--:|--:|")
    for name in ("grid", "queue", "random-mixture"):
        joint, likelihood, step = speed(name)
        print(f"| {name} | {joint:.0f} | {likelihood:.0f} | {step:.0f} |", flush=True)
    missed = int((lemmas.coverage_ratios(np.random.default_rng(0), RUNS) > 1.0).sum())
    ratio = int((lemmas.forecaster_ratios(True)(np.random.default_rng(0), RUNS) > 1.0).sum())
    print(f"\nof {RUNS} runs at level {lemmas.ZETA}: {ratio} leave the likelihood set, {missed} the ellipsoid")


if __name__ == "__main__":
    main()
