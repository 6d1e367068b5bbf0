"""What Gaussian process classification is made of, each against its formula or SciPy."""

import numba as nb
import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import kstest

from pm_evidence.core.random import streams
from pm_evidence.families.gp_classification.arithmetic import (
    BLOCK,
    add,
    excess,
    log_ndtr_and_slope,
    multiply,
)
from pm_evidence.families.gp_classification.propagation import (
    gaussian_of,
    nearest,
)
from pm_evidence.families.gp_classification.target import (
    greedy_order,
    squared_exponential,
)
from tests.families.gp_classification.latent import exact, problem
from tests.families.gp_classification.problems import curve


def test_the_squared_exponential_is_its_formula():
    """Far from the origin too, where products of inputs lose digits."""
    x = np.random.default_rng(1).standard_normal((7, 3)) + 1000.0
    found = squared_exponential(x, 1.5, 2.0)
    square = ((x[:, None] - x) ** 2).sum(axis=2)
    np.testing.assert_allclose(found, 4.0 * np.exp(-0.5 * square / 1.5**2), rtol=1e-9)
    assert (found.diagonal() == 4.0).all() and np.array_equal(found, found.T)


# --- the order in which data points are added ---


def test_the_informative_order_takes_the_largest_conditional_variance():
    """Against the conditional variances by the textbook formula, up to ties."""
    covariance = curve(12).prior_covariance
    order = greedy_order(covariance)
    assert sorted(order) == list(range(12))
    for k in range(1, 6):
        past = order[:k]
        cross = covariance[:, past]
        rest = covariance.diagonal() - np.einsum(
            "ij,ij->i", cross, np.linalg.solve(covariance[np.ix_(past, past)], cross.T).T
        )
        assert rest[order[k]] == pytest.approx(rest.max(), abs=1e-9)


def test_duplicated_points_come_last():
    """Their conditional variance is 0 or, by rounding, below."""
    covariance = np.tile(curve(4).prior_covariance, (2, 2))
    order = greedy_order(covariance)
    assert sorted(order) == list(range(8)) and sorted(order[:4] % 4) == [0, 1, 2, 3]


def test_orders_by_name():
    assert np.array_equal(curve(6, order="given").points, np.arange(6))
    one, again, other = (curve(6, order="random", order_seed=seed).points for seed in (0, 0, 1))
    assert np.array_equal(one, again) and not np.array_equal(one, other)


def test_leading_rows_of_the_whitening_are_those_of_the_first_points():
    order = np.array([8, 0, 3, 1, 2, 4, 5, 6, 7])
    target = curve(9, order=order)
    covariance, whole = target.noisy_covariance, target.whitening
    assert np.array_equal(target.points, order)
    for k in (1, 4, 9):
        part = covariance[np.ix_(order[:k], order[:k])]
        np.testing.assert_allclose(whole[:k, :k].T @ whole[:k, :k], np.linalg.inv(part), atol=1e-12)
    assert np.array_equal(whole, np.tril(whole))


# --- numerical parts ---


@nb.njit
def many(bound, stream, out):
    room = np.empty(1)
    for i in range(out.size):
        out[i] = excess(bound, stream, room)


@pytest.mark.parametrize("bound", [-40.0, -1.0, 0.449, 0.451, 3.0, 12.0, 1000.0])
def test_the_excess_has_the_distribution_of_a_normal_tail(bound):
    """On both sides of the bound at which the proposal changes, and where tails underflow."""
    out = np.empty(50_000)
    many(bound, streams(np.random.SeedSequence(1), 1)[0], out)
    assert (out > 0.0).all() or bound == -40.0

    def survival(t):
        return np.exp(log_ndtr(-(bound + t)) - log_ndtr(-bound))

    if bound < 100.0:
        assert kstest(out, lambda t: 1.0 - survival(t)).pvalue > 1e-6
    else:  # an exponential with the rate of the bound
        assert kstest(out * bound, "expon").pvalue > 1e-6


def test_value_and_slope_of_the_log_of_the_normal_distribution_function():
    """Against SciPy, and the slope by its definition, on both sides of the change of formula."""
    for t in (-1e6, -60.0, -10.001, -10.0, -9.9, -1.0, 0.0, 0.5, 9.0, 30.0):
        value, slope = log_ndtr_and_slope(t)
        assert value == pytest.approx(log_ndtr(t), rel=1e-13, abs=1e-300)
        log_density = -0.5 * t * t - 0.5 * np.log(2.0 * np.pi)
        if t > -1000.0:
            assert slope == pytest.approx(np.exp(log_density - log_ndtr(t)), rel=1e-11)
        assert slope >= max(-t, 0.0)


@pytest.mark.parametrize(("k", "width"), [(1, 8), (7, 24), (8, 64), (21, 8), (21, 64)])
def test_products_agree_with_numpy(k, width):
    """All remainders of eight rows."""
    rng = np.random.default_rng(k)
    matrix, values = rng.standard_normal((40, k)), rng.standard_normal((k, width))
    out = np.full((BLOCK, width), np.nan)
    chosen = rng.permutation(40)[:25]
    multiply(matrix, chosen, values, out)
    wanted = (matrix @ values)[chosen]
    np.testing.assert_allclose(out[:25], wanted, atol=1e-13)
    add(out[0], 2.0, values[0])
    np.testing.assert_allclose(out[0], wanted[0] + 2.0 * values[0], atol=1e-13)


# --- Gaussians that approximate the densities of latent values ---


def test_a_gaussian_of_factors_has_the_moments_of_the_product():
    """Against the inverse of the sum of precisions."""
    target = curve(5, representation="latent", jitter=0.1)
    precisions, shifts = np.array([0.0, 1.0, 2.0, 0.5, 3.0]), np.array([0.0, -1.0, 2.0, 1.0, 0.5])
    made = gaussian_of(target.factor, precisions, shifts)
    covariance = np.linalg.inv(np.linalg.inv(target.prior_covariance) + np.diag(precisions))
    np.testing.assert_allclose(made.root @ made.root.T, covariance, atol=1e-10)
    np.testing.assert_allclose(made.mean, covariance @ shifts, atol=1e-10)
    np.testing.assert_allclose(made.inverse @ made.root, np.eye(5), atol=1e-10)
    x = np.arange(10.0).reshape(2, 5)
    expected = [(v * shifts - 0.5 * precisions * v * v).sum() for v in x]
    np.testing.assert_allclose(made.log_factors(x), expected)


@pytest.mark.parametrize("power", [0.5, 0.125])
def test_those_between_have_the_moments_of_powers_of_the_likelihood(power):
    """Moves would be short if they did not; exact draws by rejection."""
    path = problem("prior", 5)
    made, draws = path.target.gaussians[power], exact(path, power, 50_000).x
    sd = draws.std(axis=0)
    np.testing.assert_allclose(made.mean / sd, draws.mean(axis=0) / sd, atol=0.1)
    np.testing.assert_allclose((made.root**2).sum(axis=1) ** 0.5 / sd, 1.0, atol=0.1)


def test_the_nearest_power_is_taken():
    made = problem("prior").target.gaussians
    assert nearest(made, 1.0) is made[1.0] and nearest(made, 0.8) is made[1.0]
    assert nearest(made, 0.3) is made[0.25] and nearest(made, 0.0) is made[0.0]
    assert nearest(made, 1e-12) is made[0.0]


# --- populations ---
