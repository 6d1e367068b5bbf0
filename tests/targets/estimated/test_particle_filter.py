"""Particle filters: an evidence is right only if their likelihood is unbiased."""

import logging
from dataclasses import replace
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import logsumexp

from pm_evidence.core.resampling import SCHEMES
from pm_evidence.targets.estimated.particle_filter import ParticleFilter
from pm_evidence.targets.estimated.state_space import StateSpace
from pm_evidence.targets.estimated.variable import estimators_of

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

PHI, Q, R, OFFSET = 0.8, 0.7, 0.5, 0.3
RUNS = 2000
# Each of the checks of a mean is two-sided at so many standard errors: 0.3% false alarms each, with
# seeds that are fixed.
STANDARD_ERRORS = 3.0


def kalman(y, transition, noise, emission, error, mean, covariance, offset=None):
    """Log likelihood of a linear Gaussian model; rows of NaN and single NaN are missing."""
    d = len(mean)
    offset = np.zeros((len(y), d)) if offset is None else offset
    total = 0.0
    for t, row in enumerate(y):
        if t > 0:
            mean = transition @ mean + offset[t]
            covariance = transition @ covariance @ transition.T + noise
        seen = np.isfinite(row)
        if not seen.any():
            continue
        c, r = emission[seen], error[np.ix_(seen, seen)]
        s = c @ covariance @ c.T + r
        residual = row[seen] - c @ mean
        total += stats.multivariate_normal(np.zeros(len(s)), s).logpdf(residual)
        gain = covariance @ c.T @ np.linalg.inv(s)
        mean = mean + gain @ residual
        covariance = covariance - gain @ c @ covariance
    return total


def scalar_kalman(y, a=OFFSET, offset=None):
    """The same for ``h' = a + PHI (h - a) + Q N``, ``y = h + R N``."""
    shifted = None if offset is None else np.asarray(offset)[:, None]
    return kalman(
        np.asarray(y)[:, None] - a,
        *(np.array([[v]]) for v in (PHI, Q**2, 1.0, R**2)),
        np.zeros(1),
        np.array([[Q**2 / (1 - PHI**2)]]),
        shifted,
    )


# A time without data moves particles and weighs nothing.
DATA = np.array([0.9, -0.4, 1.8, np.nan, -1.5])


def scalar_model(y=DATA, **options):
    with pm.Model() as model:
        a = pm.Normal("a")
        StateSpace(
            "y",
            init=lambda: pm.Normal.dist(a, Q / np.sqrt(1 - PHI**2)),
            transition=lambda h, t: pm.Normal.dist(a + PHI * (h - a), Q),
            emission=lambda h, t: pm.Normal.dist(h, R),
            observed=y,
            **options,
        )
    return model


def near_optimal(h, t, y):
    """A proposal that is a little wrong on purpose: weights have to make up for it."""
    return pm.Normal.dist(0.5 * h + 0.5 * y, 0.8 * Q)


FILTERS = {
    "bootstrap": {},
    "guided": {"filter": "guided", "proposal": near_optimal},
    "guided_from_start": {
        "filter": "guided",
        "proposal": near_optimal,
        "init_proposal": lambda y: pm.Normal.dist(0.7 * y, 1.0),
    },
    "auxiliary": {"filter": "auxiliary"},
    "auxiliary_own": {
        "filter": "auxiliary",
        "look_ahead": lambda h, t, y: -0.5 * (y - 0.9 * h) ** 2,
    },
}
# Each of the others has a part of its own that one of these has too.
FAST = ("bootstrap", "guided_from_start", "auxiliary")
every_filter = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in FILTERS]
)


@cache
def estimator(name):
    (result,) = estimators_of(scalar_model(**FILTERS[name]))
    assert isinstance(result, ParticleFilter)
    return result.with_particles(10)


def with_data(one, y):
    """The same filter on other data, all of which count."""
    return replace(one, observed=np.asarray(y, float), kinds=np.zeros(len(y), np.int64))


def words(n, n_seeds=1, seed=0):
    return np.random.default_rng(seed).integers(2**53, size=(n, n_seeds), dtype=np.uint64)


def check_mean_one(log_ratio):
    """The mean of the ratio of estimate to truth is 1 within its standard errors."""
    ratio = np.exp(log_ratio)
    error = ratio.std(ddof=1) / np.sqrt(len(ratio))
    z = (ratio.mean() - 1.0) / error
    assert abs(z) < STANDARD_ERRORS, f"mean {ratio.mean():.4f}, z = {z:.2f}"
    assert error < 0.2  # the check has some power


def check_unbiased(one, x, truth, runs=RUNS, seed=0):
    rows = np.tile(np.atleast_2d(np.asarray(x, float)), (runs, 1))
    check_mean_one(one.estimate(rows, words(runs, one.n_seeds, seed)) - truth)


@pytest.mark.parametrize("runs", [RUNS, pytest.param(10_000, marks=pytest.mark.slow)])
@every_filter
def test_unbiased_for_every_filter_and_scheme(name, runs):
    """A filter that is biased makes every evidence wrong, and no error bar shows it."""
    for scheme in SCHEMES:
        one = replace(estimator(name), resampling=scheme)
        check_unbiased(one, [OFFSET], scalar_kalman(DATA), runs)


def test_unbiased_where_data_begin_later():
    """The first states are then drawn from the model, not from the proposal for data."""
    y = DATA.copy()
    y[0] = np.nan
    (one,) = estimators_of(scalar_model(y, n_particles=10, **FILTERS["guided_from_start"]))
    assert not one.auto and one.n_particles == 10
    check_unbiased(one, [OFFSET], scalar_kalman(y))


@pytest.mark.parametrize("name", ["bootstrap", "auxiliary"])
def test_unbiased_whenever_it_resamples(name):
    """Resampling never, or at every time, or in blocks, must not change what is estimated."""
    one, truth = estimator(name), scalar_kalman(DATA)
    for ess in (1e-9, 1.0):
        check_unbiased(replace(one, ess=ess), [OFFSET], truth, seed=1)
    blocks = one.with_seeds(3)  # particles are sorted before they are resampled
    assert blocks.n_seeds == 3
    check_unbiased(blocks, [OFFSET], truth, seed=2)


def test_planted_bias_is_caught():
    """Weights of a look-ahead that are not taken off again would fail the test above."""
    one = estimator("auxiliary")
    with pytest.raises(AssertionError, match="mean"):
        check_unbiased(one, [OFFSET], scalar_kalman(DATA) + 0.3)


@every_filter
def test_many_particles_come_to_the_truth(name):
    """An estimate that does not sharpen is an estimate of something else."""
    got = estimator(name).with_particles(20_000).estimate(np.full((8, 1), OFFSET), words(8))
    assert abs(got.mean() - scalar_kalman(DATA)) < 0.06
    assert got.std() < 0.1


def test_same_words_same_bits():
    """The extended target is a function of the words: two answers for one would break it."""
    one = estimator("bootstrap")
    rows, seeds = np.array([[0.1], [0.5], [0.1]]), words(3)
    seeds[2] = seeds[0]
    first = one.estimate(rows, seeds)
    np.testing.assert_array_equal(first, one.estimate(rows, seeds))
    assert first[0] == first[2]
    np.testing.assert_array_equal(first[1:2], one.estimate(rows[1:2], seeds[1:2]))


def long_series(n_times=100, seed=3):
    rng = np.random.default_rng(seed)
    h, y = OFFSET + rng.normal() * Q / np.sqrt(1 - PHI**2), np.empty(n_times)
    for t in range(n_times):
        y[t] = h + R * rng.normal()
        h = OFFSET + PHI * (h - OFFSET) + Q * rng.normal()
    return y


def test_blocks_correlate():
    """Moves that renew one block rest on the others keeping what they estimate."""
    one = with_data(estimator("bootstrap"), long_series()).with_particles(50).with_seeds(20)
    seeds = words(300, 20)
    renewed = seeds.copy()
    renewed[np.arange(300), np.arange(300) % 20] = words(300, seed=9)[:, 0]
    rows = np.full((300, 1), OFFSET)
    moved = rows + 0.005
    first = one.estimate(rows, seeds)
    assert np.corrcoef(first, one.estimate(moved, renewed))[0, 1] > 0.7
    assert np.std(one.estimate(moved, seeds) - first) < 0.5 * np.std(first)
    other = one.estimate(moved, words(300, 20, seed=5))
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.3


# --- vectors ---

A2 = np.array([[0.7, 0.2], [-0.1, 0.6]])
Q2 = np.array([[0.5, 0.2], [0.2, 0.4]])
C2 = np.array([[1.0, 0.5], [0.0, 1.0], [1.0, -1.0]])
S2 = np.array([0.5, 0.6, 0.7])
COMPLETE = np.random.default_rng(5).normal(size=(5, 3))
GAPS = COMPLETE.copy()  # a row is missing, and others in part
GAPS[1] = GAPS[2, 0] = GAPS[3, 1:] = np.nan


def vector_model(y, filter, joint):
    """Two components, whose noise has a joint distribution or is independent."""

    def noisy(mean):
        return pm.MvNormal.dist(mean, Q2) if joint else pm.Normal.dist(mean, np.sqrt(np.diag(Q2)))

    options = {"filter": filter}
    if filter == "guided":
        options["proposal"] = lambda h, t, y: noisy(A2 @ h + 0.3 * pt.stack([y[0], y[1]]))
    with pm.Model() as model:
        m = pm.Normal("m", shape=2)
        StateSpace(
            "y",
            init=lambda: noisy(m),
            transition=lambda h, t: noisy(A2 @ h),
            emission=lambda h, t: pm.Normal.dist(C2 @ h, S2),
            observed=y,
            n_particles=60,
            **options,
        )
    return model


@pytest.mark.parametrize(
    ("filter", "joint", "y"),
    [
        ("bootstrap", True, GAPS[:4]),
        pytest.param("guided", False, COMPLETE, marks=pytest.mark.slow),
        pytest.param("auxiliary", True, GAPS, marks=pytest.mark.slow),
        pytest.param("guided", True, GAPS, marks=pytest.mark.slow),
    ],
)
def test_vector_states(filter, joint, y):
    """Components must not get mixed up, nor missing ones counted."""
    (one,) = estimators_of(vector_model(y, filter, joint))
    m = np.array([0.4, -0.2])
    q = Q2 if joint else np.diag(np.diag(Q2))
    truth = kalman(y, A2, q, C2, np.diag(S2**2), m, q)
    check_unbiased(one, m, truth)
    check_unbiased(one.with_seeds(2), m, truth, seed=1)


# --- discrete states ---

P = np.array([[0.8, 0.15, 0.05], [0.3, 0.5, 0.2], [0.1, 0.3, 0.6]])
P0 = np.array([0.5, 0.3, 0.2])
RATES = np.array([1.0, 3.0, 8.0])
COUNTS = np.array([0, 2, 7, 9, 1, 3])


def forward(y, log_scale=0.0):
    log_alpha = np.log(P0)
    for t, count in enumerate(y):
        if t > 0:
            log_alpha = logsumexp(log_alpha[:, None] + np.log(P), axis=0)
        log_alpha = log_alpha + stats.poisson(RATES * np.exp(log_scale)).logpmf(count)
    return logsumexp(log_alpha)


def hidden_markov(**options):
    with pm.Model() as model:
        scale = pm.Normal("log_scale")
        table, rates = pt.as_tensor(P), pt.as_tensor(RATES)
        StateSpace(
            "counts",
            init=lambda: pm.Categorical.dist(P0),
            transition=lambda h, t: pm.Categorical.dist(table[h]),
            emission=lambda h, t: pm.Poisson.dist(rates[h] * pt.exp(scale)),
            observed=COUNTS,
            n_particles=10,
            **options,
        )
    return model


@pytest.mark.parametrize(
    "filter",
    ["bootstrap", *(pytest.param(f, marks=pytest.mark.slow) for f in ("auxiliary", "guided"))],
)
def test_discrete_states(filter):
    """States that index a table: the likelihood is that of the forward algorithm."""
    options = {"filter": filter}
    if filter == "guided":
        options["proposal"] = lambda h, t, y: pm.Categorical.dist(
            pt.switch(y > 4, [0.2, 0.2, 0.6], [0.4, 0.4, 0.2])
        )
    (one,) = estimators_of(hidden_markov(**options))
    check_unbiased(one, [0.2], forward(COUNTS, 0.2))


def test_a_parameter_out_of_range_concerns_one_particle():
    """Joined over the batch, the check of one particle would be the end of all."""
    with pm.Model() as model:
        pm.Normal("m")
        StateSpace(
            "y",
            init=lambda: pm.Normal.dist(1.0, 1.0),
            transition=lambda h, t: pm.Normal.dist(h, 1.0),
            emission=lambda h, t: pm.Normal.dist(0.0, h),
            observed=[0.5],
            n_particles=20,
        )
    (one,) = estimators_of(model)
    h = np.linspace(1e-6, 12.0, 400_001)
    truth = np.log(np.trapezoid(stats.norm(1, 1).pdf(h) * stats.norm(0, h).pdf(0.5), h))
    check_unbiased(one, [0.0], truth)


@pytest.mark.slow
def test_draws_that_run_in_python(caplog):
    """Without compiled code for it a distribution is slow, which is told, and right."""
    with pm.Model() as model:
        pm.Normal("m")
        StateSpace(
            "y",
            init=lambda: pm.TruncatedNormal.dist(0.0, 1.0, lower=0.0),
            transition=lambda h, t: pm.Normal.dist(h, 1.0),
            emission=lambda h, t: pm.Normal.dist(h, 1.0),
            observed=[0.5, 1.0],
            n_particles=10,
        )
    with caplog.at_level(logging.WARNING, logger="pymc.pm_evidence"):
        (one,) = estimators_of(model)
    assert "truncated_normal" in caplog.text and "correct but slow" in caplog.text
    h = np.linspace(0.0, 12.0, 20_001)
    first = 2 * stats.norm.pdf(h) * stats.norm(h, 1).pdf(0.5)
    truth = np.log(np.trapezoid(first * stats.norm(h, np.sqrt(2)).pdf(1.0), h))
    check_unbiased(one, [0.0], truth, runs=1000)
    rows = np.zeros((2, 1))
    np.testing.assert_array_equal(one.estimate(rows, words(2)), one.estimate(rows, words(2)))


# --- data of the model ---


def test_parameters_and_covariates_of_the_model():
    """Parameters are in the order and on the scale of PyMCTarget.

    Covariates are read at the time that is moved to, and can be replaced.
    """
    x, y = np.array([0.0, 0.5, -1.0, 2.0, 0.3]), np.nan_to_num(DATA, nan=0.2)
    with pm.Model() as model:
        q = pm.HalfNormal("q")
        phi = pm.Uniform("phi", 0, 1)
        b = pm.Normal("b")
        covariate = pm.Data("covariate", x)
        StateSpace(
            "y",
            init=lambda: pm.Normal.dist(0, q / pt.sqrt(1 - phi**2)),
            transition=lambda h, t: pm.Normal.dist(phi * h + b * covariate[t], q),
            emission=lambda h, t: pm.Normal.dist(h, R),
            observed=y,
            n_particles=20,
        )
    at = [np.log(Q), np.log(PHI / (1 - PHI)), 0.7]
    for values in (x, x[::-1].copy()):
        with model:
            pm.set_data({"covariate": values})
        (one,) = estimators_of(model)
        check_unbiased(one, at, scalar_kalman(y, 0.0, 0.7 * values))


# --- what a run tells ---


def test_paths_are_draws_given_all_data():
    """Smoothed paths: mean and variance of the state at the start, given what came later."""
    one = estimator("bootstrap").with_particles(300)
    seeds = np.arange(400, dtype=np.uint64)[:, None]
    _, paths = one.latent(np.full((400, 1), OFFSET), seeds)[0][f"{one.name}_states"]
    assert paths.shape == (400, 5)
    times = np.arange(5)
    prior = Q**2 / (1 - PHI**2) * PHI ** np.abs(times[:, None] - times)
    seen = np.isfinite(DATA)
    gain = prior[:, seen] @ np.linalg.inv(prior[seen][:, seen] + R**2 * np.eye(seen.sum()))
    mean = OFFSET + gain @ (DATA[seen] - OFFSET)
    spread = np.sqrt(np.diag(prior - gain @ prior[seen]))
    z = (paths.mean(axis=0) - mean) / (spread / np.sqrt(400))
    assert np.abs(z).max() < 4.0
    np.testing.assert_allclose(paths.std(axis=0), spread, rtol=0.15)


def test_a_likelihood_that_is_zero_or_no_number_says_where():
    """Time, data and parameters are named; a weight that is not a number is not silent."""
    one = estimator("bootstrap")
    zero = with_data(one, [0.1, 0.2, 1e200, 0.1])  # the square of its distance is infinite
    assert zero.estimate([[0.0]], [[1]])[0] == -np.inf
    message = zero.why_impossible([0.0], 1, "{a=0}")
    assert "time 2" in message and "1e+200" in message and "{a=0}" in message
    assert "nan" not in message.lower()
    assert zero.why_impossible([0.0], 1).startswith("the likelihood of 'y' is zero at x=")
    undefined = with_data(one, [0.1, 0.2, np.nan, 0.1])
    assert np.isnan(undefined.estimate([[0.0]], [[1]])[0])
    assert "not a number" in undefined.why_impossible([0.0], 1)
    assert "time 2" in undefined.why_impossible([0.0], 1)
    assert np.isnan(one.estimate([[np.nan]], [[1]])[0])
    assert one.why_impossible([0.0], 1) == ""


# --- the estimator ---
