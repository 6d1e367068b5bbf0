"""Stepping stones and chained BAR: exact ratios, intervals that hold, and ladders with gaps."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pm_evidence.estimators import bar, chained_bar, stepping_stone
from tests.estimators.ladders import (
    BETA,
    DEAD_Z,
    HALVES,
    HALVES_Z,
    LOG_Z,
    chains,
    coverage,
    draws,
    in_proportion,
)


def forward(*args, **kwargs):
    return stepping_stone(*args, direction="forward", **kwargs)


def reverse(*args, **kwargs):
    return stepping_stone(*args, direction="reverse", **kwargs)


ALL = [forward, reverse, chained_bar]
every = pytest.mark.parametrize("estimator", ALL)


# --- values ---


@every
@pytest.mark.parametrize("counts", [(1, 1, 1), (7, 2, 5), (3, 0, 4)])
@pytest.mark.parametrize(("dead", "exact"), [(False, HALVES_Z), (True, DEAD_Z)])
def test_exact_proportions(estimator, counts, dead, exact):
    """Samples in the proportions of their densities give log Z exactly, also past a gap."""
    found = estimator(HALVES, *in_proportion(counts, dead))
    assert found.value == pytest.approx(exact[-1], abs=1e-11)


def test_by_hand():
    """Means of the ratios of neighbouring densities, Xie et al. (2011), Eq. 12. Seed 1."""
    rung = np.tile(np.arange(6), 50)
    energy, step = draws(np.random.default_rng(1), rung), np.diff(BETA)
    at = [energy[rung == k] for k in range(6)]
    ups = [logsumexp(-step[k] * at[k]) - np.log(50) for k in range(5)]
    downs = [np.log(50) - logsumexp(step[k] * at[k + 1]) for k in range(5)]
    pairs = [bar(step[k] * at[k], step[k] * at[k + 1]).value for k in range(5)]
    assert forward(BETA, energy, rung).value == pytest.approx(sum(ups), rel=1e-12)
    assert reverse(BETA, energy, rung).value == pytest.approx(sum(downs), rel=1e-12)
    assert chained_bar(BETA, energy, rung).value == pytest.approx(sum(pairs), rel=1e-12)


def _states(seed, counts=(60,) * 6):
    rung = np.repeat(np.arange(6), counts)
    return draws(np.random.default_rng(seed), rung), rung


# --- errors ---


@every
def test_influence_is_the_effect_of_one_more_state(estimator):
    """The error is that of the jackknife over 12 groups, within 10 %. Seed 4."""
    energy, rung = _states(4, (96,) * 6)
    groups = np.tile(np.arange(12), 48)
    found = estimator(BETA, energy, rung, groups=groups)
    left = [estimator(BETA, energy[groups != g], rung[groups != g]).value for g in range(12)]
    jackknife = np.sqrt(11.0 / 12.0 * np.sum((left - np.mean(left)) ** 2))
    assert found.mcse == pytest.approx(jackknife, rel=0.1)
    assert found.dof == 11.0


@every
@pytest.mark.parametrize(("n", "m"), [(100, 10), pytest.param(1200, 1, marks=pytest.mark.slow)])
def test_coverage_of_ladders(estimator, n, m):
    """Correlated chains, 200 repetitions, seed 6."""
    rng, found = np.random.default_rng(6), []
    for _ in range(200):
        energy, rung, groups = chains(rng, n, m, 0.8)
        found.append(estimator(BETA, energy, rung, groups=groups))
    assert 0.88 <= coverage(found, LOG_Z) <= 0.99
    assert np.mean([e.status == "inconsistent" for e in found]) < 0.01


# --- what they cannot do ---


@pytest.mark.parametrize(
    ("estimator", "empty", "missing"),
    [(forward, 0, "0"), (reverse, 5, "1"), (chained_bar, 0, "0"), (chained_bar, 5, "1")],
)
def test_an_end_without_states(estimator, empty, missing):
    """Then its neighbour takes its place, and the status says so. Seed 9."""
    counts = np.full(6, 80)
    counts[empty] = 0
    found = estimator(BETA, *_states(9, counts))
    assert found.status == "no_overlap"
    assert f"no state was drawn at beta={missing}," in found.message
    assert abs(found.value - LOG_Z) < 6.0 * found.mcse


def test_energies_that_lie_apart():
    energy = np.repeat([1e3, 0.0], 20) + np.tile(np.arange(20.0), 2)
    for estimator in ALL:
        found = estimator([0.0, 1.0], energy, np.repeat([0, 1], 20))
        assert found.status == "no_overlap" and "beta=0 and 1" in found.message


def test_chains_that_contradict_each_other():
    """Energies that rise with beta are not from equilibrium; no error bar would show it."""
    rng = np.random.default_rng(12)
    rung = np.tile(np.arange(6), 100)
    energy = draws(rng, rung)
    swapped = chained_bar(BETA, energy, 5 - rung)
    assert swapped.status == "inconsistent" and "contradict each other" in swapped.message
    assert chained_bar(BETA, energy, rung).status == "ok"
