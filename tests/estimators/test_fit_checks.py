"""Draws of islands that a fitted density does not cover."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.core.records import BlockRecord, Role, RunRecord
from pm_evidence.estimators import verdicts
from pm_evidence.estimators.of_run import estimates
from pm_evidence.estimators.verdicts import (
    MOMENTS_EXCLUDED,
    chain_correlation,
    moment_distance,
    uncovered,
)

POSTERIOR = stats.norm(0, 1)


def works(rng, sd=1.2, mode=0.0, n_islands=16, n=200, n_fit=250):
    """A normal posterior with a share ``mode`` of it far away, and a normal fit without that.

    The fit is normalised, and Z is 1.
    """

    def log_f(x):
        here, there = POSTERIOR.logpdf(x), stats.norm(50, 1).logpdf(x)
        return np.logaddexp(np.log1p(-mode) + here, np.log(mode) + there if mode else -np.inf)

    fit = stats.norm(0, sd)
    found = []
    for _ in range(n_islands):
        x = fit.rvs(n_fit, random_state=rng)
        y = POSTERIOR.rvs(n, random_state=rng) + 50 * (rng.random(n) < mode)
        found.append((fit.logpdf(x) - log_f(x), fit.logpdf(y) - log_f(y)))
    return found


def test_a_mode_that_the_fit_leaves_out():
    share = uncovered(works(np.random.default_rng(2), mode=0.1))
    assert 0.08 < share < 0.12
    # a single draw of one island is within the error
    found = works(np.random.default_rng(3))
    found[0][1][0] = -100.0
    assert uncovered(found) == 0.0


@pytest.mark.parametrize(("share", "differ"), [(0.5, False), (0.4, True)])
@pytest.mark.parametrize("apart", [3.0, 0.0])
def test_islands_that_hold_modes_in_wrong_shares(share, differ, apart):
    """Two modes at two places, or of two widths at one; the islands agree with each other."""
    rng = np.random.default_rng(5)

    def draws(n, of_first):
        first = rng.random(n) < of_first
        return np.where(first, rng.normal(0, 0.2, n), rng.normal(apart, 1.0, n))[:, None]

    islands = [draws(400, share) for _ in range(16)]
    x = rng.uniform(-6, 8, (20_000, 1))
    log_f = np.logaddexp(stats.norm(0, 0.2).logpdf(x), stats.norm(apart, 1).logpdf(x))[:, 0]
    assert (moment_distance(islands, x, log_f) > MOMENTS_EXCLUDED) == differ


def test_many_coordinates_are_not_off_by_chance():
    """The largest of a thousand distances, each with the error of 16 islands, is seldom small."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((4000, 500))
    for _ in range(10):
        islands = [rng.standard_normal((100, 500)) for _ in range(16)]
        assert moment_distance(islands, x, np.zeros(4000)) < MOMENTS_EXCLUDED
    islands = [draws + 1.0 for draws in islands]
    assert moment_distance(islands, x, np.zeros(4000)) > MOMENTS_EXCLUDED
    # a coordinate at one value in all draws divides by nothing
    x = np.ones((50, 1))
    assert moment_distance([x, x], x, np.zeros(50)) == 0.0
    assert moment_distance([x + 1.0, x + 1.0], x, np.zeros(50)) == np.inf


def test_coordinates_are_read_in_parts(monkeypatch):
    """The largest distance is that of the last coordinate."""
    rng = np.random.default_rng(7)
    x, islands = rng.standard_normal((200, 20)), [rng.standard_normal((30, 20)) for _ in range(4)]
    for draws in islands:
        draws[:, -1] += 2.0
    whole = moment_distance(islands, x, np.zeros(200))
    monkeypatch.setattr(verdicts, "_COORDINATES", 6)
    assert whole > 1.0 and moment_distance(islands, x, np.zeros(200)) == pytest.approx(whole)


def test_importance_sampling_is_judged():
    """Its own draws give 0.9 of the evidence, with a small error and no heavy tail."""
    rng = np.random.default_rng(4)
    status = {}
    for mode in (0.0, 0.1):
        blocks = [
            BlockRecord(i, np.array([rng.normal(0, 0.02)]), None, relative_variance=4e-4, bridge=w)
            for i, w in enumerate(works(rng, mode=mode))
        ]
        found = {
            e.estimator: e
            for e in estimates(RunRecord("smc", np.array([0.0, 1.0]), {Role.FORWARD: blocks}))
        }
        status[mode] = found["importance"].status
        message = found["importance"].message
    assert status == {0.0: "ok", 0.1: "missed_mass"}
    assert "of the islands' draws lie in a region where the fitted density is so low" in message


@pytest.mark.parametrize("lag", [0.0, 0.5, 0.9, 1.0])
def test_the_correlation_in_chains_is_that_of_the_slowest_coordinate(lag):
    """Chains of an autoregression beside a coordinate that is drawn anew in every state."""
    rng = np.random.default_rng(8)
    n_chains, length = 40, 10
    draws, chains = [], []
    for _ in range(16):
        slow = [rng.standard_normal(n_chains)]
        for _ in range(length - 1):
            noise = rng.standard_normal(n_chains)
            slow.append(lag * slow[-1] + np.sqrt(1 - lag**2) * noise)
        x = np.stack([rng.standard_normal(n_chains * length), np.concatenate(slow)], axis=1)
        draws.append(x)
        chains.append(np.tile(np.arange(n_chains), length))
    gap = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    exact = (np.sum(lag**gap) - length) / (length * (length - 1))
    assert chain_correlation(draws, chains) == pytest.approx(exact, abs=0.03)
    # chains of three states are too short to judge, and those that never move have none
    assert np.isnan(chain_correlation([draws[0][:30]], [np.repeat(np.arange(10), 3)]))
    assert chain_correlation([np.ones((30, 1))], [np.repeat(np.arange(5), 6)]) == 0.0
