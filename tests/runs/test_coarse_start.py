"""A coarse annealing starts from the prior, or from a complete approximation of the posterior."""

import pytest

from pm_evidence.runs.coarse_start import start_of
from pm_evidence.runs.limits import Limits
from pm_evidence.runs.rounds import Run
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.model.cache import target_of
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
