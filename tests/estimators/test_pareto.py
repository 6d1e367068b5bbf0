"""The tail of weights: known shapes, and weights that have no tail."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.estimators.errors import is_heavy, pareto_k, unseen_tail

INF = np.inf


def shrunk(k, n_tail):
    """What Vehtari et al. (2024) make of a shape: a prior of ten values at one half."""
    return (n_tail * k + 5.0) / (n_tail + 10.0)


@pytest.mark.parametrize("k", [0.3, 0.5, 0.7, 1.0, 1.5])
def test_pareto_weights(k):
    """Weights ``u ** -k`` have the shape k exactly: mean of 20 sets within 4 errors. Seed 1."""
    rng, n = np.random.default_rng(1), 4000
    found = [pareto_k(k * rng.standard_exponential(n)) for _ in range(20)]
    n_tail = int(3 * np.sqrt(n))
    error = (1.0 + k) / np.sqrt(20 * n_tail)
    assert np.mean(found) == pytest.approx(shrunk(k, n_tail), abs=4 * error)


def test_exponential_weights():
    """The tail between: k = 0. Seed 3."""
    weights = np.random.default_rng(3).standard_exponential(10_000)
    assert pareto_k(np.log(weights)) == pytest.approx(shrunk(0.0, 300), abs=4 / np.sqrt(300))


@pytest.mark.parametrize("k", [0.4, 0.9])
def test_agrees_with_maximum_likelihood(k):
    """SciPy's fit to the same excesses. Seed 4."""
    log_weight = k * np.random.default_rng(4).standard_exponential(10_000)
    weights = np.sort(np.exp(log_weight))
    shape, _, _ = stats.genpareto.fit(weights[-300:] - weights[-301], floc=0.0)
    assert pareto_k(log_weight) == pytest.approx(shrunk(shape, 300), abs=0.03)


@pytest.mark.parametrize(
    "log_weight",
    [
        np.zeros(100),
        np.full(100, -INF),
        np.random.default_rng(7).normal(size=24),
        np.append(np.random.default_rng(7).normal(size=24), np.full(1000, -INF)),
        np.repeat([0.0, 1.0, 2.0], 100),
        np.append(np.zeros(500), -np.arange(100.0)),
    ],
    ids=["equal", "dead", "24 weights", "24 alive", "three values", "equal at the top"],
)
def test_no_tail(log_weight):
    """NaN, and no warning: a shape of such weights would be an artefact."""
    assert np.isnan(pareto_k(log_weight))


def test_from_30_weights_on():
    """The documented number of weights from which on the tail is judged."""
    rng = np.random.default_rng(8)
    assert np.isnan(pareto_k(rng.normal(size=29)))
    for n in range(30, 35):
        assert np.isfinite(pareto_k(rng.normal(size=n)))


# --- is_heavy ---


@pytest.mark.parametrize(
    ("n", "threshold"), [(30, 0.323), (100, 0.5), (1000, 2 / 3), (2155, 0.7), (10**6, 0.7)]
)
def test_threshold(n, threshold):
    """Vehtari et al. (2024), section 3.2.3."""
    assert is_heavy(threshold + 1e-3, n) and not is_heavy(threshold - 1e-3, n)


@pytest.mark.parametrize("k", [0.3, 0.5, 0.7])
def test_what_lies_beyond_the_largest_weight(k):
    """The root mean square of shares predicted and true, of 500 sets of 2,000 weights. Seed 6.

    Of weights ``u ** -k`` the share beyond ``t`` is ``t ** (1 - 1 / k)``.
    """
    rng = np.random.default_rng(6)
    sets = k * rng.standard_exponential((500, 2000))
    predicted = [unseen_tail(x, -np.log1p(-k)) for x in sets]
    true = np.exp((1.0 - 1.0 / k) * sets.max(axis=1))
    assert 0.6 < np.median(predicted) / np.median(true) < 1.7


def test_one_weight_beyond_all_others():
    """The others are less than 1e-308 of it: the shape is infinite, without a warning of NumPy."""
    log_weight = np.append(-715.0 + np.random.default_rng(2).normal(size=99), 0.0)
    assert pareto_k(log_weight) == np.inf
