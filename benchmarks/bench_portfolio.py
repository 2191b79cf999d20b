"""What `portfolio` saves, against what people would use instead; bandit feedback, unknown transition, no tuning.

    python -m benchmarks.bench_portfolio cells      # six worlds, five kinds of losses, six rivals
    python -m benchmarks.bench_portfolio layers     # the same worlds without the knowledge that weights are shared
    python -m benchmarks.bench_portfolio others     # worlds and problems that no issue names
    python -m benchmarks.bench_portfolio hostile    # losses made against planners, K = 1,000 to 16,000
    python -m benchmarks.bench_portfolio [cost]     # an episode against one of `vlsuob-reps-tight`
    python -m benchmarks.bench_portfolio print      # the tables in docs/study/tables, judged
    python -m benchmarks.bench_portfolio pages      # the same for docs/learners/portfolio.md, from the tables there are

Runs that are in a table already are not repeated (``--new`` begins afresh).  Regrets are exact, per episode.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from advmdp import LinearMixtureMDP, make_adversary, make_learner, make_world, run
from advmdp.adversaries import Adversary
from advmdp.experiments.runner import Run
from advmdp.learners.parts.experts import ExpertWeights
from advmdp.learners.parts.predictors import with_losses
from advmdp.learners.portfolio import Portfolio
from advmdp.occupancy import forward

DOCS = Path(__file__).parents[1] / "docs"
TABLES, PAGE = DOCS / "study" / "tables", DOCS / "learners" / "portfolio.md"
BLOCK = re.compile(r"(<!-- portfolio tables -->\n).*?(<!-- end -->)", re.DOTALL)
EPISODES, SEEDS = 3000, range(5)
WORLDS = ("grid", "frozen-lake", "river-swim", "routing", "inventory", "queue")
KINDS = {
    "natural": ("natural-losses", {}),
    "stochastic": ("stochastic", {}),
    "drifting": ("drifting", {}),
    "switching": ("switching", {"period": 200}),
    "adaptive": ("adaptive", {}),
}
TIGHT = "vlsuob-reps-tight"
RIVALS = {
    "uniform": ("uniform", {}),
    "planner": ("planner", {}),
    "planner 0.98": ("planner", {"forgetting": 0.98}),
    "planner 0.9": ("planner", {"forgetting": 0.9}),
    TIGHT: (TIGHT, {}),
    f"{TIGHT} x10": (TIGHT, {"eta": 10.0}),  # a multiple of the theorem's
}
PORTFOLIOS = {"portfolio": ("portfolio", {}), "portfolio, no premium": ("portfolio", {"premium": False})}
MIXTURE = {"mixture, unproved": ("mixture", {})}
SHARE = 1e-3


class Hedge(NamedTuple):
    """AdaHedge with a small fixed share, on losses that a model estimates."""

    totals: np.ndarray
    weights: np.ndarray
    scale: float

    def add(self, losses: np.ndarray) -> Hedge:
        rate = min(1.0, np.log(losses.size) / max(self.scale, 1e-12))
        least = losses.min()
        mixed = least - np.log(self.weights @ np.exp(-rate * (losses - least))) / rate
        scale = self.scale + max(0.0, float(self.weights @ losses - mixed))
        totals = self.totals + losses
        rate = min(1.0, np.log(losses.size) / max(scale, 1e-12))
        weights = np.exp(-rate * (totals - totals.min()))
        weights = (1.0 - SHARE) * weights / weights.sum() + SHARE / losses.size
        return Hedge(totals, weights, scale)


class Mixture(Portfolio):
    """The same experts without the safe one, played as one Markov policy; nothing is proved about it.

    It plays q = sum_i w_i q^i under the estimated kernel, and judges expert i by <q^i, m> + sum_visited q^i (l - m) /
    (q + gamma), m the mean of what the experts predict: right only if the kernel is.
    """

    name = "mixture"

    def _begin(self):
        state = super()._begin()
        count = len(state.policies) - 1
        hedge = Hedge(np.zeros(count), np.full(count, 1.0 / count), float(self._layers.horizon))
        return self._mixed(state._replace(meta=hedge))

    def _mixed(self, state):
        layers, kernel = self._layers, state.kernel.kernel
        own = np.empty((len(state.policies) - 1, layers.n_pairs))
        for q, policy in zip(own, state.policies[1:], strict=True):
            forward(tuple(kernel), layers.size_array, layers.n_actions, policy, q)
        q = state.meta.weights @ own
        rows = q.reshape(-1, layers.n_actions)
        mass = rows.sum(axis=1, keepdims=True)
        spread = (state.meta.weights @ state.policies[1:]).reshape(rows.shape)
        policy = np.where(mass > 1e-12, rows / np.maximum(mass, 1e-300), spread)
        policy /= policy.sum(axis=1, keepdims=True)
        self._own_q, self._q = own, q
        return state._replace(policy=policy.ravel())

    def _learn(self, state, episode):
        pairs, losses, layers = episode.pairs, episode.losses, self._layers
        predicted = state.meta.weights @ state.predictions.tables[self._uses]
        gamma = np.sqrt(np.log(layers.n_actions) / (layers.n_pairs * (state.k + 1)))
        seen = (losses - predicted[pairs]) / (self._q[pairs] + gamma)
        hedge = state.meta.add(self._own_q @ predicted + self._own_q[:, pairs] @ seen)
        learners = state.learners.add(pairs, losses, state.predictions.tables[self._uses[self._soft]], self._q)
        kernel = state.kernel.add(episode.states, episode.actions)
        first = self._drawn(
            self._equal,
            state.base,
            kernel,
            with_losses(state.predictions, episode, self._layers),
            learners,
            state.k + 1,
        )
        return self._mixed(first._replace(meta=hedge))

    @property
    def _equal(self):
        return ExpertWeights.empty(len(self.expert_names), self._layers.horizon)


class Experts:
    """The true loss of every expert along a run, and of the draw."""

    def __init__(self, world, learner):
        self.world, self.total = world, np.zeros(len(learner.expert_names))
        self.drawn, self.excess = 0.0, np.zeros(len(learner.expert_names))

    def before(self, k, learner, q, losses):
        layers, state, own = self.world.layers, learner._now.state, np.empty_like(q)
        values = []
        for policy in state.policies:
            forward(tuple(self.world.rows), layers.size_array, layers.n_actions, policy, own)
            values.append(own @ losses)
        values = np.array(values)
        meta = state.meta
        self.total += values
        self.drawn += meta.weights @ values
        # What the certificate bounds, in expectation: without the premium's part.
        self.excess += (1.0 - meta.premium) * (meta.shares @ values - values)

    def after(self, k, learner):
        """Nothing."""


def built(name, options, world, episodes, seed):
    if name == "mixture":
        return Mixture(world.model, seed=seed)
    options = dict(options)
    if "eta" in options:
        options["eta"] *= make_learner(name, world, episodes).step_size
    return make_learner(name, world, episodes, seed=seed, **options)


def play(world, kind, label, learner, options, episodes, seed) -> dict:
    """One run: regret per episode, and what uniform play's is on the losses that were met."""
    adversary, settings = KINDS[kind]
    losses = make_adversary(adversary, world, episodes, seed=seed, **settings)
    player = built(learner, options, world, episodes, seed)
    watch = Experts(world, player) if learner == "portfolio" else None
    result = run(world, player, losses, episodes, seed=seed, progress=False, watch=watch)
    row = {
        "learner": label,
        "regret": result.regret[-1] / episodes,
        "span": (result.baselines["uniform"] - result.baselines["best"]) / episodes,
        "microseconds": 1e6 * result.processor_seconds / episodes,
    }
    if watch is not None:
        row |= {
            "of the draw": (watch.drawn - result.baselines["best"]) / episodes,
            "best expert": (watch.total.min() - result.baselines["best"]) / episodes,
            **{f"excess {i}": value / episodes for i, value in enumerate(watch.excess)},
            "certificate": player.certificate / episodes,
        }
    return row


def cell(world_name, kind, label, learner, options, seed) -> dict:
    return {"world": world_name, "kind": kind, "seed": seed} | play(
        WORLD_MAKERS[world_name](), kind, label, learner, options, EPISODES, seed
    )


# ------------------------------------------------------------------------------------------ problems


def without_sharing(name: str) -> LinearMixtureMDP:
    """The world, of a model that does not say that its weights are the same in every layer."""
    world = make_world(name)
    model = world.model
    return LinearMixtureMDP(
        world.features, world.theta, bound=model.bound, simplex=model.simplex, scales=model.scales, scene=world.scene
    )


def chain(length=8, horizon=12):
    """Walk along a chain with one of three kinds of ground; the far end is where it is cheap."""
    kernels = []
    for slip in (0.05, 0.3, 0.6):
        step = np.zeros((length, 2, length))
        for s in range(length):
            for a, move in enumerate((-1, 1)):
                step[s, a, min(max(s + move, 0), length - 1)] += 1.0 - slip
                step[s, a, s] += slip
        kernels.append([step[:1], *[step] * (horizon - 2), np.ones((length, 2, 1))])
    return LinearMixtureMDP.from_kernels(kernels, [0.5, 0.3, 0.2])


def machine(states=6, horizon=15):
    """A machine that wears: go on, mend, or replace, under three rates of wear."""
    kernels = []
    for wear in (0.1, 0.3, 0.5):
        step = np.zeros((states, 3, states))
        for s in range(states):
            worse = min(s + 1, states - 1)
            step[s, 0, worse] += wear
            step[s, 0, s] += 1.0 - wear
            step[s, 1, max(s - 1, 0)] += 0.7
            step[s, 1, s] += 0.3
            step[s, 2, 0] = 1.0
        kernels.append([step[:1], *[step] * (horizon - 2), np.ones((states, 3, 1))])
    return LinearMixtureMDP.from_kernels(kernels, [0.2, 0.5, 0.3])


def mixture():
    """Six states a layer, drawn at random."""
    return make_world("random-mixture", layer_sizes=(1, 6, 6, 6, 6, 1), n_actions=4, dim=3, seed=7, shared=True)


OTHERS = {
    "chain": chain,
    "machine": machine,
    "random mixture": mixture,
}
WORLD_MAKERS = (
    {name: partial(make_world, name) for name in WORLDS}
    | {f"{name}, per layer": partial(without_sharing, name) for name in WORLDS}
    | OTHERS
)


class LeaderMadeDear(Adversary):
    """A planner that sees the same losses has a plan: its pairs are charged in the next episode, all others are free.

    Full information, averaged over all the past, is what that planner knows; the learner's own draws are not looked at.
    """

    def __init__(self, mdp, episodes):
        super().__init__(mdp, episodes)
        self._shadow = make_learner("ftl", mdp, episodes)
        self._tables: list[np.ndarray] = []

    def flat_losses(self, k):
        from advmdp import Episode

        while len(self._tables) <= k:
            table = np.zeros(self.layers.n_pairs)
            table[self._shadow.flat_policy > 0.0] = 1.0
            self._tables.append(table)
            states = np.zeros(self.layers.horizon, dtype=np.int64)
            actions = np.zeros(self.layers.horizon, dtype=np.int64)
            pairs = self.layers.pair_offsets[:-1]
            self._shadow.update(Episode(states, actions, table[pairs], table))
        return self._tables[k]


class TurningBad(Adversary):
    """The action that is good for a third of the time is bad ever after."""

    def flat_losses(self, k):
        table = np.full((self.layers.n_pairs // self.layers.n_actions, self.layers.n_actions), 0.5)
        table[:, 0] = 0.0 if 3 * k < self.episodes else 1.0
        return table.ravel()


class Alternating(Adversary):
    """The first action costs 1/2 first, then 0 and 1 in turn; the second the opposite: the leader is always wrong."""

    def flat_losses(self, k):
        table = np.zeros((self.layers.n_pairs // self.layers.n_actions, self.layers.n_actions))
        table[:, 0] = 0.5 if k == 0 else 1 - k % 2
        table[:, 1] = 0.0 if k == 0 else k % 2
        return table.ravel()


HOSTILE = {
    "leader made dear": (LeaderMadeDear, "full"),
    "good turns bad": (TurningBad, "bandit"),
    "alternating": (Alternating, "full"),
}


def against(losses, label, episodes, seed) -> dict:
    world = chain()
    kind, feedback = HOSTILE[losses]
    adversary = kind(world, episodes)
    options = {} if label == "uniform" else {"feedback": feedback}
    learner = make_learner(label, world, episodes, seed=seed, **options)
    result = run(world, learner, adversary, episodes, seed=seed, progress=False)
    return {"losses": losses, "learner": label, "episodes": episodes, "seed": seed, "regret": result.regret[-1]}


# ------------------------------------------------------------------------------------------ tables


def fill(name: str, keys: list[str], jobs: Iterator[tuple], work) -> pd.DataFrame:
    """The table of that name with a row for each job; what is there already is not repeated."""
    path = TABLES / f"portfolio-{name}.csv"
    old = pd.read_csv(path) if path.exists() and "--new" not in sys.argv else pd.DataFrame(columns=keys)
    done = {tuple(row) for row in old[keys].itertuples(index=False)}
    rows = old.to_dict("records")
    todo = [(key, job) for key, job in jobs if key not in done]
    workers = int(sys.argv[sys.argv.index("--workers") + 1]) if "--workers" in sys.argv else 2
    with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        results = (map if pool is None else pool.map)(partial(call, work), [job for _, job in todo])
        for number, row in enumerate(results):
            rows.append(row)
            if number % 10 == 9 or number == len(todo) - 1:
                table = pd.DataFrame(rows).sort_values(keys, key=lambda column: column.astype(str))
                table.to_csv(path, index=False, float_format="%.5g")
                print(f"{name}: {number + 1} of {len(todo)}", flush=True)
    return pd.read_csv(path)


def call(work, job):
    return work(*job)


def cells(name: str, worlds, learners, kinds=KINDS) -> pd.DataFrame:
    jobs = (
        ((world, kind, seed, label), (world, kind, label, *learners[label], seed))
        for seed in SEEDS
        for world in worlds
        for kind in kinds
        for label in learners
        if kind != "natural" or natural(world)
    )
    return fill(name, ["world", "kind", "seed", "learner"], jobs, cell)


@cache
def natural(world: str) -> bool:
    """Whether a world has losses of its own."""
    return WORLD_MAKERS[world]().scene.natural_losses is not None


# ------------------------------------------------------------------------------------------ verdicts


def means(table: pd.DataFrame, column="regret") -> pd.DataFrame:
    return table.groupby(["kind", "world", "learner"], sort=False)[column].mean().unstack("learner")


def judge_cells(table: pd.DataFrame) -> None:
    regret = means(table)
    print(regret.round(3).to_string())
    span = regret["uniform"]
    saved = (1.0 - regret["portfolio"] / span).rename("saved")
    natural = saved.loc["natural"]
    print(
        f"\nnatural losses: share saved {natural.mean():.3f} on average (0.80 asked), least {natural.min():.3f} (0.5)"
    )
    rivals = regret[list(RIVALS)].min(axis=1)
    behind = (regret["portfolio"] - rivals) / span
    others = behind.drop("natural", level="kind")
    print(
        f"other losses: within a tenth of the span of the best rival in {(others <= 0.1).sum()} of {len(others)} cells"
    )
    print(f"worse than uniform in {(regret['portfolio'] > span).sum()} cells; largest (ours - best rival) / span "
          f"{behind.max():.3f} at {behind.idxmax()}")  # fmt: skip
    price(table)


def above_certificate(rows: pd.DataFrame) -> pd.Series:
    """By cell, what was lost against the expert against which it was most, but for the premium, less the certificate.

    Means over seeds: the certificate is about the mean against any one expert that is named beforehand.
    """
    against = [name for name in rows if name.startswith("excess ")]
    cells = rows.groupby(["learner", "kind", "world"])[[*against, "certificate"]].mean()
    return (cells[against].max(axis=1) - cells["certificate"]).dropna()


def price(table: pd.DataFrame) -> None:
    """Premium, certificate and the mixture without a proof, by kind of losses."""
    ours = table[table["learner"].isin(PORTFOLIOS | MIXTURE)]
    columns = ["regret", "best expert", "certificate"]
    print(ours.groupby(["learner", "kind"], sort=False)[columns].mean().round(3).to_string())
    proved = ours[ours["learner"].isin(PORTFOLIOS)]
    over = above_certificate(proved)
    print(f"mean excess above the certificate in {(over > 0).sum()} of {len(over)} cells, at most {over.max():.4f}")


def judge_layers(table: pd.DataFrame, shared: pd.DataFrame) -> None:
    regret, known = means(table), means(shared)
    for kind in regret.index.unique("kind"):
        here = regret.loc[kind].rename(index=lambda world: world.removesuffix(", per layer"))
        there = known.loc[kind].reindex(here.index)
        better = (here["portfolio"] < there[TIGHT]).sum()
        print(f"{kind}: per layer {here['portfolio'].mean():.3f}, shared {there['portfolio'].mean():.3f}, "
              f"{TIGHT} {there[TIGHT].mean():.3f}; better than that in {better} of {len(here)} worlds")  # fmt: skip


def judge_hostile(table: pd.DataFrame) -> None:
    mean = table.groupby(["losses", "learner", "episodes"], sort=False)["regret"].mean()
    wide = mean.unstack("episodes").sort_index(axis=1)
    wide["exponent"] = [exponent(wide.columns, row) for row in wide.to_numpy()]
    print(wide.round(2).to_string())


def cost() -> None:
    """Processor time of an episode, in turn, after 300 episodes: medians of pieces."""
    for name in WORLDS:
        world = make_world(name)
        runs = {}
        for label in ("portfolio", TIGHT):
            adversary = make_adversary("natural-losses", world, 3000)
            runs[label] = Run(world, make_learner(label, world, 3000), adversary, 3000)
            runs[label].play(300)
        times = {label: [] for label in runs}
        for _ in range(15):
            for label, current in runs.items():
                start = time.process_time()
                current.play(40)
                times[label].append((time.process_time() - start) / 40)
        ours, theirs = (1e6 * np.median(times[label]) for label in runs)
        print(f"{name:12} portfolio {ours:6.0f} us  {TIGHT} {theirs:6.0f} us  ratio {ours / theirs:.2f} (2 asked)")
        assert ours <= 2.0 * theirs


# ------------------------------------------------------------------------------------------ the page


def pages() -> None:
    """What the tables say, into the block of the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda found: found[1] + measured() + found[2], text), encoding="utf-8")


def measured(folder: Path = TABLES) -> str:
    """The main results as markdown (`print` has all); a table that is not there is left out."""
    there = {
        name: pd.read_csv(folder / f"portfolio-{name}.csv")
        for name in ("cells", "layers", "others", "hostile")
        if (folder / f"portfolio-{name}.csv").exists()
    }
    parts = []
    if "cells" in there:
        parts += [saved(there["cells"]), premiums(there["cells"])]
    if "cells" in there and "layers" in there:
        parts.append(per_layer(there["layers"], there["cells"]))
    if "others" in there:
        parts.append(on_others(by_world(there["others"], OTHERS)))
    if "hostile" in there:
        parts.append(hostile(there["hostile"]))
    return "".join(f"\n{part}\n" for part in parts) + ("\n" if parts else "")


def table(frame: pd.DataFrame, index: list[str], digits: int = 2) -> str:
    """A frame as a table of markdown; what is missing is a dash."""
    rows = [[*(key if isinstance(key, tuple) else (key,)), *row] for key, row in frame.T.items()]
    lines = ["| " + " | ".join([*index, *map(str, frame.columns)]) + " |"]
    lines.append("|" + "---|" * len(index) + "--:|" * len(frame.columns))
    for row in rows:
        numbers = ["-" if pd.isna(value) else shown(value, digits) for value in row[len(index) :]]
        lines.append("| " + " | ".join([*map(str, row[: len(index)]), *numbers]) + " |")
    return "\n".join(lines)


def shown(value, digits: int = 2) -> str:
    """A number as it is printed, without a negative zero."""
    return f"{round(float(value), digits) + 0.0:,.{digits}f}"


def in_order(names, order) -> list:
    """Those of the names that are there, as they are ordered elsewhere."""
    return [name for name in order if name in set(names)]


def by_world(rows: pd.DataFrame, worlds) -> pd.DataFrame:
    """Mean regret per episode, a row per kind of losses and world, a column per learner."""
    regret = means(rows)
    keys = [
        (kind, world)
        for kind in KINDS
        for world in in_order(regret.index.unique("world"), worlds)
        if (kind, world) in regret.index
    ]
    learners = ["portfolio", *(name for name in RIVALS if name != "uniform"), "uniform"]
    return regret.loc[keys, in_order(regret.columns, learners)]


def seeds(rows: pd.DataFrame) -> str:
    """How long, and how often."""
    return f"{EPISODES:,} episodes, mean of {rows['seed'].nunique()} seeds"


def saved(rows: pd.DataFrame) -> str:
    """Shares of uniform play's regret that are saved, and the distance to the best rival."""
    regret = by_world(rows, WORLDS).dropna()
    span = regret["uniform"]
    shares = (1.0 - regret.div(span, axis=0)).groupby("kind", sort=False).mean()[list(regret.columns[:-1])]
    ours = 1.0 - regret["portfolio"] / span
    least = ours.groupby("kind", sort=False).min()
    shares.insert(1, "portfolio, least", least)
    behind = (regret["portfolio"] - regret[list(RIVALS)].min(axis=1)) / span
    worst = behind.idxmax()
    return (
        f"Six worlds, five kinds of losses (`cells`): {seeds(rows)}. Share of uniform play's regret that is\n"
        "saved, mean over worlds; above 1: better than every fixed policy. 0.98 and 0.9 are forgettings; x10 is ten\n"
        "times the theorem's step size.\n\n"
        + table(shares, ["losses"])
        + "\n\nThe portfolio loses at most a tenth of the span from uniform to best more than its best rival in\n"
        f"{(behind <= 0.1).sum()} of {len(behind)} cells, and at most {shown(behind.max())} of that span ({worst[1]}, "
        f"{worst[0]} losses). It is worse than uniform\nin {(regret['portfolio'] > span).sum()} cells."
    )


def premiums(rows: pd.DataFrame) -> str:
    """What the guarantee costs, and whether the certificate holds."""
    wide = rows.groupby(["kind", "learner"])["regret"].mean().unstack("learner")
    price = wide["portfolio"] - wide["portfolio, no premium"]
    ours = rows[rows["learner"].isin(PORTFOLIOS)]
    over = above_certificate(ours)
    beyond = f", by {shown(over.max(), 4)} at most" if over.max() > 0.0 else ""
    return (
        f"The premium costs at most {shown(price.max(), 3)} per episode, mean over worlds. Means over seeds: more was\n"
        f"lost than the certificate says in {(over > 0.0).sum()} of {len(over)} cells{beyond}."
    )


def per_layer(rows: pd.DataFrame, shared: pd.DataFrame) -> str:
    """What it is worth to know that all layers have the same mixture weights."""
    here = means(rows)["portfolio"].rename(index=lambda world: world.removesuffix(", per layer"), level="world")
    there = means(shared).reindex(here.index)
    frame = pd.DataFrame({"apart": here, "shared": there["portfolio"], TIGHT: there[TIGHT]}).dropna()
    by_kind = frame.groupby("kind").mean()
    change = (by_kind["apart"] - by_kind["shared"]).abs().max()
    return (
        "Without the knowledge that all layers have the same mixture weights (`layers`) the mean regret per episode\n"
        f"of a kind of losses changes by at most {shown(change)}, and is below that of `{TIGHT}` in "
        f"{(frame['apart'] < frame[TIGHT]).sum()} of {len(frame)} cells."
    )


def on_others(regret: pd.DataFrame) -> str:
    """Who is ahead on other problems."""
    ahead = regret["portfolio"] < regret.drop(columns="portfolio").min(axis=1)
    return (
        f"On three other problems (`others`) it has less regret than all rivals in {ahead.sum()} of {ahead.size} cells."
    )


def hostile(rows: pd.DataFrame) -> str:
    """Losses made against planners: total regret by K, and its exponent."""
    wide = rows.groupby(["losses", "learner", "episodes"])["regret"].mean().unstack("episodes")
    wide = wide.loc[[(a, b) for a in HOSTILE for b in ("portfolio", "planner") if (a, b) in wide.index]]
    growth = [exponent(wide.columns, row) for row in wide.to_numpy()]
    wide.columns = [f"K = {episodes:,}" for episodes in wide.columns]
    lines = table(wide, ["losses", "learner"], 0).splitlines()
    lines[0] += " exponent |"
    lines[1] += "--:|"
    for number, value in enumerate(growth):
        lines[number + 2] += f" {'-' if np.isnan(value) else shown(value)} |"
    count = rows["seed"].nunique()
    head = f"Losses made against planners (`hostile`): regret after K episodes, mean of {count} seeds; K^exponent.\n\n"
    return head + "\n".join(lines)


def exponent(episodes, regret) -> float:
    """b of regret ~ K^b by least squares in logarithms; NaN where a regret is not positive."""
    if not (regret > 0.0).all() or len(regret) < 2:
        return np.nan
    return float(np.polyfit(np.log(np.asarray(episodes, dtype=float)), np.log(regret), 1)[0])


def main(what: str) -> None:
    kinds = dict(KINDS)
    if what == "cells":
        judge_cells(cells("cells", WORLDS, RIVALS | PORTFOLIOS | MIXTURE))
    elif what == "layers":
        table = cells("layers", [f"{name}, per layer" for name in WORLDS], {"portfolio": ("portfolio", {})})
        judge_layers(table, pd.read_csv(TABLES / "portfolio-cells.csv"))
    elif what == "others":
        kinds.pop("natural")
        learners = {name: RIVALS[name] for name in ("uniform", "planner", "planner 0.9", TIGHT)} | PORTFOLIOS
        learners.pop("portfolio, no premium")
        print(means(cells("others", OTHERS, learners, kinds)).round(3).to_string())
    elif what == "hostile":
        jobs = (
            ((losses, label, episodes, seed), (losses, label, episodes, seed))
            for seed in SEEDS
            for losses in HOSTILE
            for label in ("planner", "portfolio", "uniform")
            for episodes in (1000, 4000, 16000)
        )
        judge_hostile(fill("hostile", ["losses", "learner", "episodes", "seed"], jobs, against))
    elif what == "cost":
        cost()
    elif what == "print":
        table = pd.read_csv(TABLES / "portfolio-cells.csv")
        judge_cells(table)
        judge_layers(pd.read_csv(TABLES / "portfolio-layers.csv"), table)
        print(means(pd.read_csv(TABLES / "portfolio-others.csv")).round(3).to_string())
        judge_hostile(pd.read_csv(TABLES / "portfolio-hostile.csv"))
    elif what == "pages":
        pages()
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cost")
