"""Hamiltonian Monte Carlo of latent values."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from pm_evidence.core.random import streams
from pm_evidence.families.gp_classification.hamiltonian import METRICS, LatentHMC
from pm_evidence.testing import check_kernel
from tests.families.gp_classification.latent import exact, problem

STEPS = {"gaussian": 0.5, "prior": 0.5, "identity": 0.4}


@pytest.mark.parametrize("reference", ["prior", "ep"])
@pytest.mark.parametrize("metric", METRICS)
def test_it_is_a_kernel(reference, metric):
    """Invariance, reversal and streams, by the checks that users have for theirs."""
    path = problem(reference)
    kernel = LatentHMC(STEPS[metric], 3, metric)
    check_kernel(kernel, path, exact(path, 0.7), 0.7)


@pytest.mark.parametrize("metric", METRICS)
def test_the_energy_is_conserved_in_small_steps(metric):
    """A wrong gradient would reject, and a wrong density would accept what it should not."""
    path = problem("prior")
    state, chains = exact(path, 0.7, 50), streams(np.random.SeedSequence(1), 50)
    kernel = LatentHMC(0.01, 100, metric)
    moved, info = kernel.advance(path, state, 0.7, chains)
    assert info.acceptance > 0.999 and info.n_evaluations == 50 * 101
    assert (moved.x != state.x).all()


@dataclass(frozen=True)
class Misled(LatentHMC):
    """A planted error: trajectories are those of another inverse temperature."""

    def advance(self, path, state, beta, chains):
        return super().advance(path, state, 0.8 * beta, chains)


def test_a_planted_error_is_found():
    path = problem("prior")
    with pytest.raises(AssertionError):
        check_kernel(Misled(), path, exact(path, 1.0), 1.0)


def test_settings_and_bad_arguments():
    kernel = LatentHMC()
    assert kernel.settings() == {"step_size": 0.4, "n_leapfrogs": 4.0}
    for name, value in [("step_size", 0.0), ("n_leapfrogs", 0), ("metric", "dense")]:
        with pytest.raises(ValueError, match=name):
            replace(kernel, **{name: value})
