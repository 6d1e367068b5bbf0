"""Prior draws: exact, from the normalised prior, whatever the model does to its variables.

``test_distributions.py`` draws every distribution of PyMC.
"""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.model import prior
from pm_evidence.targets.model.prior import prior_sampler
from pm_evidence.targets.model.target import PyMCTarget
from tests.targets.values import evaluated_in_python, in_python

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

N = 5000
# Of every single comparison below; some 40 are made, so the file raises a false alarm in 1 of 2,500
# versions of PyMC, at fixed seeds.
FALSE_ALARM = 1e-5


def seed(n=1):
    return np.random.SeedSequence(n)


def draws_of(build, n=N, make=in_python):
    """Draw from the prior of a model and return all variables on their own scale."""
    with pm.Model() as model:
        build()
        if not model.observed_RVs:
            pm.Normal("unrelated", 0, 1, observed=0.0)
    target = make(model)
    return target, target.constrained.values(target.draw(n, seed()).x)


def check_cdf(draws, cdf):
    """Compare continuous draws with a distribution function (Kolmogorov and Smirnov)."""
    assert stats.kstest(np.ravel(draws), cdf).pvalue > FALSE_ALARM


def check_pmf(draws, pmf):
    """Compare discrete draws with probabilities (chi-square; classes of fewer than 10 joined)."""
    draws = np.ravel(draws)
    values = np.arange(draws.min(), draws.max() + 1)
    expected = np.array([pmf(value) for value in values]) * draws.size
    seen = np.array([(draws == value).sum() for value in values])
    common = expected >= 10
    pairs = [(seen[common], expected[common])]
    rest = draws.size - expected[common].sum()
    if rest >= 10:
        pairs.append(([seen[~common].sum()], [rest]))
    statistic = sum(float(((np.array(o) - e) ** 2 / e).sum()) for o, e in pairs)
    assert stats.chi2.sf(statistic, max(common.sum() - 1, 1)) > FALSE_ALARM


# --- vectors and matrices ---


@pytest.fixture(scope="module")
def vectors():
    def build():
        pm.MvNormal("mvnormal", [1.0, -1.0], cov=[[1.0, 0.6], [0.6, 2.0]])
        pm.Dirichlet("dirichlet", [1.0, 2.0, 3.0])
        pm.ZeroSumNormal("zero_sum", sigma=1.5, shape=4)
        pm.LKJCholeskyCov("lkj", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0), compute_corr=False)
        pm.GaussianRandomWalk("walk", mu=0.5, sigma=2.0, init_dist=pm.Normal.dist(1, 3), steps=3)
        pm.Multinomial("multinomial", n=6, p=[0.2, 0.3, 0.5])

    return draws_of(build)


def test_mvnormal(vectors):
    """Correlations of a prior are part of it: here their whitened draws are standard normal."""
    factor = np.linalg.cholesky([[1.0, 0.6], [0.6, 2.0]])
    white = np.linalg.solve(factor, (vectors[1]["mvnormal"] - [1.0, -1.0]).T)
    check_cdf(white[0], stats.norm.cdf)
    check_cdf(white[1], stats.norm.cdf)
    check_cdf(white.sum(axis=0) / np.sqrt(2), stats.norm.cdf)


def test_dirichlet(vectors):
    """Through the simplex transform and back."""
    share = vectors[1]["dirichlet"]
    np.testing.assert_allclose(share.sum(axis=1), 1.0, rtol=1e-12)
    for k, a in enumerate((1.0, 2.0, 3.0)):
        check_cdf(share[:, k], stats.beta(a, 6 - a).cdf)


def test_zero_sum(vectors):
    """One dimension fewer than entries: each has the variance sigma^2 (1 - 1 / n)."""
    effect = vectors[1]["zero_sum"]
    np.testing.assert_allclose(effect.sum(axis=1), 0.0, atol=1e-12)
    check_cdf(effect[:, 2], stats.norm(0, 1.5 * np.sqrt(0.75)).cdf)


def test_lkj_cholesky(vectors):
    """Standard deviations from their own prior, and r with density (1 - r^2) at eta = 2."""
    packed = vectors[1]["lkj"]  # l11, l21, l22
    check_cdf(packed[:, 0], stats.expon.cdf)
    sd = np.hypot(packed[:, 1], packed[:, 2])
    check_cdf(sd, stats.expon.cdf)
    check_cdf((packed[:, 1] / sd + 1) / 2, stats.beta(2, 2).cdf)


def test_random_walk(vectors):
    """Start and steps have their own distributions, and the steps add up."""
    walk = vectors[1]["walk"]
    check_cdf(walk[:, 0], stats.norm(1, 3).cdf)
    check_cdf((np.diff(walk, axis=1) - 0.5) / 2, stats.norm.cdf)


# --- together by NumPy, one by one in Python, and compiled ---


def shifted(scale, size):
    return pm.Normal.dist(0, 1, size=size) + pm.Exponential.dist(scale, size=size)


def two_generators():
    """A variable that holds several generators."""
    top = pm.Normal("top", 3, 1)
    pm.CustomDist("sum", 2.0, dist=shifted, logp=lambda value, scale: -(value**2), shape=2)
    pm.Normal("child", top, 1e-3)


def one_by_one(patch, few=1000):
    """Have nothing drawn together."""

    def refused(outputs):
        raise NotBatchedError

    patch.setattr(prior, "numpy_draws", refused)
    patch.setattr(prior, "_FEW", few)


@pytest.fixture(scope="module")
def several():
    return draws_of(two_generators)


@pytest.fixture(scope="module")
def fallback():
    with pytest.MonkeyPatch.context() as patch:
        one_by_one(patch)
        return draws_of(two_generators)


@pytest.mark.parametrize("fixture", ["several", "fallback"])
def test_variables_of_several_generators(fixture, request):
    """Drawn together or one by one, they have the distribution, jointly with the others."""
    target, values = request.getfixturevalue(fixture)
    assert (target._prior._together is not None) == (fixture == "several")
    exact = stats.exponnorm(0.5, loc=0, scale=1)  # a normal plus an exponential of mean 1 / 2
    check_cdf(values["sum"], exact.cdf)
    check_cdf(values["top"], stats.norm(3, 1).cdf)
    check_cdf((values["child"] - values["top"]) / 1e-3, stats.norm.cdf)
    columns = np.column_stack([values["top"], values["sum"]])
    off_diagonal = np.corrcoef(columns.T) - np.eye(3)
    assert np.abs(off_diagonal).max() * np.sqrt(N) < 4.8
    serial = np.corrcoef(columns[1:].T, columns[:-1].T)[:3, 3:]
    assert np.abs(serial).max() * np.sqrt(N) < 5.0


def levels():
    scale = pm.HalfNormal("scale", 1)
    location = pm.Normal("location", 0, 1)
    pm.Normal("effect", location, scale, shape=3)
    n = pm.Poisson("n", 8)
    pm.Binomial("k", n=n, p=0.5)


@pytest.fixture(scope="module")
def hierarchy():
    return draws_of(levels)


@pytest.fixture(scope="module")
def in_machine_code():
    """As models with a loop and more than a hundred coordinates are drawn."""
    with pytest.MonkeyPatch.context() as patch:
        one_by_one(patch, few=0)
        return draws_of(levels, make=lambda model: evaluated_in_python(PyMCTarget(model)))


@pytest.mark.parametrize("fixture", ["hierarchy", "in_machine_code"])
def test_children_follow_their_parents(fixture, request):
    """Joint draws: a hierarchy whose levels were drawn apart has no correlation."""
    target, values = request.getfixturevalue(fixture)
    if fixture == "hierarchy":
        assert target._prior._together is not None
    else:
        drawn = target._prior._one_by_one
        assert drawn.compiled is not drawn.first
    standard = (values["effect"] - values["location"][:, None]) / values["scale"][:, None]
    check_cdf(standard, stats.norm.cdf)
    check_cdf(values["scale"], stats.halfnorm.cdf)
    check_pmf(values["n"], stats.poisson(8).pmf)
    assert (values["k"] <= values["n"]).all()
    assert np.corrcoef(values["k"], values["n"])[0, 1] > 0.5
    assert target.log_prior_mass == 0.0  # nothing is cut


def test_a_draw_that_is_used_twice_is_one_draw():
    """The same variable in two places; and its children see it, not another draw."""

    def build():
        x = pm.Normal("x", 0, 1)
        pm.Normal("twice", x + x, 1e-6)
        pm.Normal("product", pt.outer(x * np.ones(2), pt.stack([x, 1.0])), 1e-6)

    _, values = draws_of(build, 200)
    x = values["x"]
    np.testing.assert_allclose(values["twice"], 2 * x, atol=1e-4)
    np.testing.assert_allclose(values["product"][:, 1, 0], x**2, atol=1e-4)
    assert np.unique(x).size == 200


def test_parameters_of_all_shapes():
    """Batches of parameters must not be taken for points, nor points for batches."""

    def build():
        loc = pm.Normal("loc", 0, 1, shape=(3, 1))
        scale = pm.HalfNormal("scale", 1, shape=2)
        pm.Normal("both", loc, scale)
        pm.Normal("wide", loc[:, 0], 1e-6, shape=(4, 3))
        pm.Dirichlet("share", pt.exp(loc) * np.ones(3), shape=(3, 3))
        pm.MvNormal("vector", loc[:, 0], 1e-12 * np.eye(3), shape=(2, 3))
        pm.Categorical("label", p=pt.special.softmax(scale), shape=(4,))

    target, values = draws_of(build, 2000)
    assert target._prior._together is not None
    loc, scale = values["loc"], values["scale"]
    check_cdf((values["both"] - loc) / scale[:, None], stats.norm.cdf)
    np.testing.assert_allclose(values["wide"], loc[:, None, :, 0] * np.ones((4, 1)), atol=1e-4)
    vector = loc[:, None, :, 0] * np.ones((2, 1))
    np.testing.assert_allclose(values["vector"], vector, atol=1e-4)
    np.testing.assert_allclose(values["share"].sum(axis=-1), 1.0, rtol=1e-10)
    p = 1 / (1 + np.exp(scale[:, 0] - scale[:, 1]))
    check_cdf(
        stats.binom.cdf(values["label"].sum(axis=1) - 1, 4, p)
        + np.random.default_rng(1).random(2000)
        * stats.binom.pmf(values["label"].sum(axis=1), 4, p),
        stats.uniform.cdf,
    )


def test_comparisons_catch_planted_errors(hierarchy):
    """Scales that are 15 % off and probabilities that are 4 points off must be seen."""
    values = hierarchy[1]
    effect = (values["effect"] - values["location"][:, None]) / values["scale"][:, None]
    with pytest.raises(AssertionError):
        check_cdf(effect, stats.norm(0, 1.15).cdf)
    with pytest.raises(AssertionError):
        check_pmf(values["n"], stats.poisson(8.3).pmf)


@pytest.mark.parametrize("fixture", ["several", "fallback", "hierarchy", "in_machine_code"])
def test_the_same_seed_gives_the_same_draws(fixture, request):
    """Bit for bit, and another seed others: nothing keeps a state of its own."""
    target, _ = request.getfixturevalue(fixture)
    one = target.draw(20, seed(5)).x
    other = target.draw(20, seed(6)).x
    np.testing.assert_array_equal(target.draw(20, seed(5)).x, one)
    assert not np.isclose(one, other).all(axis=1).any()
    # and a longer run begins with the shorter one
    np.testing.assert_array_equal(target.draw(30, seed(5)).x[:20], one)


# --- traps ---


def test_initval_is_ignored():
    """PyMC's own SMC starts its particles there."""

    def build():
        pm.Normal("mu", 0, 1, initval=30.0)
        pm.HalfNormal("scale", 1, initval="support_point")
        pm.Poisson("k", 3, initval=40)

    _, values = draws_of(build)
    check_cdf(values["mu"], stats.norm.cdf)
    check_cdf(values["scale"], stats.halfnorm.cdf)
    check_pmf(values["k"], stats.poisson(3).pmf)


def test_children_of_observed_variables():
    """They are drawn given the data; redrawing the parent would be the prior of another model."""

    def build():
        parent = pm.Normal("parent", 0, 10, observed=[2.0, -1.0])
        pm.Normal("child", parent, 0.5)
        pm.Normal("grandchild", 2 * parent[0] + 1, 0.1)

    _, values = draws_of(build)
    check_cdf((values["child"] - [2.0, -1.0]) / 0.5, stats.norm.cdf)
    check_cdf(values["grandchild"], stats.norm(5.0, 0.1).cdf)


def test_circular_draws_stay_on_the_circle():
    """A direction beyond pi has no place in one period."""
    target, values = draws_of(lambda: pm.VonMises("direction", 3.0, 1.0))
    assert (np.abs(values["direction"]) <= np.pi).all()
    np.testing.assert_array_equal(target.period, [2 * np.pi])
    turned = (values["direction"] - 3.0 + np.pi) % (2 * np.pi) - np.pi
    check_cdf(turned, stats.vonmises(1.0).cdf)


def test_priors_that_reach_beyond_the_circle_are_refused():
    """Their density at a draw would be that of another angle."""
    circle = {"default_transform": pm.distributions.transforms.circular}
    _, values = draws_of(lambda: pm.Uniform("a", -np.pi, np.pi, **circle))
    check_cdf(values["a"], stats.uniform(-np.pi, 2 * np.pi).cdf)
    for family in (pm.Uniform, pm.Normal):
        with pytest.raises(ModelError, match="must lie between -pi and pi, got a, whose prior"):
            draws_of(lambda family=family: family("a", 0, 2 * np.pi, **circle))


def test_imputed_values():
    """Missing data are free variables with the prior that the model gives them."""

    def build():
        mu = pm.Normal("mu", 1, 1)
        seen = np.ma.masked_array([0.3, 0.0, 0.0], mask=[False, True, True])
        with pytest.warns(pm.exceptions.ImputationWarning):
            pm.Normal("y", mu, 0.5, observed=seen)

    _, values = draws_of(build)
    check_cdf((values["y_unobserved"] - values["mu"][:, None]) / 0.5, stats.norm.cdf)


ordered = pm.distributions.transforms.ordered


def test_exchangeable_ordered_variables_are_sorted():
    """The sorted draws are the normalised ordered prior; their children must see them sorted."""

    def build():
        centre = pm.Normal("centre", 0, 5)
        cuts = pm.Normal("cuts", centre, 1, shape=3, transform=ordered, initval=[-1, 0, 1])
        pm.Normal("least", cuts[0], 1e-6)

    target, values = draws_of(build)
    cuts = values["cuts"] - values["centre"][:, None]
    assert (np.diff(cuts, axis=1) > 0).all()
    check_cdf(cuts[:, 0], lambda x: 1 - stats.norm.sf(x) ** 3)  # least of three
    check_cdf(cuts[:, 2], lambda x: stats.norm.cdf(x) ** 3)
    np.testing.assert_allclose(values["least"], values["cuts"][:, 0], atol=1e-5)
    assert target.log_order_mass == pytest.approx(-math.lgamma(4))
    assert target.log_prior_mass == pytest.approx(-math.log(6))


@pytest.mark.parametrize(
    ("prior", "cdf"),
    [
        (lambda: pm.Exponential("r", 0.5, shape=2, transform=ordered), stats.expon(0, 2.0).cdf),
        (lambda: pm.Uniform("r", 1, 4, shape=2, transform=ordered), stats.uniform(1, 3).cdf),
    ],
)
def test_ordered_after_another_transform(prior, cdf):
    """PyMC adds an ordered transform to the usual one, which keeps the order."""
    target, values = draws_of(prior)
    assert (np.diff(values["r"], axis=1) > 0).all()
    check_cdf(values["r"][:, 1], lambda x: cdf(x) ** 2)
    assert target.log_prior_mass == pytest.approx(-math.log(2)) and target.prior_acceptance == 1.0


def test_ordered_after_a_transform_that_turns_the_order():
    """An interval with an upper bound alone: the prior has to be drawn by rejection."""
    interval = pm.distributions.transforms.Interval(None, 0.0)
    chain = pm.distributions.transforms.Chain([interval, ordered])

    def build():
        pm.Uniform("x", -1.0, 0.0, shape=2, default_transform=chain, initval=[-0.2, -0.5])

    target, values = draws_of(build)
    assert (np.diff(values["x"], axis=1) < 0).all() and target.log_order_mass == 0.0


def test_unequal_ordered_variables_are_rejected():
    """Sorting would not draw from their ordered prior: here rejection has to."""

    def build():
        pm.Normal("cuts", [0.0, 0.5], [1.0, 2.0], transform=ordered, initval=[-1.0, 1.0])

    target, values = draws_of(build)
    cuts = values["cuts"]
    assert (np.diff(cuts, axis=1) > 0).all()
    # the least given that it is the least: density phi(x) P(second > x) / P(in order)
    in_order = stats.norm.cdf(0.5 / np.sqrt(5))
    grid = np.linspace(-8, 8, 8001)
    density = stats.norm.pdf(grid) * stats.norm.sf(grid, 0.5, 2) / in_order
    cumulative = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * 0.002)])
    check_cdf(cuts[:, 0], lambda x: np.interp(x, grid, cumulative))
    assert target.log_order_mass == 0.0
    # 1,000 draws: the share of 0.59 is known to 0.016
    assert target.log_prior_mass == pytest.approx(np.log(in_order), abs=5 * 0.016 / in_order)


def test_prior_that_a_transform_cuts():
    """PyMC does not renormalise it: draws outside are refused, and the mass is recorded."""

    def build():
        interval = pm.distributions.transforms.Interval(0, 1)
        pm.Normal("x", 0, 1, transform=interval, initval=0.5)

    target, values = draws_of(build)
    mass = stats.norm.cdf(1) - 0.5
    check_cdf(values["x"], lambda x: (stats.norm.cdf(x) - 0.5) / mass)
    assert target.log_order_mass == 0.0
    assert target.log_prior_mass == pytest.approx(np.log(mass), abs=5 * 0.015 / mass)


def test_prior_outside_its_transform():
    """It must end with a message, not look for a draw that never comes."""
    with pm.Model() as model:
        interval = pm.distributions.transforms.Interval(100, 101)
        x = pm.Normal("x", 0, 1, transform=interval, initval=100.5)
        pm.Normal("y", x, 1, observed=0.0)
    with pytest.raises(ModelError, match=r"fall inside the transforms.* 0 of \d+ .*pm\.Truncated"):
        in_python(model).draw(10, seed())


# --- what cannot be drawn ---


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: pm.CustomDist("odd", logp=lambda value: -0.5 * value**2),
            r"drawing odd failed: .*random keyword.*give a pm\.CustomDist its random=",
        ),
        (lambda: pm.Normal("odd", 0, -1), r"drawing odd failed: .*parameters out of range"),
        (lambda: pm.Uniform("odd", 0, np.inf), r"drawing odd failed: .*parameters out of range"),
        (
            lambda: pm.GaussianRandomWalk("odd", init_dist=pm.Flat.dist(), steps=2),
            r"drawing odd failed: .*flat",
        ),
    ],
)
def test_variables_that_cannot_be_drawn(build, message):
    """The message names the one at fault among many, and what to do."""
    with pm.Model() as model:
        pm.Normal("fine", 0, 1)
        build()
        pm.HalfNormal("fine_too", 1)
        pm.Normal("y", 0, 1, observed=0.0)
    with pytest.raises(ModelError, match=message) as caught:
        prior_sampler(model)
    assert "\n" not in str(caught.value) and caught.value.__cause__ is not None


def test_a_model_is_not_changed():
    """Sorting and conditioning work on copies of its graph."""
    with pm.Model() as model:
        parent = pm.Normal("parent", 0, 1, observed=2.0)
        cuts = pm.Normal("cuts", parent, 1, shape=2, transform=ordered, initval=[-1.0, 1.0])
        pm.Normal("y", cuts, 1, observed=[0.0, 1.0])
    before = pt.as_tensor(model.logp()).dprint(file="str", print_type=True)
    inputs = list(cuts.owner.inputs)
    in_python(model)
    assert pt.as_tensor(model.logp()).dprint(file="str", print_type=True) == before
    assert all(a is b for a, b in zip(cuts.owner.inputs, inputs, strict=True))
