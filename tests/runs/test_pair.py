"""Draws of two models become paths between their posteriors."""

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.core.records import LogEvidence
from pm_evidence.runs.pair import ModelDraws, anneal_between, check_annealed, model_draws
from pm_evidence.runs.rounds import Limits, Run
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.model.cache import target_of

N_GROUPS = 32
EFFECT = np.array([1.2, 0.3, -0.5, 2.0, 0.9])


def run(**limits):
    return Run(SMC(islands=4), 100, cores=1, executor=None, seed=1, limits=Limits(**limits))


@pytest.fixture(scope="module")
def groups():
    """Effects that can be partly centred in both models, and a covariate in one of them."""
    found = []
    for covariate in (True, False):
        with pm.Model() as model:
            sd, mean = pm.HalfNormal("sd", 1.0), pm.Normal("mean", 0.0, 1.0)
            if covariate:
                mean = mean + pm.Normal("slope", 0.0, 1.0) * np.arange(5.0)
            pm.Normal("y", pm.Normal("effect", mean, sd, shape=5), 0.5, observed=EFFECT)
        found.append(target_of(model, reparameterise=True))
    return found


@pytest.fixture(scope="module")
def drawn(groups):
    return [model_draws(run(target_mcse=0.02), t, None, "idata") for t in groups]


def test_draws_come_in_groups(drawn):
    for draws in drawn:
        assert len(draws.x) == len(draws.group) > 400
        assert len(np.unique(draws.group)) > 8
        assert np.isfinite(draws.target.evaluate(draws.x).log_density).all()
        assert draws.evidence.status == "ok" and draws.n_evaluations > 1000


def test_coordinates_are_those_of_both_models(drawn):
    """Draws that are centred in full have the values that the user wrote."""
    draws = drawn[0]
    centred = draws.centred_like({"effect": (1.0, 0.0)})
    names = [v.name for v in draws.target.layout.variables]
    at = draws.target.layout.variables[names.index("effect")].positions
    expected = draws.target.posterior(draws.x)["effect"]
    np.testing.assert_allclose(centred.x[:, at], expected, rtol=1e-9)
    again = centred.centred_like(draws.centring)
    np.testing.assert_allclose(again.x, draws.x, rtol=1e-6, atol=1e-9)


def test_draws_that_depend_on_each_other_count_as_fewer(drawn):
    """Every draw eight times: the error stays that of the draws."""
    many = [ModelDraws(d.target, d.x.repeat(8, 0), d.group.repeat(8), d.evidence, 0) for d in drawn]
    once, often = (anneal_between(run(target_mcse=None), *draws).best for draws in (drawn, many))
    assert often.mcse == pytest.approx(once.mcse, rel=0.25)


def test_models_that_cannot_be_annealed():
    with pm.Model() as discrete:
        pm.Normal("y", pm.Poisson("k", 2.0), 1.0, observed=[1.0])
    with pytest.raises(pe.ModelError, match="discrete variables 'k' in the first model"):
        check_annealed(target_of(discrete), "first")
    with pm.Model() as known:
        pm.Normal("y", 0.0, 1.0, observed=[1.0])
    with pytest.raises(pe.ModelError, match="no free variable in the second model"):
        check_annealed(target_of(known), "second")


def test_the_evidence_of_a_result_is_taken_as_it_is(groups):
    dt = pe.sample_evidence(
        groups[1].model, target_mcse=0.1, random_seed=1, progressbar=False, cores=1
    )
    found = model_draws(run(target_mcse=0.02), groups[1], dt, "idata")
    assert found.evidence == pe.log_evidence(dt) != LogEvidence(0.0, 0.0, "bar")
    assert found.n_evaluations == 0 and len(np.unique(found.group)) <= N_GROUPS
    assert len(found.x) == dt["posterior"].sizes["chain"] * dt["posterior"].sizes["draw"]
