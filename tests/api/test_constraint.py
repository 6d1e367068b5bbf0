"""Orders and ranges: exact Bayes factors, bounds where draws do not tell, and what is refused."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pm_evidence as pe
from tests.api.refusals import check_refusals
from tests.posteriors import posterior_tree

QUIET = {"random_seed": 1, "progressbar": False}
MEANS = np.array([0.1, 0.3, 0.9])  # posterior means, with a deviation of SD and a prior of 1
SD = 0.3


@cache
def groups():
    """Three means, which are independent given the data."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0, shape=3)
        pm.Deterministic("range", mu[2] - mu[0])
        noise = (SD**-2.0 - 1.0) ** -0.5
        pm.Normal("y", mu, noise, observed=MEANS / SD**2 * noise**2)
    return model


def draws(seed, n=1000):
    mu = np.random.default_rng(seed).normal(MEANS, SD, (4, n, 3))
    return posterior_tree(groups(), {"mu": mu, "range": mu[..., 2] - mu[..., 0]})


def of(constraint, dt, **options):
    return pe.bayes_factor(dt, model=groups(), constraint=constraint, **{**QUIET, **options})


def below(v):
    return v["mu"][0] < v["mu"][1]


PROBABILITY = stats.norm(0.0, 2**0.5 * SD).cdf(0.2)  # of the first mean below the second


def test_against_the_model_and_against_the_complement():
    found = of(below, draws(1))
    exact = np.log(PROBABILITY / 0.5), np.log(PROBABILITY / (1.0 - PROBABILITY))
    for factor, value in zip((found, found.complement), exact, strict=True):
        assert factor.status == "ok" and factor.estimator == "draws" and not factor.warning
        assert abs(factor.log_bf - value) < 4 * factor.mcse < 0.3
        assert factor.lower < factor.log_bf < factor.upper
    assert found.words == "weak evidence for the constraint"
    assert found.posterior_prob == pytest.approx(PROBABILITY, abs=0.03)
    assert found.prior_prob == pytest.approx(0.5, abs=0.02)
    assert (
        "complement=BayesFactor" in repr(found) and "against the complement" in found._repr_html_()
    )


def test_an_order_of_three_with_a_deterministic_variable():
    """Comparisons can be chained, because the function sees one draw at a time."""
    found = of(lambda v: v["mu"][0] < v["mu"][1] < v["mu"][2] and v["range"] > 0, draws(2))
    inside = np.random.default_rng(9).normal(MEANS, SD, (10**6, 3))
    probability = (np.diff(inside) > 0).all(axis=1).mean()
    assert abs(found.log_bf - np.log(probability * 6.0)) < 4 * found.mcse < 0.2
    assert found.prior_prob == pytest.approx(1 / 6, abs=0.01)


def test_errors_over_many_seeds():
    """Prior and posterior draws; a right error fails once in a thousand seeds."""
    z = []
    for seed in range(50):
        found = of(below, draws(seed, 250), random_seed=seed, target_mcse=None)
        exact = np.log(PROBABILITY / (1.0 - PROBABILITY))
        z.append((found.complement.log_bf - exact) / found.complement.mcse)
    z = np.array(z)
    assert abs(z.mean()) < 3.3 * z.std() / np.sqrt(z.size) and 0.7 < z.std() < 1.45


def test_where_no_draw_satisfies_it_there_is_a_bound():
    """Not minus infinity: the bound is true, and follows from the number of draws."""
    with pytest.warns(pe.EvidenceWarning, match="No posterior draw"):
        found = of(lambda v: v["mu"][2] < -0.6, draws(3))
    exact = stats.norm(0.9, SD).logcdf(-0.6) - stats.norm(0.0, 1.0).logcdf(-0.6)
    assert found.status == "bound" and found.lower == -np.inf and np.isnan(found.mcse)
    assert exact < found.log_bf == found.upper < -4.0
    assert found.words.endswith("against the constraint")


def test_where_every_draw_satisfies_it_only_the_complement_has_a_bound():
    found = of(lambda v: v["mu"][2] > -0.6, draws(3))
    assert found.status == "ok"
    assert abs(found.log_bf + stats.norm(0.0, 1.0).logsf(-0.6)) < 4 * found.mcse < 0.06
    rest = found.complement
    assert rest.status == "bound" and rest.upper == np.inf and 4.0 < rest.log_bf == rest.lower
    assert np.isfinite(rest.bf) and rest.words.endswith("for the constraint")


def test_a_bound_that_leaves_the_sign_open_favours_nothing():
    with pytest.warns(pe.EvidenceWarning, match="No posterior draw"):
        found = of(lambda v: v["mu"][2] < -2.8, draws(4, 200))
    assert np.isnan(found.log_bf) and found.status == "bound" and 0.0 < found.upper < np.inf
    assert found.words == "the Bayes factor is not known"


def test_a_constraint_that_the_prior_excludes():
    with pytest.warns(pe.EvidenceWarning, match="No prior draw"):
        found = of(lambda v: v["mu"][2] > 40.0, draws(4, 250))
    assert np.isnan(found.log_bf) and found.status == "no_support"


def test_few_draws_inside_have_a_wide_interval():
    """A few of 4,000 draws: the interval is not that of a normal error."""
    found = of(lambda v: v["mu"][0] > 0.97, draws(5))
    exact = stats.norm(0.1, SD).logsf(0.97) - stats.norm(0.0, 1.0).logsf(0.97)
    assert 1e-4 < found.posterior_prob < 0.003 and found.mcse > 0.25
    assert found.lower < exact < found.upper


def test_dependent_draws_count_for_fewer():
    """Each draw twenty times in a row: the error is as large as that of the different ones."""
    some = draws(6, 200)
    mu = np.repeat(some["posterior"]["mu"].values, 20, axis=1)
    repeated = posterior_tree(groups(), {"mu": mu})
    errors = [of(below, dt, target_mcse=None).mcse for dt in (some, repeated)]
    assert errors[1] == pytest.approx(errors[0], rel=0.6)


def test_a_run_of_its_own():
    dt = pe.sample_evidence(groups(), cores=1, **QUIET)
    found = of(below, dt)
    assert found.status == "ok" and abs(found.log_bf - np.log(2.0 * PROBABILITY)) < 4 * found.mcse


def test_bad_input():
    cases = [
        ({"constraint": "mu"}, TypeError, "constraint must be a function of a draw"),
        ({"constraint": lambda v: v["nu"] > 0}, ValueError, "got 'nu'; the variables are 'mu'"),
        ({"constraint": lambda v: v["mu"] > 0}, ValueError, r"for one draw, got an array of shape"),
        ({"constraint": lambda v: 1.0}, ValueError, "True or False for one draw, got 1.0"),
        ({"constraint": below, "point": {"mu": 0.0}}, ValueError, "got point and constraint"),
    ]
    usual = {"dt1": draws(1), "model": groups(), **QUIET}
    check_refusals(pe.bayes_factor, [({**usual, **given}, *said) for given, *said in cases])


# --- parts that are met one after the other ---


def in_order_from(start, mean, sd):
    """The probability of mu_0 > mu_1 > mu_2 and mu_0 > start, of independent normal variables."""
    middle = np.linspace(mean[1] - 9 * sd, mean[1] + 9 * sd, 4001)
    first, second, third = (stats.norm(m, sd) for m in mean)
    f = second.pdf(middle) * first.sf(np.maximum(middle, start)) * third.cdf(middle)
    return f.sum() * (middle[1] - middle[0])


FALLING = [
    lambda v: v["mu"][0] > v["mu"][1],
    lambda v: v["mu"][1] > v["mu"][2],
    lambda v: v["mu"][0] > 1.0,
]


def z_of_falling(seed):
    """Of 4,000 draws at most one satisfies all parts, as a rule."""
    posterior, prior = in_order_from(1.0, MEANS, SD), in_order_from(1.0, np.zeros(3), 1.0)
    assert posterior < 1.2e-4
    found = of(FALLING, draws(seed), random_seed=seed)
    assert found.status == "ok" and found.mcse < 0.4
    return (found.log_bf - np.log(posterior / prior)) / found.mcse


def test_parts_are_met_one_after_the_other():
    assert abs(z_of_falling(1)) < 4.0
    # together they are a single condition, of which there is at most a bound, or a large error
    with pytest.warns(pe.EvidenceWarning, match="as a list"):
        of(lambda v: all(part(v) for part in FALLING), draws(1))


@pytest.mark.slow
def test_errors_of_parts_over_many_seeds():
    """A right error fails once in a thousand seeds."""
    z = np.array([z_of_falling(seed) for seed in range(40)])
    assert abs(z.mean()) < 3.3 * z.std() / np.sqrt(z.size) and 0.7 < z.std() < 1.45


def test_parts_that_many_draws_satisfy_are_counted():
    def is_low(v):
        return v["mu"][0] < 0.5

    assert of([below, is_low], draws(1)) == of(lambda v: below(v) and is_low(v), draws(1))


def test_a_small_prior_probability_of_parts():
    """Nine means in order: one prior draw in 362,880."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0, shape=9)
        pm.Normal("y", mu, 0.02, observed=np.linspace(-2, 2, 9))
    mu = np.random.default_rng(4).normal(np.linspace(-2, 2, 9), 0.02, (4, 150, 9))
    parts = [lambda v, k=k: v["mu"][k] < v["mu"][k + 1] for k in range(8)]
    dt = posterior_tree(model, {"mu": mu})
    found = pe.bayes_factor(dt, model=model, constraint=parts, **QUIET)
    assert found.status == "ok" and found.posterior_prob == 1.0
    assert abs(found.log_bf - np.log(362_880)) < 4 * found.mcse < 1.6
