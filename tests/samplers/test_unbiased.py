"""The mean weight is unbiased for Z: the one property that all of the package stands on.

Statistical tests compare the mean of ``exp(-work) / Z`` over independent blocks with 1, within 4
standard errors: a false-alarm rate of 6e-5 each, at fixed seeds.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from pm_evidence.core.contracts import MoveInfo
from pm_evidence.kernels.cycle import choose_kernel
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.planning import Pilot
from pm_evidence.samplers.smc import SMC
from tests.kernels.exact import gaussian, mixed
from tests.samplers.table import LOG_LIKELIHOOD, Step, TablePath, plan_of

SHORT = [0.0, 0.2, 0.6, 1.0]
N_BLOCKS = 1000


def relative_weights(sampler, path, plan, draws, n_seeds, log_evidence, seed=1):
    works = [sampler.run_block(path, plan, block, draws, seed).work for block in range(n_seeds)]
    return np.exp(-np.concatenate(works) - log_evidence)


def check_unbiased(weights):
    error = weights.std(ddof=1) / len(weights) ** 0.5
    z = (weights.mean() - 1.0) / error
    assert abs(z) < 4.0, f"mean weight {weights.mean():.4f} of Z is {z:.1f} standard errors off"
    assert error < 0.05  # else the test says nothing


SAMPLERS = [
    (SMC(chain_length=1), 8),
    (SMC(chain_length=1, resampling="multinomial"), 5),
    (SMC(chain_length=3, resampling="residual"), 10),
    (SMC(chain_length=5, resampling="ssp"), 20),
    (SMC(chain_length=1, resample_below=0.9), 8),  # some stages are without resampling
]


@pytest.mark.parametrize(("sampler", "draws"), SAMPLERS)
def test_smc_on_a_table(sampler, draws):
    path = TablePath()
    check_unbiased(
        relative_weights(sampler, path, plan_of(SHORT), draws, N_BLOCKS, path.log_evidence)
    )


@pytest.mark.parametrize("sampler", [SMC(chain_length=4), AIS()])
def test_states_without_likelihood_count_as_zero(sampler):
    """Dropping them and dividing by the number of the others would bias Z upwards."""
    path = TablePath(log_likelihood=np.where(np.arange(6) % 2, LOG_LIKELIHOOD, -np.inf))
    draws, n_seeds = (4, N_BLOCKS) if sampler.name == "smc" else (64 * 100, 40)
    weights = relative_weights(sampler, path, plan_of(SHORT), draws, n_seeds, path.log_evidence)
    assert (weights == 0.0).any()  # paths, or islands, in which all is dead
    check_unbiased(weights)


# With HMC, a random walk, and a cycle of kernels for discrete variables.
FAST = {(gaussian, "hmc", "smc"), (gaussian, "random_walk", "ais"), (mixed, "auto", "smc")}
REAL = [
    pytest.param(*case, marks=[] if (*case[:2], case[2].name) in FAST else [pytest.mark.slow])
    for case in product((gaussian, mixed), ("auto", "hmc", "random_walk"), (SMC(), AIS(n_stages=8)))
]


@pytest.mark.parametrize(("system", "name", "sampler"), REAL)
def test_real_models_after_their_pilot(system, name, sampler):
    """The plan as the pilot leaves it, with the kernels that users get."""
    exact = system()
    pilot = Pilot(500, sampler.chain_length, sampler.ess)
    plan = sampler.follow(pilot.run(exact.path, choose_kernel(exact.path.target, name), seed=3))
    n_seeds, draws = (250, 60) if sampler.name == "smc" else (16, 1024)
    check_unbiased(relative_weights(sampler, exact.path, plan, draws, n_seeds, exact.log_evidence))


@pytest.mark.parametrize(
    ("sampler", "draws"), [(SMC(chain_length=1), 6), (SMC(chain_length=5), 7), (AIS(), 64 * 100)]
)
def test_draws_are_posterior_draws(sampler, draws):
    """Weighed by its Z a block's draws are unbiased for the posterior, however few they are."""
    path, rows = TablePath(), []
    for block in range(N_BLOCKS if sampler.name == "smc" else 60):
        record = sampler.run_block(path, plan_of(SHORT), block, draws, seed=2)
        weight = np.exp(-record.work - path.log_evidence)[:, None]
        # the last state is too rare for a z-test of its own
        values = weight * (record.draws == np.arange(5))
        rows += [values.mean(axis=0)] if sampler.name == "smc" else list(values)
    values = np.array(rows)
    p = np.exp(path.log_density(1.0) - path.log_evidence)[:5]
    error = values.std(axis=0, ddof=1) / len(values) ** 0.5
    assert (np.abs(values.mean(axis=0) - p) < 4 * error).all()
    assert error.max() < 0.03


def test_surplus_draws_are_dropped_at_random():
    """Chains come in the order of resampling, by energy: dropping the first would prefer some."""

    class Stays(Step):
        def advance(self, path, state, beta, streams):
            return state, MoveInfo(1.0, 1)

    path, rows = TablePath(), []
    for block in range(N_BLOCKS):
        record = SMC(chain_length=2).run_block(path, plan_of([0, 1], Stays()), block, 11, seed=2)
        weight = np.exp(-record.work[0] - path.log_evidence)
        rows.append(weight * np.isin(record.draws, [0, 1, 5]).mean())  # of low likelihood
    p = np.exp(path.log_density(1.0) - path.log_evidence)[[0, 1, 5]].sum()
    error = np.std(rows, ddof=1) / N_BLOCKS**0.5
    assert abs(np.mean(rows) - p) < 4 * error
    assert error < 0.007


# --- planted errors ---


@dataclass(frozen=True)
class WrongWeights(TablePath):
    """Log weights too large by a third."""

    def log_ratio(self, state, start, stop):
        return 1.3 * super().log_ratio(state, start, stop)


@dataclass(frozen=True)
class MovesAtTheWrongBeta(Step):
    """Leaves another density invariant."""

    def advance(self, path, state, beta, streams):
        return super().advance(path, state, 0.6 * beta, streams)


@dataclass(frozen=True)
class AcceptsAll(Step):
    """Has no reject step."""

    def advance(self, path, state, beta, streams):
        return super().advance(TablePath(np.full(6, 1 / 6), np.zeros(6)), state, beta, streams)


WRONG = [
    (WrongWeights(), Step()),
    (TablePath(), MovesAtTheWrongBeta()),
    (TablePath(), AcceptsAll()),
]
LARGER = [
    pytest.param(SMC(chain_length=1), 200, 400, marks=pytest.mark.slow),
    pytest.param(SMC(chain_length=5), 200, 400, marks=pytest.mark.slow),
    (AIS(n_stages=21), 64 * 100, 20),
]


@pytest.mark.parametrize(("sampler", "draws", "n_seeds"), LARGER)
def test_planted_errors_are_caught(sampler, draws, n_seeds):
    """And the same numbers of blocks without them pass: it is the error that is caught."""
    for path, kernel in (*WRONG, (TablePath(), Step())):
        plan = sampler.follow(plan_of(SHORT, kernel))
        weights = relative_weights(sampler, path, plan, draws, n_seeds, path.log_evidence)
        if (path, kernel) in WRONG:
            with pytest.raises(AssertionError, match="standard errors off"):
                check_unbiased(weights)
        else:
            check_unbiased(weights)
