"""Every distribution of PyMC as prior and as likelihood: right, or refused with the reason.

The table of what is expected is ``distributions.py``. A release of PyMC that brings a distribution,
drops one, or changes what one does, fails here.
"""

import logging
from importlib.util import find_spec

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from scipy import stats
from scipy.special import logsumexp

import pm_evidence as pe
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.model.target import PyMCTarget
from tests.targets.model.distributions import (
    ABSTRACT,
    ALIASES,
    DISTRIBUTIONS,
    build,
    data_of,
    likelihood_model,
    prior_model,
    unnamed,
)
from tests.targets.values import without_gradients

pytestmark = [
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning"),
    pytest.mark.filterwarnings("ignore:WishartBartlett is deprecated:FutureWarning"),
    # of the log density that the test itself asks of PyMC
    pytest.mark.filterwarnings("ignore:pytensor.tensor.linalg.trace:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of pm.Simulator itself
    pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning"),  # of pm.draw
    pytest.mark.filterwarnings("ignore:No safe default transform:UserWarning"),  # of pm.HurdleGamma
]

# No function of an observed variable.
ONLY_PRIOR = {"WishartBartlett"}
AS_PRIOR = [name for name, case in DISTRIBUTIONS.items() if case.prior is None]
AS_LIKELIHOOD = [
    name
    for name, case in DISTRIBUTIONS.items()
    if case.likelihood is None and name not in ONLY_PRIOR
]
# Compiled together these take long, and are left to the slow tests.
LONG_TO_COMPILE = {
    "AR",
    "DirichletMultinomial",
    "EulerMaruyama",
    "GARCH11",
    "GaussianRandomWalk",
    "HurdleNegativeBinomial",
    "HurdlePoisson",
    "Interpolated",
    "KroneckerNormal",
    "LKJCholeskyCov",
    "LKJCorr",
    "MatrixNormal",
    "Mixture",
    "MvGaussianRandomWalk",
    "MvStudentT",
    "MvStudentTRandomWalk",
    "OrderedMultinomial",
    "RandomWalk",
    "Truncated",
    "Wishart",
    "WishartBartlett",
}
QUICK = [name for name in AS_PRIOR if name not in LONG_TO_COMPILE]
# Of every single comparison; 150 are made, so that 1 in 600 versions of PyMC gives a false alarm.
FALSE_ALARM = 1e-5


def seed(n=1):
    return np.random.SeedSequence(n)


def test_the_table_is_complete():
    """A distribution that is not in the table has never been tried."""
    listed = {*DISTRIBUTIONS, *ABSTRACT, *ALIASES}
    assert set(pm.distributions.__all__) == listed


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_are_what_they_stand_for(alias):
    """Otherwise they need a case of their own."""
    known = getattr(pm, ALIASES[alias])
    assert getattr(pm, alias) is known or issubclass(getattr(pm, alias), known)


@pytest.mark.parametrize("name", [n for n, case in DISTRIBUTIONS.items() if case.prior])
def test_refused_as_prior(name):
    """Annealed all the same, it would give a number that means nothing."""
    if name == "PolyaGamma" and find_spec("polyagamma"):
        pytest.skip("polyagamma is installed, which draws it")
    model = prior_model(name)
    with model:
        pm.Normal("y", 0, 1, observed=0.0)
    with pytest.raises(ModelError, match=DISTRIBUTIONS[name].prior):
        PyMCTarget(model)


@pytest.mark.parametrize("name", [n for n, case in DISTRIBUTIONS.items() if case.likelihood])
def test_refused_as_likelihood(name):
    """The same for data."""
    model = likelihood_model(name, data_of(name))
    with pytest.raises(ModelError, match=DISTRIBUTIONS[name].likelihood):
        PyMCTarget(model)


# --- prior draws and prior densities belong together, and densities are normalised ---


def check_normalised(x, log_density, *, discrete):
    """Compare draws with the density that they are said to have.

    For continuous ones the mean of ``g / p`` over draws from ``p`` is 1 for every density ``g``,
    here a normal one within the bulk of ``p``; for discrete ones, counts are compared.
    """
    if discrete:
        _, first, counts = np.unique(x, axis=0, return_index=True, return_counts=True)
        expected = len(x) * np.exp(log_density[first])
        common = expected >= 5
        statistic = ((counts - expected) ** 2 / expected)[common].sum()
        assert stats.chi2.sf(statistic, max(common.sum() - 1, 1)) > FALSE_ALARM
        assert np.exp(log_density[first]).sum() <= 1 + 1e-6
        return
    middle = np.median(x, axis=0)
    scale = 0.75 * np.median(np.abs(x - middle), axis=0)
    weights = np.exp(stats.norm.logpdf(x, middle, scale).sum(axis=1) - log_density)
    error = weights.std() / np.sqrt(len(x))
    assert error < 0.1
    assert abs(weights.mean() - 1) < stats.norm.isf(FALSE_ALARM / 2) * error


@pytest.fixture(scope="module")
def together():
    """The quick ones as variables of one model, which is compiled once."""
    with pm.Model() as model:
        for name in QUICK:
            build(name, name, 0.3)
        pm.Normal("y", 0, 1, observed=0.0)
    target = without_gradients(PyMCTarget(model))
    particles = target.draw(1000, seed())
    values, parts, start = model.value_vars, [], 0
    for value, shape in zip(values, target.layout.shapes, strict=True):
        stop = start + int(np.prod(shape))
        parts.append(particles.x[:, start:stop].reshape(-1, *shape).astype(value.dtype))
        start = stop
    # PyMC's own terms at all draws in one call: a thousand calls take four times as long
    rows = [pt.tensor(dtype=value.dtype, shape=(None, *value.type.shape)) for value in values]
    terms = [term.sum() for term in model.logp(model.free_RVs, jacobian=True, sum=False)]
    batched = vectorize_graph(terms, dict(zip(values, rows, strict=True)))
    found = pytensor.function(rows, batched, mode="FAST_COMPILE")(*parts)
    columns = [np.broadcast_to(column, len(particles)) for column in found]
    return target, particles, dict(zip(QUICK, parts, strict=True)), np.stack(columns, axis=1)


def test_our_log_prior_is_the_sum_of_pymcs(together):
    """The densities agree, except for the constant that PyMC omits from pm.CAR."""
    _, particles, _, terms = together
    car = 0.5 * np.log(2.0) - 1.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(particles.log_density[:, 0], terms.sum(axis=1) + car, rtol=1e-6)


@pytest.mark.parametrize("name", QUICK)
def test_draws_have_the_density(together, name):
    """Draws from another distribution, or a constant left out, shift every evidence."""
    _, _, values, terms = together
    x = values[name].reshape(len(terms), -1)
    log_density = terms[:, QUICK.index(name)]
    if name == "CAR":
        log_density = log_density + 0.5 * np.log(2.0) - 1.5 * np.log(2 * np.pi)
    check_normalised(x, log_density, discrete=x.dtype.kind in "iub")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in AS_PRIOR if name in LONG_TO_COMPILE])
def test_draws_have_the_density_where_it_takes_long(name):
    """The same for the rest."""
    model = prior_model(name)
    with model:
        pm.Normal("y", 0, 1, observed=0.0)
    target = without_gradients(PyMCTarget(model))
    particles = target.draw(4000, seed())
    check_normalised(particles.x, particles.log_density[:, 0], discrete=target.discrete.size > 0)


# --- the evidence ---


def check_evidence(model, exact, error=0.0):
    dt = pe.sample_evidence(model, random_seed=3, progressbar=False)
    found = pe.log_evidence(dt)
    assert abs(found.value - exact) < 5 * np.hypot(found.mcse, error) + 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", AS_PRIOR)
def test_evidence_as_prior(name, caplog):
    """Against plain Monte Carlo over the draws of PyMC itself."""
    caplog.set_level(logging.ERROR)
    n = 20_000
    case = DISTRIBUTIONS[name]
    x = unnamed(name, 0.3) if case.exact_draws is None else None
    draws = pm.draw(x, draws=n, random_seed=4) if x is not None else case.exact_draws(n, 0.3)
    draws = np.asarray(draws, float).reshape(n, -1)
    scale = 0.5 + np.median(np.abs(draws - np.median(draws, axis=0)), axis=0)
    data = draws[0] + 0.3 * scale
    model = prior_model(name)
    with model:
        pm.Normal("y", model["x"].flatten(), scale, observed=data)
    log_likelihood = stats.norm.logpdf(data, draws, scale).sum(axis=1)
    exact = logsumexp(log_likelihood) - np.log(n)
    relative = np.exp(log_likelihood - exact)
    check_evidence(model, exact, relative.std() / np.sqrt(n))


@pytest.mark.slow
@pytest.mark.parametrize("name", AS_LIKELIHOOD)
def test_evidence_as_likelihood(name, caplog):
    """Against a sum over a fine grid of the one parameter."""
    if name == "PolyaGamma":
        pytest.importorskip("polyagamma")
    caplog.set_level(logging.ERROR)
    data = data_of(name)
    model = likelihood_model(name, data)
    log_joint = model.compile_fn(model.logp(), mode="FAST_COMPILE")
    t = np.linspace(-3.5, 3.5, 281)
    exact = logsumexp([log_joint({"t": value}) for value in t]) + np.log(t[1] - t[0])
    if name == "CAR":
        exact += 0.5 * np.log(2.0) - 1.5 * np.log(2 * np.pi)
    check_evidence(model, exact)
