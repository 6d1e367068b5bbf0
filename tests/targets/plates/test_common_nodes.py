"""Elements that differ by constants have nodes in common: the same numbers, for less work."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import logsumexp

from pm_evidence.targets.plates import integrals
from pm_evidence.targets.plates.integrals import gradient_of
from pm_evidence.targets.plates.quadrature import Quadrature
from pm_evidence.targets.plates.target import PlateTarget

N, ITEMS = 40, 6
RNG = np.random.default_rng(5)
THETA = RNG.normal(size=N)
PERSON, ITEM = np.repeat(np.arange(N), ITEMS), np.tile(np.arange(ITEMS), N)
ANSWERS = (RNG.random((N, ITEMS)) < 0.6).astype(int)
COUNTS = RNG.poisson(np.exp(THETA))


def wide():
    a, b = pm.LogNormal("a", 0, 0.5, shape=ITEMS), pm.Normal("b", 0, 2, shape=ITEMS)
    theta = pm.Normal("theta", 0, 1, shape=N)
    pm.Bernoulli("y", logit_p=a * theta[:, None] - b, observed=ANSWERS)


def long():
    order = np.random.default_rng(1).permutation(PERSON.size)[:-7]
    a, b = pm.LogNormal("a", 0, 0.5, shape=ITEMS), pm.Normal("b", 0, 2, shape=ITEMS)
    theta, item = pm.Normal("theta", 0, 1, shape=N), ITEM[order]
    p = pm.math.sigmoid(a[item] * theta[PERSON[order]] - b[item])
    pm.Bernoulli("y", p=p, observed=ANSWERS.ravel()[order])


def binomial():
    theta = pm.Normal("theta", pm.Normal("mu", 0, 1), pm.HalfNormal("s", 1), shape=N)
    pm.Binomial("y", np.where(COUNTS > 3, 12, 9), logit_p=theta, observed=np.minimum(COUNTS, 9))


def poisson():
    mu, s = pm.Normal("mu", 0, 1), pm.HalfNormal("s", 1)
    theta = pm.StudentT("theta", nu=4, mu=0, sigma=s, shape=N)
    pm.Poisson("y", pm.math.exp(mu + theta), observed=COUNTS)


MODELS = {function.__name__: function for function in (wide, long, binomial, poisson)}


@pytest.fixture(scope="module", params=list(MODELS))
def target(request):
    with pm.Model() as model:
        MODELS[request.param]()
    return PlateTarget(model)


def alone(rule):
    """Return the rule in which every element has nodes of its own."""
    return Quadrature(rule.program).resolving(np.zeros((1, rule.program.layout.size)))


def points(target, n=6):
    x = target.prior_points(n, np.random.SeedSequence(2))
    x[-1] *= 4.0  # far out, where elements are narrow or beyond the first nodes
    every = np.zeros((n, target.every.size))
    every[:, target.positions] = x
    return every


def test_integrals_and_gradients_are_the_same(target):
    (rule,), x = target.rules, points(target)
    assert rule.is_common and rule.program.n_numbers < rule.program._each.n_numbers / 4
    total, slope = np.empty(len(x)), np.empty_like(x)
    for rows, found in rule.integrate(x):
        total[rows] = found.totals()[0]
        slope[rows] = gradient_of(rule.program, x[rows], found)
    for rows, found in alone(rule).integrate(x):
        np.testing.assert_allclose(total[rows], found.totals()[0], rtol=1e-9, atol=2e-5)
        expected = gradient_of(rule.program, x[rows], found)
        np.testing.assert_allclose(slope[rows], expected, rtol=1e-4, atol=1e-3)


def test_distinct_elements_stand_for_all():
    """Forty groups with a dozen different counts are a dozen integrals."""
    with pm.Model() as model:
        poisson()
    (rule,) = PlateTarget(model).rules
    assert rule.n_elements == np.unique(COUNTS).size
    same = rule.program.first[rule.program.same]
    assert (COUNTS[same] == COUNTS).all()


@pytest.mark.parametrize("most", [None, 500_000])
def test_draws_have_the_distribution_of_their_element(most, monkeypatch):
    """Of all points at once, and of some after the other."""
    if most:
        monkeypatch.setattr(integrals, "_MOST_NUMBERS", most)
    with pm.Model() as model:
        binomial()
    target = PlateTarget(model)
    (rule,), (mu, s) = target.rules, (0.3, 0.7)
    x = np.tile([mu, np.log(s)], (4000, 1))
    drawn = target.with_local(x)[:, rule.program.plate.positions[:, 0]]
    z = np.linspace(-8.0, 8.0, 4001)
    log_f = -0.5 * ((z - mu) / s) ** 2 + np.minimum(COUNTS, 9)[:, None] * z
    log_f = log_f - np.where(COUNTS > 3, 12, 9)[:, None] * np.logaddexp(0.0, z)
    f = np.exp(log_f - log_f.max(axis=1, keepdims=True))
    f /= f.sum(axis=1, keepdims=True)
    mean = f @ z
    sd = np.sqrt(f @ z**2 - mean**2)
    assert np.abs(drawn.mean(axis=0) - mean).max() < 5 * (sd / np.sqrt(len(x))).max()
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.06)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(N)).max() < 5 / np.sqrt(len(x))


def test_a_density_that_is_not_linear_in_data_has_own_nodes():
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=N)
        shape = pm.HalfNormal("shape", 1)
        pm.NegativeBinomial("y", mu=pm.math.exp(theta), alpha=shape, observed=COUNTS)
    (rule,) = PlateTarget(model).rules
    assert not rule.is_common


def test_nodes_of_priors_that_differ_are_not_common():
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1)
        theta = pm.Normal("theta", slope * np.linspace(-1, 1, N), 1)
        pm.Bernoulli("y", logit_p=theta[:, None] - np.zeros(ITEMS), observed=ANSWERS)
    (rule,) = PlateTarget(model).rules
    assert not rule.is_common


def _total(build):
    """Return the log evidence of a model whose variables are all elements, and the exact one."""
    with pm.Model() as model:
        exact = build()
    (rule,) = PlateTarget(model).rules
    ((_, found),) = rule.integrate(np.zeros((1, rule.program.layout.size)))
    return float(found.totals()[0][0]), exact


def _two_groups():
    mu, y = pm.Normal("mu", 0, 2, shape=2), [np.array([1.3, 0.2, 0.9]), np.array([-0.4, 0.1])]
    for k, values in enumerate(y):
        pm.Normal(f"y{k}", mu[k], 1, observed=values)
    return sum(
        stats.multivariate_normal.logpdf(values, cov=np.eye(len(values)) + 4.0) for values in y
    )


def _beside_zeros():
    """Elements that stand before zeros: with one node for all, the second would be a zero."""
    right, n = np.array([9, 3, 6, 8]), 10
    mu = pm.Normal("mu", 0, 2, shape=4)
    logit = pt.concatenate([mu, pt.zeros(8)])[np.repeat(np.arange(4), n)]
    pm.Bernoulli("y", logit_p=logit, observed=(np.tile(np.arange(n), 4) < np.repeat(right, n)))
    z = np.linspace(-20, 20, 8001)[:, None]
    log_f = stats.norm.logpdf(z, scale=2) + right * z - n * np.logaddexp(0, z)
    return float((logsumexp(log_f, axis=0) + np.log(z[1, 0] - z[0, 0])).sum())


@pytest.mark.parametrize("build", [_two_groups, _beside_zeros])
def test_elements_that_are_taken_by_their_position_have_own_nodes(build):
    found, exact = _total(build)
    assert found == pytest.approx(exact, abs=1e-5)


# Ways to write ``factor * mu[taken] + shift``
TAKEN = {
    "slices": (
        lambda mu: pt.concatenate([2 * mu[:2], mu[2:] - 1]),
        (np.arange(6), [2, 2, 1, 1, 1, 1], [0, 0, -1, -1, -1, -1]),
    ),
    "reversed": (lambda mu: mu[::-1] * np.arange(6), (np.arange(6)[::-1], np.arange(6), 0)),
    "rolled": (lambda mu: pt.roll(mu, 1), (np.roll(np.arange(6), 1), 1, 0)),
    "a matrix": (lambda mu: mu.reshape((2, 3)).T.ravel(), ([0, 3, 1, 4, 2, 5], 1, 0)),
    "every second": (
        lambda mu: pt.concatenate([mu[::2], 3 * mu[1::2]]),
        ([0, 2, 4, 1, 3, 5], [1, 1, 1, 3, 3, 3], 0),
    ),
    "one is replaced": (
        lambda mu: pt.set_subtensor(mu[0], 0.3),
        (np.arange(6), [0, 1, 1, 1, 1, 1], [0.3, 0, 0, 0, 0, 0]),
    ),
    "some": (lambda mu: mu[np.arange(6) % 3 > 0], ([1, 2, 4, 5], 1, 0)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_ways_to_take_elements_give_the_same_density(name):
    """Elements may differ by their position although their data are the same."""
    taken, (index, factor, shift) = TAKEN[name]
    found = []
    for of in (taken, lambda mu: mu[np.array(index)] * np.array(factor) + np.array(shift)):
        with pm.Model() as model:
            scale, base = pm.HalfNormal("scale", 1), pm.Normal("base", 0, 1)
            mu = pm.StudentT("mu", nu=4, mu=0.2, sigma=scale, shape=6)
            answers = [1, 0, 1, 1, 0, 0][: len(index)]
            pm.Bernoulli("y", logit_p=of(mu) + base, observed=answers)
        found.append(PlateTarget(model).evaluate(np.array([[-0.2, 0.4]])).log_density.sum())
    assert found[0] == pytest.approx(found[1], abs=1e-5)
