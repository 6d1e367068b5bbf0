"""Log-concavity is claimed only where it holds, and where users of common models expect it."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pm_evidence.targets.model.concavity import (
    AFFINE,
    CONVEX,
    Function,
    is_log_concave,
    known_functions,
)
from pm_evidence.targets.model.log_scale import binomial_excess, exponential_excess
from tests.targets.values import in_python

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
Y = (X[:, 0] > 0).astype(int)
NUMBERS = X[:, 0]


def regression(likelihood):
    def build():
        with pm.Model() as model:
            eta = pm.math.dot(X, pm.Normal("b", 0, 2, shape=3))
            likelihood(eta)
        return model

    return build


def of_rates():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 3)
        pm.Poisson("n", rate, observed=3)
        pm.Exponential("t", 1 / pm.HalfNormal("scale", 1), observed=2.0)
        pm.Weibull("w", 2, 3)
        pm.InverseGamma("g", 2, 3)
    return model


def of_probabilities():
    with pm.Model() as model:
        pm.Binomial("y", 10, pm.Beta("p", 2, 3, shape=2), observed=[0, 10])
        pm.Bernoulli("z", pm.Uniform("q"), observed=1)
    return model


def series(build_series):
    def build():
        with pm.Model() as model:
            pm.Poisson("y", pm.math.exp(build_series()), observed=Y)
        return model

    return build


def latent_process():
    with pm.Model() as model:
        process = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(3, 1.0))
        pm.Bernoulli("y", logit_p=process.prior("f", X, reparameterize=False), observed=Y)
    return model


def multivariate():
    with pm.Model() as model:
        b = pm.MvNormal("b", np.zeros(3), cov=np.eye(3) + 0.5)
        pm.Bernoulli("y", pm.math.invprobit(X @ b), observed=Y)
        pm.Potential("lasso", -pm.math.sum(pm.math.abs(b)))
    return model


def of_groups():
    with pm.Model() as model:
        group = pm.Normal("group", pm.Normal("mean", 0, 5), 0.5, shape=4)
        pm.Normal("y", group[np.arange(12) % 4], 1, observed=NUMBERS)
    return model


def of_data():
    with pm.Model() as model:
        x = pm.Data("x", X)
        pm.Bernoulli("y", logit_p=x @ pm.Logistic("b", 0, 1, shape=3), observed=pm.Data("d", Y))
    return model


def walk():
    return pm.GaussianRandomWalk("x", 0, 0.3, init_dist=pm.Normal.dist(0, 1), shape=12)


def autoregressive():
    return pm.AR("x", [0.5, 0.2], 0.3, init_dist=pm.Normal.dist(0, 1), shape=12)


CONCAVE = {
    "normal": regression(lambda eta: pm.Normal("y", eta, 1.5, observed=NUMBERS)),
    "laplace": regression(lambda eta: pm.Laplace("y", eta, 1, observed=NUMBERS)),
    "logistic": regression(lambda eta: pm.Logistic("y", eta, 1, observed=NUMBERS)),
    "logit_p": regression(lambda eta: pm.Bernoulli("y", logit_p=eta, observed=Y)),
    "sigmoid": regression(lambda eta: pm.Bernoulli("y", pm.math.sigmoid(eta), observed=Y)),
    "binomial": regression(lambda eta: pm.Binomial("y", 3, pm.math.invlogit(eta), observed=Y)),
    "poisson": regression(lambda eta: pm.Poisson("y", pm.math.exp(eta), observed=Y)),
    "gamma": regression(
        lambda eta: pm.Gamma("y", alpha=2, beta=2 / pm.math.exp(eta), observed=Y + 0.5)
    ),
    "exponential": regression(
        lambda eta: pm.Exponential("y", lam=pm.math.exp(eta), observed=Y + 0.5)
    ),
    "negative_binomial": regression(
        lambda eta: pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=2.0, observed=Y)
    ),
    "log_scale": regression(
        lambda eta: pm.Normal("y", 0.3, pm.math.exp(eta / 2), observed=NUMBERS)
    ),
    "log_scale_t": regression(
        lambda eta: pm.StudentT("y", nu=4, mu=0, sigma=pm.math.exp(eta / 2), observed=NUMBERS)
    ),
    "log_precision": regression(
        lambda eta: pm.StudentT("y", nu=4, mu=0, lam=pm.math.exp(-eta), observed=NUMBERS)
    ),
    "log_scale_laplace": regression(
        lambda eta: pm.Laplace("y", 0, pm.math.exp(eta), observed=NUMBERS)
    ),
    "rates": of_rates,
    "probabilities": of_probabilities,
    "walk": series(walk),
    "autoregressive": series(autoregressive),
    "latent_process": latent_process,
    "multivariate": multivariate,
    "groups": of_groups,
    "data": of_data,
}

NOT_CONCAVE = {
    "student_t": regression(lambda eta: pm.StudentT("y", nu=4, mu=eta, observed=NUMBERS)),
    "square": regression(lambda eta: pm.Normal("y", eta**2, 1, observed=NUMBERS)),
    "sine": regression(lambda eta: pm.Poisson("y", pm.math.exp(pm.math.sin(eta)), observed=Y)),
    "mixture": regression(
        lambda eta: pm.NormalMixture("y", [0.5, 0.5], eta[:2], 0.3, observed=NUMBERS)
    ),
    "scale": regression(
        lambda eta: pm.Normal("y", eta, pm.HalfNormal("sigma", 1), observed=NUMBERS)
    ),
    "mean_and_log_scale": regression(
        lambda eta: pm.Normal("y", eta, pm.math.exp(eta), observed=NUMBERS)
    ),
    "threshold": regression(
        lambda eta: pm.Normal("y", pm.math.switch(eta > 0, eta, -3 * eta), 1, observed=NUMBERS + 6)
    ),
    "falling_link": regression(lambda eta: pm.Poisson("y", 1 / (1 + pm.math.exp(eta)), observed=Y)),
}


@pytest.mark.parametrize("name", CONCAVE)
def test_common_models_are_known_to_be_log_concave(name):
    target = in_python(CONCAVE[name]())
    assert target.is_log_concave
    assert not violations(target)


@pytest.mark.parametrize("name", NOT_CONCAVE)
def test_other_models_are_not(name):
    target = in_python(NOT_CONCAVE[name]())
    assert not target.is_log_concave
    assert violations(target)


def violations(target, n=1000):
    """Return how often a log density between two points is below what concavity demands."""
    rng = np.random.default_rng(3)
    scale = np.exp(rng.normal(0, 1, (n, 1)))
    a, b = (scale * target.draw(n, np.random.SeedSequence(seed)).x for seed in (1, 2))
    share = rng.uniform(0.1, 0.9, (n, 1))
    at_a, at_b, between = (
        target.evaluate(x).log_density for x in (a, b, share * a + (1 - share) * b)
    )
    least = share * at_a + (1 - share) * at_b
    return int((between < least - 1e-8 * (1 + np.abs(at_a) + np.abs(at_b))).sum())


def test_discrete_and_circular_variables_are_never_covered():
    with pm.Model() as discrete:
        pm.Normal("y", pm.Bernoulli("b", 0.5), 1, observed=0.0)
    with pm.Model() as circular:
        pm.VonMises("a", 0, 1)
        pm.Normal("y", 0, 1, observed=0.0)
    assert not in_python(discrete).is_log_concave
    assert not in_python(circular).is_log_concave


def test_data_decide():
    """Weights of both signs make a sum of concave functions anything."""
    for weight, expected in ((np.ones(12), True), (RNG.normal(size=12), False)):
        with pm.Model() as model:
            eta = pm.math.dot(X, pm.Normal("b", 0, 1, shape=3))
            pm.Potential("p", -pm.math.sum(pm.Data("w", weight) * pm.math.log1pexp(eta)))
        assert in_python(model, potentials_only=True).is_log_concave is expected


def test_products_of_exponentials_may_cancel():
    """The product of a scale and of a noise that is divided by it does not depend on the scale."""
    a, b, z = pt.scalar("a"), pt.vector("b", shape=(2,)), pt.vector("z", shape=(3,))
    given = {z: np.array([1.0, -2.0, 0.5])}
    constant, other = known_functions(
        [a, b, z],
        [pt.exp(a + b[0]) * (z * pt.exp(-a - b[0])), pt.exp(a) * (z * pt.exp(-2.0 * a + b[1]))],
        given,
    )
    np.testing.assert_allclose(constant.value, given[z])
    assert other.value is None and other.is_exponential


def test_parts_of_data_are_data():
    """Each result of a split is its own part."""
    x, z = pt.scalar("x"), pt.vector("z", shape=(4,))
    first, second = pt.split(z, [1, 3], n_splits=2, axis=0)
    known = known_functions([x, z], [first, second * x], {z: np.array([-1.0, 2.0, 3.0, 4.0])})
    np.testing.assert_array_equal(known[0].value, [-1.0])
    assert known[1].curvature == AFFINE
    (cubed,) = known_functions([x, z], [second * pt.exp(x)], {z: np.array([-1.0, 2.0, 3.0, 4.0])})
    assert cubed.curvature.is_convex


def test_differences_from_zero_and_magnitudes_change_nothing():
    """A density of a scale is written with both: (x - 0) / s, and abs(s) for a precision."""
    x = pt.scalar("x")
    scaled, root = known_functions([x], [(pt.exp(x) - 0.0) ** 2, pt.abs(pt.exp(x)) ** -0.5])
    assert scaled.log == AFFINE and root.log == AFFINE


@pytest.mark.parametrize("data", [np.array([True, False]), np.array([3, 200], np.uint8)])
def test_data_of_any_kind_are_subtracted(data):
    """Truth values have no negative, and that of an unsigned number is another number."""
    x = pt.scalar("x")
    (found,) = known_functions([x], [pt.exp(x) - pt.constant(data)])
    assert found.curvature == CONVEX and found.low == -float(data.max())


def test_each_element_has_to_be_constant():
    """An element that varies is not overlooked beside a much larger one that does not."""
    x, z = pt.scalar("x"), pt.vector("z", shape=(2,))
    product = pt.exp(pt.stack([x, x])) * (z * pt.exp(-pt.stack([x, 0.5 * x])))
    (found,) = known_functions([x, z], [product], {z: np.array([-1e14, 1.0])})
    assert found.value is None and found.is_exponential


def test_an_excess_is_convex_where_its_argument_is_affine():
    """Shares given their mean and concentration would be searched for further modes."""
    w, a = pt.dvector("w"), pt.dscalar("a")
    data = pt.constant(np.array([3.0, 0.2]))
    assert is_log_concave([w], [-exponential_excess(2.0 * w - 1.0).sum()])
    assert is_log_concave([w], [-binomial_excess(w, data, data + 1.0).sum()])
    assert is_log_concave([w, a], [-binomial_excess(w, a, data).sum()], {a: np.array(2.0)})
    assert not is_log_concave([w], [exponential_excess(w).sum()])
    assert not is_log_concave([w], [-exponential_excess(pt.exp(w)).sum()])
    assert not is_log_concave([w, a], [-binomial_excess(w, a, data).sum()])


def test_a_choice_between_a_function_and_a_constant():
    """PyTensor makes constants read-only; NumPy fails to broadcast views that were made before."""
    own = np.zeros(1)
    view = own[None]
    own.flags.writeable = False
    found = Function(CONVEX, low=0.0).chosen(
        Function.constant(view), np.tril(np.ones((3, 3), bool))
    )
    assert found.curvature == CONVEX and found.low == 0.0
