"""Predictors against their formulas, written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from advmdp import InvalidSpecError
from advmdp.learners.parts.predictors import ERROR_WINDOW, Predictions, Predictor, forgetting, last, mean
from tests.strategies import generators

RULES = (mean(), last(), forgetting(0.9), forgetting(0.5, decay=0.01), mean(doubt=0.3), last(decay=0.1, doubt=0.5))


def episodes(rng, count=40, n_pairs=7):
    for _ in range(count):
        pairs = rng.choice(n_pairs, size=3, replace=False)
        losses = rng.random(3)
        losses[rng.random(3) < 0.2] = np.nan
        yield pairs, losses


@given(generators())
def test_tables_follow_their_rules(rng):
    predictions = Predictions.empty(RULES, 7)
    tables, visits, errors = np.zeros((len(RULES), 7)), np.zeros(7), np.zeros(len(RULES))
    for pairs, losses in episodes(rng):
        predictions = predictions.add(pairs, losses)
        seen = ~np.isnan(losses)
        known = seen & (visits[pairs] > 0)
        for p, rule in enumerate(RULES):
            if rule.doubt and known.any():
                surprise = np.abs(losses[known] - tables[p, pairs[known]]).mean()
                errors[p] += (surprise - errors[p]) / ERROR_WINDOW
            tables[p] *= 1.0 - rule.decay - rule.doubt * errors[p]
            for pair, loss in zip(pairs[seen], losses[seen], strict=True):
                tables[p, pair] += (loss - tables[p, pair]) / min(visits[pair] + 1, rule.window)
        visits[pairs[seen]] += 1
        np.testing.assert_allclose(predictions.tables, tables, atol=1e-14)
    assert (predictions.tables >= 0.0).all()
    assert (predictions.tables <= 1.0).all()
    np.testing.assert_array_equal(predictions.visits, visits)


def test_mean_and_last_are_what_they_say():
    predictions = Predictions.empty((mean(), last(), forgetting(1.0), forgetting(0.0)), 2)
    seen = [0.3, np.nan, 0.5, 1.0]
    for loss in seen:
        predictions = predictions.add(np.array([1]), np.array([loss]))
    np.testing.assert_allclose(predictions.tables[:, 1], [0.6, 1.0, 0.6, 1.0])
    np.testing.assert_array_equal(predictions.tables[:, 0], 0.0)  # optimism
    np.testing.assert_array_equal(predictions.visits, [0.0, 3.0])


def test_doubt_fades_only_what_surprises():
    """Losses that stay as they were leave old knowledge alone; losses that jump make it fade."""
    calm, wild = (Predictions.empty((last(doubt=0.1),), 2).add(np.array([0]), np.array([0.8])) for _ in range(2))
    for k in range(100):
        calm = calm.add(np.array([1]), np.array([0.5]))
        wild = wild.add(np.array([1]), np.array([float(k % 2)]))
    assert calm.tables[0, 0] > 0.79
    assert wild.tables[0, 0] < 0.01


def test_doubt_fades_a_mean_alike_at_any_rate_of_visits():
    """m = l (1 - exp(-x)) / x, x = k doubt error, for a pair that is visited every episode and one of every tenth."""
    predictions = Predictions.empty((mean(doubt=0.01),), 3)
    rng = np.random.default_rng(0)
    for k in range(2000):
        pairs = np.array([0, 1, 2]) if k % 10 == 0 else np.array([0, 2])
        noise = float(rng.random() < 0.5)  # keeps the error up, at a pair of its own
        losses = np.array([0.2, 0.8, noise]) if k % 10 == 0 else np.array([0.2, noise])
        predictions = predictions.add(pairs, losses)
    faded = predictions.tables[0, :2] / [0.2, 0.8]
    assert faded[0] < 0.5
    assert faded[1] == pytest.approx(faded[0], rel=0.1)


def test_adding_leaves_the_old_value_alone():
    predictions = Predictions.empty(RULES, 4)
    predictions.add(np.array([0]), np.array([1.0]))
    assert not predictions.tables.any()


def test_predictions_survive_a_checkpoint():
    predictions = Predictions.empty(RULES, 7)
    for pairs, losses in episodes(np.random.default_rng(0)):
        predictions = predictions.add(pairs, losses)
    again = Predictions.empty(RULES, 7).from_tree(predictions.tree())
    for name in ("tables", "visits", "errors"):
        np.testing.assert_array_equal(getattr(again, name), getattr(predictions, name))
        wrong = -1.0 - getattr(predictions, name)
        with pytest.raises(ValueError, match=name):
            Predictions.empty(RULES, 7).from_tree({**predictions.tree(), name: wrong})
        with pytest.raises(ValueError, match=name):
            Predictions.empty(RULES, 7).from_tree({**predictions.tree(), name: np.zeros(99)})


@pytest.mark.parametrize("wrong", [{"window": 0.5}, {"decay": -0.1}, {"doubt": 2.0}, {"window": np.nan}])
def test_senseless_rules_are_refused(wrong):
    with pytest.raises(InvalidSpecError, match=next(iter(wrong))):
        Predictor(**wrong)


def test_forgetting_is_a_share():
    with pytest.raises(InvalidSpecError, match="forgetting"):
        forgetting(1.5)


def test_late_losses_are_averaged_in_and_nothing_fades():
    rules = [mean(), forgetting(0.5, decay=0.2), mean(doubt=0.5)]
    before = Predictions.empty(rules, 4).add(np.array([0, 2]), np.array([0.8, 0.4]))
    before = before.add(np.array([0, 2]), np.array([0.2, np.nan]))
    after = before.add(np.array([0, 1]), np.array([np.nan, 0.6]), late=True)
    np.testing.assert_array_equal(after.tables[:, [0, 2, 3]], before.tables[:, [0, 2, 3]])
    np.testing.assert_allclose(after.tables[:, 1], 0.6)
    np.testing.assert_array_equal(after.errors, before.errors)
    np.testing.assert_array_equal(after.visits - before.visits, [0, 1, 0, 0])
