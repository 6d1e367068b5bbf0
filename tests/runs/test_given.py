"""Bridge sampling from given draws: groups, coordinates and the end of a run."""

from functools import cache

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.core.records import Role
from pm_evidence.runs.given import bridge_given, check_bridged
from pm_evidence.runs.rounds import Limits, Run
from pm_evidence.targets.model.cache import target_of
from tests.posteriors import chains_of, posterior_tree
from tests.systems.exact import exact_systems

SYSTEMS = exact_systems()


@cache
def normal():
    """One normal mean."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Normal("y", mu, 1.0, observed=[1.0])
    return model


def normal_tree(n_chains, n_draws, seed=1):
    """The model above, and exact posterior draws of it."""
    model = normal()
    mu = np.random.default_rng(seed).normal(0.5, 0.5**0.5, (n_chains, n_draws))
    return model, posterior_tree(model, {"mu": mu})


def bridged(model, idata, target_mcse=0.02, reparameterise=False, **limits):
    run = Run(pe.methods.SMC(), 250, 1, None, 1, limits=Limits(target_mcse, **limits))
    target = target_of(model, reparameterise=reparameterise)
    return bridge_given(run, target, idata)


@pytest.mark.parametrize(
    ("n_chains", "n_draws", "n_groups", "length"),
    [(4, 400, 16, 100), (1, 1600, 16, 100), (3, 500, 15, 100), (40, 50, 40, 50),
     (2, 16_000, 16, 1000)],
)  # fmt: skip
def test_groups(n_chains, n_draws, n_groups, length):
    """Neighbouring draws of a chain share a group; long chains are thinned."""
    model, idata = normal_tree(n_chains, n_draws)
    record = bridged(model, idata).record
    groups = record.of(Role.GIVEN)
    assert len(groups) == n_groups
    assert {len(np.asarray(block.draws)) for block in groups} == {length}
    mu = idata["posterior"]["mu"].values[0, :length]
    if n_draws < 16_000:
        np.testing.assert_array_equal(np.asarray(groups[0].draws)[:, 0], mu)
    assert sum(len(block.bridge[0]) for block in groups) >= 4000


def test_the_check_is_recorded():
    """Its islands are the forward blocks, whose evidence is that of the estimate ``smc``."""
    model, idata = normal_tree(4, 400)
    whole = bridged(model, idata)
    record, found = whole.record, whole.evidence
    assert len(record.of(Role.FORWARD)) == 8 and record.of(Role.FORWARD)[0].draws is not None
    assert found[-1].estimator == "smc"
    assert found[-1].value == pytest.approx(
        -np.log(np.mean(np.exp(record.work(Role.FORWARD)))), abs=0.5
    )
    assert record.facts.n_chains == 4 and record.facts.doubt == ""


@pytest.mark.slow
def test_coordinates_that_the_draws_choose():
    """Effects are bridged where their posterior is nearest to a normal distribution."""
    model = SYSTEMS["eight_schools_half_normal_noncentred"].build()
    idata = chains_of(model, 1)[0]
    plain, found = bridged(model, idata), bridged(model, idata, reparameterise=True)
    error = np.hypot(found.best.mcse, plain.best.mcse)
    assert abs(found.best.value - plain.best.value) < 5.0 * error
    names = {str(v.rv.name) for v in found.target.variables}
    assert set(found.record.facts.centring) == names and plain.record.facts.centring is None


def test_the_given_draws_may_be_the_limit():
    """Fresh draws do not help where the fit is poor: the user has to know."""
    model, idata = normal_tree(4, 400)
    found = bridged(model, idata, 1e-5, max_draws=8000)
    assert found.best.status == "max_draws"
    assert found.record.facts.stopped_by in ("max_draws", "given_draws")
    quiet = bridged(model, idata, 1e-5, asked=False, max_draws=8000)
    assert quiet.best.status == "ok" and quiet.record.facts.stopped_by is None
    assert sum(len(block.bridge[0]) for block in quiet.record.of(Role.GIVEN)) <= 8000


def test_targets_without_a_bridge():
    for name, message in (
        ("sprinkler", "the discrete variables '"),
        ("no_free_variable", "no free variable"),
        ("interval_cut_normal", "a transform that cuts off"),
    ):
        with pytest.raises(pe.ModelError, match=message):
            check_bridged(target_of(SYSTEMS[name].build()))
    with pytest.raises(ValueError, match=r"needs a pymc\.Model whose likelihood can be evaluated"):
        check_bridged(pe.lattices.Ising(4))
