"""Initial iterations learn the log normalising constants, from any start, and stop in time."""

from dataclasses import replace

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.families.gaussian import MovingGaussian
from pm_evidence.samplers.simulated_tempering import InitialIterations, SimulatedTempering
from pm_evidence.testing import exact_log_z, sine_rbm
from tests.samplers.ladders import BETA, log_z, tempering_plan
from tests.samplers.table import LOG_LIKELIHOOD, TablePath

PRIOR = np.array([0.4, 0.1, 0.2, 0.3])
WEIGHTS = sine_rbm(8, 6)
STARTS = ["annealing", "equal"]


def learnt(path=None, plan=None, chains=100, start="equal", seed=1, **options):
    plan = plan or tempering_plan(prior=PRIOR)
    sampler = SimulatedTempering(chains=chains, start=start, **options)
    return InitialIterations(path or TablePath(), plan, sampler, seed)()


def machine(beta):
    target = pe.rbm.RBM(*WEIGHTS, base="uniform")
    setup = target.annealing_setup("auto")
    plan = replace(
        tempering_plan(np.zeros(len(beta)), beta=beta), kernels=(setup.kernel,) * (len(beta) - 1)
    )
    return setup.path, plan


@pytest.mark.parametrize("start", STARTS)
def test_all_starts_end_at_the_exact_constants_of_a_table(start):
    """Seeds 1 to 3; errors are a few hundredths for 100 chains and 50 moves of each."""
    for seed in (1, 2, 3):
        found = learnt(start=start, seed=seed)
        np.testing.assert_allclose(found.log_z, log_z(), atol=0.2)
        assert found.log_z[0] == 0.0


@pytest.mark.parametrize("start", STARTS)
def test_all_starts_end_at_the_exact_constants_of_a_machine(start):
    """Log Z rises by 10 nats along the path, where equal weights are far from right."""
    beta = np.linspace(0.0, 1.0, 11)
    found = learnt(*machine(beta), start=start, chains=50)
    exact = np.array([exact_log_z(*WEIGHTS, beta=each) for each in beta])
    exact -= (1.0 - beta) * 14 * np.log(2.0)  # the reference of the path is normalised
    np.testing.assert_allclose(found.log_z, exact - exact[0], atol=0.3)
    assert abs(exact[-1] - exact[0]) > 5.0


@pytest.fixture
def rounds(monkeypatch):
    """The log normalising constants and the log shares of every round."""
    seen, own = [], InitialIterations._round

    def watched(self, chains, log_z, rng):
        seen.append((log_z, own(self, chains, log_z, rng)))
        return seen[-1][1]

    monkeypatch.setattr(InitialIterations, "_round", watched)
    return seen


def test_rounds_end_when_all_temperatures_are_visited_as_the_prior_says(rounds):
    """The first round whose shares are all within a tenth of 1 / K of the prior is the last."""
    found = learnt(start="equal")
    log_z_before, log_share = map(np.array, zip(*rounds, strict=True))
    deviation = np.abs(np.exp(log_share) - PRIOR).max(axis=1) * 4
    np.testing.assert_allclose(found.deviation, deviation)
    assert found.deviation[-1] < 0.1 and (found.deviation[:-1] >= 0.1).all()
    assert len(found.deviation) > 1  # equal weights are wrong
    assert (log_z_before[0] == 0.0).all()
    # a round updates by its shares, Eq. 12, relative to the reference
    step = log_z_before + log_share - np.log(PRIOR)
    after = [*log_z_before[1:], found.log_z]
    np.testing.assert_allclose(after, step - step[:, :1], atol=1e-12)
    np.testing.assert_allclose(np.exp(log_share).sum(axis=1), 1.0)
    # and their number is bounded
    assert len(learnt(chains=2, sweeps=1, rounds=3).deviation) == 3


def test_exact_weights_need_one_round(rounds):
    """As the annealed populations give them: a start that is right is found to be so."""
    found = learnt(start="annealing", chains=2000)
    assert len(found.deviation) == 1
    np.testing.assert_allclose(rounds[0][0], log_z(), atol=0.1)


@pytest.mark.parametrize("start", STARTS)
def test_states_without_likelihood(start):
    """They are of the reference only; all first states may be such."""
    path = TablePath(log_likelihood=np.where(np.arange(6) < 3, LOG_LIKELIHOOD, -np.inf))
    found = learnt(path, start=start)
    np.testing.assert_allclose(found.log_z, log_z(path) - log_z(path)[0], atol=0.2)


@pytest.mark.parametrize("start", STARTS)
def test_paths_that_are_not_linear_are_refused_at_once(start):
    with pytest.raises(ValueError, match=r"^path must have a log density that is linear in beta"):
        learnt(MovingGaussian(pe.mixtures.Gaussian()), start=start)


def test_a_worker_reports_its_rounds():
    seen = []
    sampler = SimulatedTempering(chains=10, start="equal", sweeps=5, rounds=3)
    task = InitialIterations(TablePath(), tempering_plan(), sampler, 1)
    task(seen.append)
    assert 1 <= len(seen) <= 3 and seen[0].stage == 1 and seen[0].block == 0
    assert len(BETA) == task.plan.n_stages + 1
