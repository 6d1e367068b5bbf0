"""A coarse annealing starts from the prior, or from a complete approximation of the posterior."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

from pm_evidence.runs import coarse_start as module
from pm_evidence.runs.coarse_start import start_of
from pm_evidence.runs.limits import Limits
from pm_evidence.runs.rounds import Run
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.reparameterised import ReparameterisedTarget
from pm_evidence.testing import deceptive_systems, exact_systems
from tests.samplers.test_nested_laplace import periodic

SYSTEMS = {**exact_systems(), **deceptive_systems()}


def start(model):
    run = Run(SMC(), 200, 1, None, 1, limits=Limits(target_mcse=0.05))
    return start_of(run, target_of(model, reparameterise=True), 0.16)


@pytest.mark.parametrize(
    ("name", "given"), [("gaussian_10", None), ("one_way_noncentred", "tau, sigma")]
)
def test_from_an_approximation(name, given):
    found = start(SYSTEMS[name].build())
    assert found.approximation.complete and found.n_evaluations > 0
    assert found.annealed is not found.target
    facts = found.annealed.facts
    assert facts["reference"] == "laplace" and facts.get("log_concave_given") == given


def test_from_the_prior_where_hyperparameters_have_many_modes():
    found = start(periodic(2.7))
    assert found.annealed is found.target
    assert found.approximation is not None and not found.approximation.complete
    assert found.n_evaluations > 0


def test_from_the_prior_where_no_hyperparameters_are_known():
    found = start(SYSTEMS["bimodal_10"].build())
    assert found.annealed is found.target and found.approximation is None
    assert found.n_evaluations == 0


def walk(n):
    """A random walk with noise, of which all but two scales can be integrated out."""
    rng = np.random.default_rng(1)
    data = np.cumsum(0.3 * rng.normal(size=n)) + rng.normal(size=n)
    with pm.Model() as model:
        step, noise = pm.HalfNormal("step", 0.5), pm.HalfNormal("noise", 1)
        start = pm.Normal.dist(0, 1)
        x = pm.GaussianRandomWalk("x", 0, step, init_dist=start, steps=n - 1)
        pm.Normal("y", x, noise, observed=data)
    return model


def test_a_long_walk_is_approximated_by_its_states():
    """Second derivatives by its steps are not zero, and there would be too many of them."""
    short, long = (start(walk(n)) for n in (40, 400))
    assert isinstance(short.target, ReparameterisedTarget) and short.approximation.complete
    assert not isinstance(long.target, ReparameterisedTarget) and long.approximation.complete
    assert long.n_evaluations < 40 * 400


def test_what_is_known_is_in_the_coordinates_of_the_target(monkeypatch):
    """Centred coordinates are tried first if hyperparameters are many: they are then kept."""
    monkeypatch.setattr(module, "MOST_AXES", 0)
    explored = module.explore

    def incomplete(*arguments, **options):
        return replace(explored(*arguments, **options), complete=False)

    monkeypatch.setattr(module, "explore", incomplete)
    found = start(SYSTEMS["one_way_noncentred"].build())
    assert found.annealed is found.target and found.approximation.n_peaks
    assert found.target.centring.amount == (1.0,)
