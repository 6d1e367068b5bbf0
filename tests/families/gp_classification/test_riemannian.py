"""Riemannian-manifold Hamiltonian Monte Carlo of latent values."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from pm_evidence.core.random import streams
from pm_evidence.families.gp_classification import riemannian
from pm_evidence.families.gp_classification.riemannian import RiemannianHMC
from pm_evidence.testing import check_kernel
from tests.families.gp_classification.latent import exact, problem


@pytest.mark.parametrize("reference", ["prior", "ep"])
def test_it_is_a_kernel(reference):
    """Invariance, reversal and streams, by the checks that users have for theirs."""
    path = problem(reference, 2)
    check_kernel(RiemannianHMC(0.7, 1), path, exact(path, 0.7, 400), 0.7)


@pytest.mark.parametrize("reference", ["prior", "ep"])
def test_slopes_are_those_of_the_hamiltonian(reference):
    """By differences, with the terms of the metric's derivative."""
    path = problem(reference, 4)
    density = riemannian._density(path, 0.6)
    rng = np.random.default_rng(1)
    x, momentum, step = 2.0 * rng.standard_normal(4), rng.standard_normal(4), 1e-5
    slope = riemannian._point(density, x).slope(momentum)
    for i in range(4):
        shift = step * np.eye(4)[i]
        above, below = (
            riemannian._point(density, x + sign * shift).hamiltonian(momentum) for sign in (1, -1)
        )
        assert slope[i] == pytest.approx((above - below) / (2.0 * step), rel=1e-6, abs=1e-7)


def test_trajectories_run_backwards():
    """With the momentum turned round, implicit steps come back to their start."""
    path = problem("prior", 4)
    density = riemannian._density(path, 1.0)
    here = riemannian._point(density, np.array([0.5, -1.0, 2.0, 0.1]))
    momentum = here.momentum(np.random.default_rng(2).standard_normal(8))
    half = riemannian._half_kicked(here, momentum, 0.3)
    there = riemannian._moved(density, here, half, 0.3)
    end = half - 0.15 * there.slope(half)
    half = riemannian._half_kicked(there, -end, 0.3)
    back = riemannian._moved(density, there, half, 0.3)
    np.testing.assert_allclose(back.x, here.x, atol=1e-6)
    np.testing.assert_allclose(half - 0.15 * back.slope(half), -momentum, atol=1e-6)


def test_the_energy_is_conserved_in_small_steps():
    path = problem("ep", 5)
    state = exact(path, 0.5, 20)
    moved, info = RiemannianHMC(0.05, 20).advance(
        path, state, 0.5, streams(np.random.SeedSequence(1), 20)
    )
    assert info.acceptance > 0.99 and (moved.x != state.x).all()


def test_steps_that_are_not_found_are_rejected():
    """Long steps have no solution; the state stays where it is, without a warning."""
    path = problem("prior", 4)
    state = exact(path, 1.0, 10)
    moved, info = RiemannianHMC(50.0, 2).advance(
        path, state, 1.0, streams(np.random.SeedSequence(1), 10)
    )
    assert info.acceptance < 0.5 and (moved.x == state.x).all(axis=1).any()


@dataclass(frozen=True)
class Misled(RiemannianHMC):
    """A planted error: trajectories are those of another inverse temperature."""

    def advance(self, path, state, beta, chains):
        return super().advance(path, state, 0.1 * beta, chains)


def test_a_planted_error_is_found():
    path = problem("prior", 2)
    with pytest.raises(AssertionError):
        check_kernel(Misled(0.7, 1), path, exact(path, 1.0, 500), 1.0)


def test_settings_and_bad_arguments():
    kernel = RiemannianHMC()
    assert kernel.settings() == {"step_size": 0.1, "n_leapfrogs": 10.0}
    for name, value in [("step_size", -1.0), ("n_leapfrogs", 0)]:
        with pytest.raises(ValueError, match=name):
            replace(kernel, **{name: value})
