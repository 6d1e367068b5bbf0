"""A model from another reference: exact weights for every kind of coordinate."""

from functools import cache

import cloudpickle
import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.references.target import ReferencedTarget, coordinates_of
from pm_evidence.targets.model.cache import target_of
from tests.references.densities import InPython
from tests.systems.exact import exact_systems

SYSTEMS = exact_systems()


@cache
def referenced(name, scale=1.5, kind=pe.references.StudentT):
    """The target of a system from a wide density about its prior draws, compiled once."""
    model = target_of(SYSTEMS[name].build())
    d = len(coordinates_of(model))
    draws = model.draw(2000, np.random.default_rng(1).bit_generator.seed_seq).x
    x = draws[:, coordinates_of(model)]
    density = kind(x.mean(axis=0), scale * x.var(axis=0) + 0.1) if d else None
    return ReferencedTarget(model, density)


FAST = ("normal_mean", "von_mises", "spike_and_slab")
OTHERS = [
    "ordered_two",
    "beta_binomial",
    "ordered_three",
    "zero_sum",
    "uniform_interval",
    "missing_normal",
]
OTHERS += ["dirichlet_multinomial", "potential_and_data", "sprinkler", "category"]
OTHERS += ["lkj_correlation"]


@pytest.mark.parametrize(
    "name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_the_mean_weight_is_the_evidence(name):
    """The log density, the Jacobian or the mass of a prior would be missing from the weights.

    The error is five standard errors of 100,000 weights.
    """
    target = referenced(name)
    log_weight = target.draw(100_000, np.random.SeedSequence(2)).log_density[:, 1]
    weight = np.exp(log_weight - SYSTEMS[name].log_evidence)
    assert abs(weight.mean() - 1.0) < 5.0 * weight.std() / np.sqrt(len(weight))
    assert weight.std() / np.sqrt(len(weight)) < 0.05


def test_a_cut_prior_is_refused():
    """Its mass is known only approximately, so that the weights would not be exact."""
    with pytest.raises(pe.ModelError, match=r"reference must be 'prior'.*pm\.Truncated"):
        referenced("interval_cut_normal")


def test_discrete_priors_that_depend_on_continuous_variables_are_refused():
    """The product of the reference and such a prior is not what draws would have."""
    with pm.Model() as model:
        shares = pm.Normal("logit")
        pm.Normal("y", pm.Bernoulli("z", logit_p=shares), 1.0, observed=0.3)
    target = ReferencedTarget(target_of(model), pe.references.Normal([0.0], [1.0]))
    with pytest.raises(pe.ModelError, match="depends on 'logit'"):
        target.density  # noqa: B018


def test_workers_get_the_same_target():
    """A block in another process would give other digits."""
    target = referenced("ordered_two")
    other = cloudpickle.loads(cloudpickle.dumps(target))
    x = target.draw(50, np.random.SeedSequence(3)).x
    np.testing.assert_array_equal(other.evaluate(x).log_density, target.evaluate(x).log_density)
    np.testing.assert_array_equal(other.draw(9, np.random.SeedSequence(4)).x,
                                  target.draw(9, np.random.SeedSequence(4)).x)  # fmt: skip


def test_a_users_object_has_no_gradient():
    """HMC would call a gradient that does not exist."""
    target = referenced("normal_mean")
    own = ReferencedTarget(target.model, InPython(target.reference))
    assert own.differentiable is None and target.differentiable is not None
    x = target.draw(50, np.random.SeedSequence(3)).x
    ours, compiled = (each.evaluate(x).log_density for each in (own, target))
    np.testing.assert_allclose(ours, compiled, rtol=1e-10)


def test_points_without_support_have_weight_zero():
    """Where the density of the model is NaN, a weight of NaN would make the evidence NaN."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("half", pm.math.log(x))
    density = pe.references.Normal([0.0], [1.0])
    target = ReferencedTarget(target_of(model), density)
    found = target.draw(1000, np.random.SeedSequence(5))
    inside = found.x[:, 0] > 0.0
    assert np.isfinite(found.log_density[inside]).all()
    assert (found.log_density[~inside, 1] == -np.inf).all()


def test_infinite_densities_are_refused():
    """One infinite weight would be the whole evidence."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("spike", pm.math.switch(x > 3.0, np.inf, 0.0))
    target = ReferencedTarget(target_of(model), pe.references.Normal([3.0], [1.0]))
    with pytest.raises(pe.NumericalError, match="draws from the reference, first at"):
        target.draw(100, np.random.SeedSequence(6))


def test_mass_and_circles():
    """The result would state another mass of the prior, or circles would be left."""
    target = referenced("ordered_two")
    assert target.log_prior_mass == pytest.approx(-np.log(2.0)) and target.log_order_mass == 0.0
    circle = referenced("von_mises")
    assert not len(circle.positions)
    assert np.abs(circle.draw(1000, np.random.SeedSequence(7)).x).max() <= np.pi
    assert np.abs(circle.wrap(np.array([[4.0]]))).max() <= np.pi
