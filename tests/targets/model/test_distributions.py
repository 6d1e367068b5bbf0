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
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.model import prior
from pm_evidence.targets.model.target import PyMCTarget
from tests.targets.model.distributions import (
    ABSTRACT,
    ALIASES,
    DISTRIBUTIONS,
    ONE_BY_ONE,
    build,
    data_of,
    likelihood_model,
    prior_model,
    unnamed,
)
from tests.targets.values import evaluated_in_python, in_python, without_gradients

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
# Rewriting and compiling their graphs takes long, and is left to the slow tests.
LONG_TO_COMPILE = [
    "AR", "DirichletMultinomial", "EulerMaruyama", "GARCH11", "GaussianRandomWalk",
    "HurdleNegativeBinomial", "HurdlePoisson", "Interpolated", "KroneckerNormal", "LKJCholeskyCov",
    "LKJCorr", "MatrixNormal", "Mixture", "MvGaussianRandomWalk", "MvStudentT",
    "MvStudentTRandomWalk", "OrderedMultinomial", "RandomWalk", "Truncated", "Wishart",
    "WishartBartlett",
]  # fmt: skip
QUICK = [name for name in AS_PRIOR if name not in LONG_TO_COMPILE]
# A single one of these would have all variables of its model drawn one by one.
TOGETHER = [name for name in AS_PRIOR if name not in ONE_BY_ONE]
# What numba cannot draw.
DRAWN_IN_PYTHON = [
    "BetaBinomial", "CustomDist", "HyperGeometric", "Moyal", "Rice", "SkewNormal", "SkewStudentT",
    "StickBreakingWeights", "TruncatedNormal", "Wald",
]  # fmt: skip
# Of every single comparison; 150 are made, so that 1 in 600 versions of PyMC gives a false alarm.
FALSE_ALARM = 1e-5


def seed(n=1):
    return np.random.SeedSequence(n)


def test_the_table_is_complete():
    """A distribution that is not in the table has never been tried."""
    listed = {*DISTRIBUTIONS, *ABSTRACT, *ALIASES}
    assert set(pm.distributions.__all__) == listed


def test_aliases_are_what_they_stand_for():
    """Otherwise they need a case of their own."""
    for alias, name in ALIASES.items():
        known = getattr(pm, name)
        assert getattr(pm, alias) is known or issubclass(getattr(pm, alias), known), alias


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
    with pytest.raises(ModelError, match=DISTRIBUTIONS[name].likelihood):
        PyMCTarget(likelihood_model(name, data_of(name)))


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


def drawn_together(names, n, make):
    """Draw distributions as variables of one model; return it, its draws, and PyMC's own terms."""
    with pm.Model() as model:
        for name in names:
            build(name, name, 0.3)
        pm.Normal("y", 0, 1, observed=0.0)
    target = make(model)
    particles = target.draw(n, seed())
    values, parts = model.value_vars, target.layout.split(particles.x)
    parts = [part.astype(value.dtype) for part, value in zip(parts, values, strict=True)]
    # PyMC's own terms at all draws in one call: a thousand calls take four times as long
    rows = [pt.tensor(dtype=value.dtype, shape=(None, *value.type.shape)) for value in values]
    terms = [term.sum() for term in model.logp(model.free_RVs, jacobian=True, sum=False)]
    batched = vectorize_graph(terms, dict(zip(values, rows, strict=True)))
    found = pytensor.function(rows, batched, mode="FAST_COMPILE")(*parts)
    found = {name: np.broadcast_to(v, n) for name, v in zip(names, found, strict=True)}
    if "CAR" in found:  # the constant that PyMC omits
        found["CAR"] = found["CAR"] + 0.5 * np.log(2.0) - 1.5 * np.log(2 * np.pi)
    return target, particles, dict(zip(names, parts, strict=True)), found


@pytest.fixture(scope="module")
def together():
    """Fifteen in a model: PyTensor in Python adds up to 32 terms."""
    names = [name for name in TOGETHER if name not in LONG_TO_COMPILE]
    groups = [names[i : i + 15] for i in range(0, len(names), 15)]
    return [drawn_together(group, 4000, in_python) for group in groups]


def check_draws(values, terms):
    for name, x in values.items():
        try:
            check_normalised(x.reshape(len(x), -1), terms[name], discrete=x.dtype.kind in "iub")
        except AssertionError as error:
            raise AssertionError(f"draws of {name} do not have its density: {error}") from error


def test_draws_have_the_density(together):
    """Draws from another distribution, or a constant left out, shift every evidence."""
    for target, particles, values, terms in together:
        assert target._prior._together is not None
        total = sum(terms.values())
        np.testing.assert_allclose(particles.log_density[:, 0], total, rtol=1e-6)
        check_draws(values, terms)


def test_draws_one_by_one_have_the_density():
    """The same where a loop, or a user's function, makes them."""
    quick = [name for name in QUICK if name in ONE_BY_ONE]
    target, particles, values, terms = drawn_together(quick, 1000, in_python)
    assert target._prior._together is None
    np.testing.assert_allclose(particles.log_density[:, 0], sum(terms.values()), rtol=1e-6)
    check_draws(values, terms)


def values_of(together, name):
    return next(values[name] for *_, values, _ in together if name in values)


def test_comparisons_catch_planted_errors(together):
    """Scales that are 15 % off and probabilities that are 4 points off must be seen."""
    x = values_of(together, "Normal")[:, None]
    wide = stats.norm.logpdf(x[:, 0], 0.3, 0.8 * 1.15)
    with pytest.raises(AssertionError):
        check_normalised(x, wide, discrete=False)
    k = values_of(together, "Binomial")[:, None]
    with pytest.raises(AssertionError):
        other = stats.binom.logpmf(k[:, 0], 4, 1 / (1 + np.exp(-0.3)) + 0.04)
        check_normalised(k, other, discrete=True)


def test_variables_are_independent(together):
    """Each generator has a seed of its own: no variable may see another's."""
    for *_, values, _ in together:
        first = [x.reshape(len(x), -1)[:, 0] for x in values.values()]
        first = [x for x in first if np.ptp(x) > 0]
        ranks = np.array([stats.rankdata(x) for x in first])
        off_diagonal = np.corrcoef(ranks) - np.eye(len(ranks))
        # 105 pairs, 6e-6 in all
        assert np.abs(off_diagonal).max() * np.sqrt(ranks.shape[1]) < 5.5


@pytest.mark.slow
def test_draws_in_machine_code_have_the_density(monkeypatch):
    """A kind that numba can no longer draw would make wide models with loops slow."""

    def refused(outputs):
        raise NotBatchedError

    monkeypatch.setattr(prior, "numpy_draws", refused)
    monkeypatch.setattr(prior, "_FEW", 0)
    names = [name for name in QUICK if name not in DRAWN_IN_PYTHON]
    for part in (names[k::6] for k in range(6)):  # PyTensor adds at most 32 terms in Python
        target, _, values, terms = drawn_together(
            part, 4000, lambda model: evaluated_in_python(PyMCTarget(model))
        )
        drawn = target._prior._one_by_one
        assert drawn.compiled is not drawn.first
        check_draws(values, terms)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in AS_PRIOR if name in LONG_TO_COMPILE])
def test_draws_have_the_density_where_it_takes_long(name):
    """The same for the rest, whose densities are compiled."""
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
