"""What a frame of runs says, with how sure it is: means, paired differences, growth, profiles.

Seeds are independent; the episodes of one run are not, nor are the learners of one seed, which meet the same losses and
luck.  So every interval here is over seeds, and learners are compared by their differences within a seed.

A *problem* is a world and an adversary.  Frames have the columns ``world, adversary, learner, seed, episode, regret``,
as :func:`advmdp.experiments.load` returns them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from advmdp.errors import InvalidSpecError

PROBLEM = ["world", "adversary"]
GROUP = [*PROBLEM, "learner"]
RUN = [*GROUP, "seed"]

#: Of every interval in this module.
CONFIDENCE = 0.95

#: Regret per episode below which it is rounding, not regret.
ROUNDING = 1e-9


def mean_and_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Mean of values, shape (n,), and half-width of its Student-t interval; NaN half-width for a single value.

    Student's and not the bootstrap's: with the five or so seeds that experiments have, the bootstrap's interval is too
    narrow (it misses the mean of normal data three times as often as it claims; see ``docs/statistics.md``).
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2:
        return float(array.mean()), float("nan")
    quantile = stats.t.ppf(0.5 + confidence / 2.0, array.size - 1)
    return float(array.mean()), float(quantile * stats.sem(array))


def mean_curves(frame: pd.DataFrame, column: str = "regret") -> pd.DataFrame:
    """Mean of a column over seeds at every logged episode, and the half-width of its Student-t interval."""
    _check_columns(frame)
    groups = frame.dropna(subset=[column]).groupby([*GROUP, "episode"], sort=False)[column]
    table = groups.agg(["mean", "sem", "count"]).reset_index()
    table["half_width"] = stats.t.ppf(0.5 + CONFIDENCE / 2.0, (table["count"] - 1).replace(0, np.nan)) * table["sem"]
    table["order"] = table.groupby(GROUP, sort=False).ngroup()
    table = table.sort_values(["order", "episode"], ignore_index=True)
    return table.drop(columns=["sem", "order"]).rename(columns={"count": "seeds"})


def last_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The row of the last logged episode of every run."""
    _check_columns(frame)
    return frame.loc[frame.groupby(RUN, sort=False)["episode"].idxmax()]


def final_regret(frame: pd.DataFrame, references: Sequence[str] = ()) -> pd.DataFrame:
    """Regret after the last episode and loss per episode: means over seeds, half-widths of their Student-t intervals.

    For every learner in ``references`` there is a column ``ratio_to_<name>``: the ratio of the mean regrets on the same
    problem, NaN where that learner did not run or where its mean regret is not positive.
    """
    rows = []
    for key, group in last_rows(frame).groupby(GROUP, sort=False):
        loss = mean_and_interval(_losses_per_episode(group))
        rows.append((*key, len(group), int(group["episode"].max()), *mean_and_interval(group["regret"]), *loss))
    names = ["seeds", "episodes", "regret", "half_width", "loss_per_episode", "loss_half_width"]
    table = pd.DataFrame(rows, columns=[*GROUP, *names])
    for name in references:
        known = table[table["learner"] == name].set_index(PROBLEM)["regret"]
        reference = [known.get(key, np.nan) for key in zip(table["world"], table["adversary"], strict=True)]
        table[f"ratio_to_{name}"] = table["regret"] / pd.Series(reference, dtype=float).where(lambda x: x > 0.0)
    return table


def telling_bounds(frame: pd.DataFrame, horizon: float) -> tuple[pd.DataFrame, list[str]]:
    """Proved bounds below H k, the most that can be lost, by learner and episode; and who has others only."""
    known = frame.dropna(subset=["bound"]).groupby(["learner", "episode"], sort=False)["bound"].max().reset_index()
    telling = known[known["bound"] < horizon * known["episode"]]
    return telling, [str(name) for name in dict.fromkeys(known["learner"]) if name not in set(telling["learner"])]


def verdicts(frame: pd.DataFrame) -> dict[tuple[str, str], str]:
    """For every problem a sentence: who lost least, how much less than the second, and whether that may be a tie."""
    sentences = {}
    for (world, adversary), rows in frame.groupby(PROBLEM, sort=False):
        table = final_regret(rows).sort_values("loss_per_episode", kind="stable")
        best, loss = table["learner"].iloc[0], table["loss_per_episode"].iloc[0]
        text = f"{best} lost {'least, ' if len(table) > 1 else ''}{loss:.3f} per episode"
        if len(table) > 1:
            second = table["learner"].iloc[1]
            pair = rows[rows["learner"].isin([best, second])]
            gap = paired_differences(pair.assign(regret=_losses_per_episode(pair)), best).iloc[:1]
            for difference, half in zip(gap["difference"], gap["half_width"], strict=True):
                text += f": {difference:.3f}" + ("" if np.isnan(half) else f" ± {half:.3f}") + f" less than {second}"
                unsure = ", one seed, so nobody knows how sure that is" if np.isnan(half) else ", which may be a tie"
                text += ", no tie (95%, this pair alone)" if difference > half else unsure
        sentences[str(world), str(adversary)] = text
    return sentences


def _losses_per_episode(rows: pd.DataFrame) -> pd.Series:
    known = "cumulative_loss" in rows.columns
    return rows["cumulative_loss"] / rows["episode"] if known else pd.Series(np.nan, rows.index)


def paired_differences(frame: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """How much more regret each learner has than ``baseline`` on the same losses and luck.

    One row per problem and other learner: the mean over the common seeds of the difference of final regrets
    (``difference``, with ``half_width`` of its Student-t interval), the ``p`` of the two-sided paired t-test, and
    ``p_adjusted``, which is below 0.05 for a set of rows of which at most 5% are expected to be false findings,
    whatever the dependence of the rows (Benjamini and Yekutieli; all rows share the baseline, so they are dependent).

    The t-test and not Wilcoxon's: with five seeds or fewer Wilcoxon's p cannot go below 0.0625.  Where all differences
    are equal there is nothing to estimate their spread from, and p is NaN.
    """
    last = last_rows(frame)
    if baseline not in set(last["learner"]):
        raise InvalidSpecError(f"baseline {baseline!r} is not in the frame; its learners are {learners_of(frame)}")
    # Equal lengths too: after different numbers of episodes even the same losses give no fair comparison.
    runs = {key: group.set_index(["seed", "episode"])["regret"] for key, group in last.groupby(GROUP, sort=False)}
    rows = []
    for (world, adversary, learner), regrets in runs.items():
        if learner == baseline or (world, adversary, baseline) not in runs:
            continue
        own, other = regrets.align(runs[world, adversary, baseline], join="inner")
        if own.empty:
            continue
        difference = (own - other).to_numpy()
        mean, half = mean_and_interval(difference)
        rounding = 1e-12 * max(own.abs().max(), other.abs().max())
        testable = len(own) > 1 and np.ptp(difference) > rounding
        p = float(stats.ttest_rel(own, other).pvalue) if testable else np.nan
        rows.append((world, adversary, learner, len(own), mean, half, p))
    table = pd.DataFrame(rows, columns=[*GROUP, "seeds", "difference", "half_width", "p"])
    tested = table["p"].notna()
    table["p_adjusted"] = np.nan
    if tested.any():
        table.loc[tested, "p_adjusted"] = stats.false_discovery_control(table.loc[tested, "p"], method="by")
    return table


def growth_exponents(frame: pd.DataFrame, since: float = 0.1) -> pd.DataFrame:
    """The exponent b in regret ~ k^b, by least squares on logarithms, with its interval over seeds.

    One row per problem and learner: ``exponent``, ``half_width``, and ``scale``, so that the fitted curve is
    ``scale * episode**exponent``.  The episodes from ``since`` times the last one on are used; they are log-spaced, so
    every part of that range counts alike.

    Every run is fitted by itself and the interval is Student's over the slopes of the seeds.  The standard error that
    one regression reports would be wrong here: it takes the points for independent, but the regret at 2,000 episodes
    contains that at 1,000, and such an error is several times too small.

    NaN where a regret in the range is not positive.  This is how the *curve* grows, for constants that are tuned to the
    last episode and against the best policy for all of them; for how a tuned learner scales with K, see
    :func:`scaling_exponents`.
    """
    _check_columns(frame)
    if not 0.0 <= since < 1.0:
        raise InvalidSpecError(f"since is {since}, should be a fraction of the last episode in [0, 1)")
    rows = []
    for key, group in frame.groupby(GROUP, sort=False):
        fits = [_power_law(run, since) for _, run in group.groupby("seed")]
        exponents, offsets = np.array(fits).T
        mean, half = mean_and_interval(exponents)
        rows.append((*key, len(fits), mean, half, float(np.exp(offsets.mean()))))
    return pd.DataFrame(rows, columns=[*GROUP, "seeds", "exponent", "half_width", "scale"])


def scaling_exponents(frame: pd.DataFrame) -> pd.DataFrame:
    """The exponent b in R_K ~ K^b, from the final regrets of runs of different lengths (column ``episodes``).

    Every run has the constants of its own length and the best policy in hindsight for its own losses, as in the
    theorems.  Rows and interval as in :func:`growth_exponents`.
    """
    if "episodes" not in frame.columns or frame["episodes"].nunique() < 2:
        raise InvalidSpecError("the runs are all of one length; give a list of lengths as `episodes` in the spec")
    last = last_rows(frame)
    # Lengths are part of the labels, which tell problems apart; here they are one problem.
    plain = [a.removesuffix(f"[K={k}]") for a, k in zip(last["adversary"], last["episodes"], strict=True)]
    return growth_exponents(last.assign(adversary=plain), since=0.0)


def performance_profile(frame: pd.DataFrame, reference: str = "uniform") -> pd.DataFrame:
    """Over all worlds: the share of runs whose regret is at most so many times that of ``reference``.

    One row per learner and distinct ``ratio``: the ``share`` of its ``runs`` with final regret at most ``ratio`` times
    the reference's on the same problem and seed, and ``low`` and ``high``, its Clopper-Pearson interval.  That interval
    is for independent runs with equal chances; chances that differ between worlds only make the share less variable,
    but runs of one seed share their luck in all worlds, which can make it more so.

    Only problems and seeds count on which every learner ran and the reference's regret is positive.  A ratio to a fixed
    reference, rather than to the best learner of each problem, does not change when a learner is added, and has a
    meaning where the best regret is zero or negative.
    """
    last = last_rows(frame)
    if reference not in set(last["learner"]):
        raise InvalidSpecError(f"reference {reference!r} is not in the frame; its learners are {learners_of(frame)}")
    wide = last.pivot(index=[*PROBLEM, "seed"], columns="learner", values="regret")[learners_of(frame)].dropna()
    wide = wide[wide[reference] > ROUNDING]
    runs = len(wide)
    ends = [stats.binomtest(n, runs).proportion_ci(CONFIDENCE, method="exact") for n in range(runs + 1)] if runs else []
    rows = []
    for learner in wide.columns if runs else []:
        curve = stats.ecdf(wide[learner] / wide[reference]).cdf
        for ratio, share in zip(curve.quantiles, curve.probabilities, strict=True):
            interval = ends[round(share * runs)]
            rows.append((learner, float(ratio), float(share), float(interval.low), float(interval.high), runs))
    return pd.DataFrame(rows, columns=["learner", "ratio", "share", "low", "high", "runs"])


def learners_of(frame: pd.DataFrame) -> list[str]:
    """The learners in the order in which they appear."""
    return [str(name) for name in dict.fromkeys(frame["learner"])]


def _power_law(run: pd.DataFrame, since: float) -> tuple[float, float]:
    """Slope and offset of log regret over log episode."""
    tail = run[run["episode"] >= since * run["episode"].max()]
    if tail["episode"].nunique() < 2 or (tail["regret"] <= ROUNDING * tail["episode"]).any():
        return np.nan, np.nan
    fit = stats.linregress(np.log(tail["episode"]), np.log(tail["regret"]))
    return float(fit.slope), float(fit.intercept)


def _check_columns(frame: pd.DataFrame) -> None:
    missing = [name for name in [*RUN, "episode", "regret"] if name not in frame.columns]
    if missing:
        raise InvalidSpecError(f"the frame lacks the columns {missing}; it has {list(frame.columns)}")
    if frame.empty:
        raise InvalidSpecError("the frame has no rows; are there finished runs?")
