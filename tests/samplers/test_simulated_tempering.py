"""Simulated tempering: its options, and what a wrong prior over temperatures does."""

import warnings

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.random import Phase
from pm_evidence.samplers.simulated_tempering import Redraw, SimulatedTempering
from pm_evidence.samplers.tempering import TemperedBlock
from tests.samplers.ladders import (
    BETA,
    MOST_ERRORS,
    EachStep,
    largest_error,
    log_z,
    probabilities,
    tempering_plan,
)
from tests.samplers.table import Step, TablePath

PRIOR = np.array([0.4, 0.1, 0.2, 0.3])
TARGET = pe.mixtures.Gaussian()


def run(method, **rest):
    options = {"draws": 400, "target_mcse": None, "random_seed": 1, "progressbar": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        return pe.sample_evidence(TARGET, method=method, **options | rest)


def record_of(kernel=None, n_chains=100, n=400, seed=1):
    plan = tempering_plan(prior=PRIOR, kernel=kernel)
    sampler = SimulatedTempering(chains=n_chains)
    return TemperedBlock(sampler, TablePath(), plan, 0, n_chains, n, seed, Phase.FORWARD)()


def shares(chains):
    """Share of each temperature and state in the states of each chain."""
    states = np.argsort(-TablePath().log_likelihood)
    state = states[np.searchsorted(np.sort(-TablePath().log_likelihood), chains.energy)]
    table = np.zeros((chains.energy.shape[1], 4, 6))
    np.add.at(table, (np.broadcast_to(chains.ladder, state.shape), chains.rung, state), 1.0)
    return table / len(chains.energy)


@pytest.mark.parametrize("kernel", [Step(), EachStep()], ids=["grouped", "each"])
def test_temperatures_are_visited_as_the_prior_says(kernel):
    """And the states at each temperature are of its distribution: the joint one is exact."""
    found = shares(record_of(kernel).tempered)
    assert largest_error(found, PRIOR[:, None] * probabilities()) < MOST_ERRORS


def test_redraws_with_another_prior_are_found(monkeypatch):
    """The test above fails for chains that draw as if the prior were uniform."""
    own = Redraw.changed

    def uniform(self, rung, energy):
        return own(Redraw(self.beta, -log_z(), self.rng), rung, energy)

    monkeypatch.setattr(Redraw, "changed", uniform)
    found = shares(record_of().tempered)
    assert largest_error(found, PRIOR[:, None] * probabilities()) > 2 * MOST_ERRORS


def test_an_estimate_with_another_prior_is_wrong():
    """The constants of the estimate are those that chains drew with, so that it must know both."""
    chains = record_of(n=1000).tempered
    arguments = BETA, chains.energy, log_z()
    right = pe.estimators.rts(*arguments, prior=PRIOR)
    wrong = pe.estimators.rts(*arguments)  # uniform
    assert abs(right.value - log_z()[-1]) < 4 * right.mcse
    assert abs(wrong.value - log_z()[-1]) > 6 * wrong.mcse
    swapped = pe.estimators.rts(*arguments, prior=PRIOR[::-1])
    assert abs(swapped.value - log_z()[-1]) > 6 * swapped.mcse


def test_a_run_whose_stored_prior_is_another_is_wrong():
    """What the record says of the prior is what the estimate uses."""
    record = pe.to_record(
        run(pe.methods.SimulatedTempering(n_temperatures=10, prior="exponential"))
    )
    exact = TARGET.log_evidence
    right = pe.estimators.of_run.estimates(record)[0]
    assert right.estimator == "rts" and abs(right.value - exact) < 4 * right.mcse
    other = record.stating(tempering_prior=[0.1] * 10)
    wrong = pe.estimators.of_run.estimates(other)
    named = {each.estimator: each for each in wrong}
    assert abs(named["rts"].value - exact) > 6 * named["rts"].mcse
    assert named["rts"].status != "ok" or named["mbar"].status == "inconsistent"


@pytest.mark.parametrize("prior", ["uniform", "exponential", [3.0, 1.0, 1.0, 1.0, 2.0, 4.0]])
def test_priors_of_whole_runs(prior):
    """Shares of the temperatures are about those asked for, whose weights are in the record."""
    record = pe.to_record(
        run(pe.methods.SimulatedTempering(n_temperatures=6, prior=prior), draws=4000)
    )
    beta, found = record.beta, np.array(record.facts.tempering_prior)
    weights = {"uniform": np.ones(6), "exponential": np.exp(2.0 * beta)}
    expected = np.array(prior, float) if isinstance(prior, list) else weights[prior]
    np.testing.assert_allclose(found, expected / expected.sum())
    rung = np.concatenate([chains.rung.ravel() for chains in record.tempered])
    share = np.bincount(rung, minlength=6) / rung.size
    np.testing.assert_allclose(share, found, atol=0.05)
    assert len(record.facts.tempering_log_z) == 6
    assert record.facts.initial_deviation < 0.1 and record.facts.initial_rounds >= 1


@pytest.mark.parametrize("start", ["annealing", "equal"])
def test_every_start_gives_the_evidence(start):
    found = pe.log_evidence(
        run(pe.methods.SimulatedTempering(n_temperatures=10, start=start), draws=2000)
    )
    assert found.status == "ok" and found.mcse < 0.1
    assert abs(found.value - TARGET.log_evidence) < 4 * found.mcse


@pytest.mark.slow
def test_temperatures_follow_the_stages_of_the_pilot():
    """Twice as many by default, or as many as are asked for, by number or by weights."""
    beta = run(pe.methods.SimulatedTempering(chains=8), draws=20)["annealing"]["beta"].values
    smc = run(pe.methods.SMC(), draws=20)["annealing"]["beta"].values
    assert len(beta) == 2 * (len(smc) - 1) + 1 or len(beta) > len(smc)
    for method in (
        pe.methods.SimulatedTempering(chains=8, n_temperatures=5),
        pe.methods.SimulatedTempering(chains=8, prior=np.ones(5)),
    ):
        for schedule in ("adaptive", "linear", [0.0, 0.1, 0.2, 0.6, 1.0]):
            found = run(method, draws=20, schedule=schedule)["annealing"]["beta"].values
            assert len(found) == 5 and (found[0], found[-1]) == (0.0, 1.0)


def test_chains_are_divided_into_blocks_and_among_temperatures():
    """About equally many at each, also if there are fewer chains than temperatures."""
    for chains, groups in ((2, [1, 1]), (5, [2, 2, 1]), (300, [128, 128, 44])):
        sampler = pe.methods.SimulatedTempering(chains=chains)
        assert sampler.groups() == groups and sampler.islands == len(groups)
        assert sampler.iterations(100, 10) == -(-1000 // chains)
    sampler = pe.methods.SimulatedTempering(chains=64)
    for n_chains, n_temperatures in ((64, 10), (10, 10), (3, 10), (1, 4)):
        kept = sampler.kept(n_chains, n_temperatures)
        assert np.concatenate(kept).tolist() == list(range(n_chains))
        sizes = [len(part) for part in kept]
        assert max(sizes) - min(sizes) <= 1 and len(kept) == n_temperatures


def test_weights_are_kept_as_they_were():
    """An array that the user changes later does not change them; samplers compare."""
    weights = np.ones(3)
    sampler = pe.methods.SimulatedTempering(prior=weights)
    weights[0] = -1.0
    assert sampler == pe.methods.SimulatedTempering(prior=[2.0, 2.0, 2.0])
    assert sampler != pe.methods.SimulatedTempering(prior=[2.0, 1.0, 2.0])
    # before anything is planned or compiled
    with pytest.raises(ValueError, match=r"^prior must have one weight for each of the 2 temperat"):
        run(sampler, schedule=[0.0, 1.0])
