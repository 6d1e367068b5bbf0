"""Resampling: an evidence is unbiased only if every scheme returns each member m * w times.

What holds of all weights is in ``test_properties.py``.
"""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.core import resampling
from pm_evidence.core.resampling import (
    CODES,
    SCHEMES,
    count_uniforms,
    resample,
    resample_into,
)
from tests.core.test_properties import Constant

REPEATS = 4000
N, M = 12, 17
FALSE_ALARMS = 1e-5  # of each check of expected counts, over all members


def uneven_weights():
    weight = np.random.default_rng(0).gamma(0.4, size=N)
    weight[[0, 5, N - 1]] = 0.0  # at both ends and inside
    return weight / weight.sum()


def counts_of(scheme, weight, m, repeats=REPEATS, seed=1):
    rng = np.random.default_rng(seed)
    draws = [scheme(weight, m, rng) for _ in range(repeats)]
    return np.array([np.bincount(chosen, minlength=weight.size) for chosen in draws])


def check_unbiased(counts, expected):
    """Compare mean counts with their expectation, in units of their own standard errors.

    Members whose counts never vary must be exact; the squares of the others' deviations are each
    chi-square with one degree of freedom, and Bonferroni's bound makes the false-alarm rate
    ``FALSE_ALARMS`` whatever their correlations.
    """
    deviation = counts.mean(axis=0) - expected
    error = counts.std(axis=0, ddof=1) / np.sqrt(len(counts))
    exact = error == 0
    np.testing.assert_allclose(deviation[exact], 0.0, atol=1e-9)
    chi_square = (deviation[~exact] / error[~exact]) ** 2
    limit = stats.chi2.isf(FALSE_ALARMS / expected.size, df=1)
    assert chi_square.max(initial=0.0) < limit, f"counts {counts.mean(axis=0)}, not {expected}"


WEIGHTS = {
    "uneven": uneven_weights(),
    "equal": np.full(N, 1 / N),
    "one": np.eye(N)[4],
    "tiny": np.array([1.0, 1e-12, 1e-300, 0.0]),
    "steep": np.exp(-0.6 * np.arange(10)) / np.exp(-0.6 * np.arange(10)).sum(),
}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_expected_counts(scheme, weights):
    """A scheme that favours some member biases log Z, and no error bar shows it. Seed 1."""
    weight = WEIGHTS[weights]
    counts = counts_of(SCHEMES[scheme], weight, M)
    assert (counts.sum(axis=1) == M).all()
    check_unbiased(counts, M * weight)


def planted_midpoint(weight, m, rng):
    """Systematic resampling without its random start."""
    return resampling._invert(weight, (np.arange(m) + 0.5) / m)


def planted_tempered(weight, m, rng):
    """Multinomial resampling by weights that somebody has flattened a little."""
    flat = weight**0.95
    return SCHEMES["multinomial"](flat / flat.sum(), m, rng)


def planted_greedy(weight, m, rng):
    """Residual resampling that gives what is left to the largest remainders."""
    sure = np.floor(m * weight).astype(int)
    best = np.argsort(sure - m * weight)[: m - sure.sum()]
    return np.repeat(np.arange(weight.size), sure + np.isin(np.arange(weight.size), best))


@pytest.mark.parametrize("biased", [planted_midpoint, planted_tempered, planted_greedy])
def test_planted_bias_is_caught(biased):
    """The check of expected counts would be worth nothing if it passed these."""
    weight = WEIGHTS["uneven"]
    counts = counts_of(biased, weight, M)
    with pytest.raises(AssertionError):
        check_unbiased(counts, M * weight)


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_ssp_compiled_equals_python(n):
    """The compiled kernel must be the algorithm that is written down."""
    rng = np.random.default_rng(n)
    for _ in range(200):
        expected = rng.integers(1, 40) * rng.dirichlet(np.full(n, 0.3))
        draws = rng.random(n)
        compiled = resampling._ssp_counts(expected, draws)
        np.testing.assert_array_equal(compiled, resampling._ssp_counts.py_func(expected, draws))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("few", [0, 1000])
def test_arrays_equal_compiled_code(scheme, few, monkeypatch):
    """Filters resample in machine code, islands by NumPy: one of them would be untested."""
    monkeypatch.setattr(resampling, "_FEW", few)  # SSP pairs few members in plain Python
    rng = np.random.default_rng(5)
    for n, m in [(1, 1), (1, 7), (2, 3), (12, 17), (300, 300), (300, 40)]:
        for concentration in (0.05, 1.0, 100.0):
            weight = rng.dirichlet(np.full(n, concentration))
            weight[rng.random(n) < 0.2] = 0.0
            weight[-1] += 1.0 - weight.sum()
            code, seed = CODES[scheme], int(rng.integers(2**31))
            draws = np.random.default_rng(seed).random(count_uniforms(code, weight, m))
            index = np.empty(m, np.int64)
            resample_into(code, weight, draws, index)
            found = resample(weight, m, np.random.default_rng(seed), scheme)
            assert found.dtype == np.int64
            np.testing.assert_array_equal(found, index)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_draws_at_the_edges(scheme):
    """The least and the greatest draw: (m - 1 + u) / m rounds to 1, which is no member's."""
    weight = np.array([0.0, 0.1, 0.0, 0.3, 0.6, 0.0])
    for value in (0.0, 1.0 - 2.0**-53):
        chosen = SCHEMES[scheme](weight, 1000, Constant(value))
        assert chosen.shape == (1000,)
        assert set(chosen.tolist()) <= {1, 3, 4}


def test_integer_expectations_are_met_exactly():
    """When m * w are whole numbers nothing is left to chance."""
    weight = np.array([0.25, 0.0, 0.5, 0.25])
    for scheme in ("systematic", "stratified", "residual", "ssp"):
        chosen = resample(weight, 8, np.random.default_rng(3), scheme)
        np.testing.assert_array_equal(chosen, [0, 0, 2, 2, 2, 2, 3, 3])


def test_unknown_scheme():
    """The message lists what there is."""
    with pytest.raises(ValueError, match=r"resampling must be one of 'systematic', .*'sorted'"):
        resample(np.ones(1), 1, np.random.default_rng(), "sorted")
