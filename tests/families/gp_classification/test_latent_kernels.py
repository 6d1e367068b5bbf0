"""The kernels of latent values: Hamiltonian Monte Carlo in two forms."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from pm_evidence.core.random import streams
from pm_evidence.families.gp_classification import latent as riemannian
from pm_evidence.families.gp_classification.latent import (
    METRICS,
    LatentHMC,
    RiemannianHMC,
)
from pm_evidence.gp import GPClassification
from pm_evidence.testing import check_kernel
from tests.families.gp_classification.latent import exact, problem


@pytest.mark.parametrize("metric", METRICS)
def test_hmc_conserves_the_energy_in_small_steps(metric):
    """A wrong gradient would reject, and a wrong density would accept what it should not."""
    path = problem("prior")
    state, chains = exact(path, 0.7, 50), streams(np.random.SeedSequence(1), 50)
    kernel = LatentHMC(0.01, 100, metric)
    moved, info = kernel.advance(path, state, 0.7, chains)
    assert info.acceptance > 0.999 and info.n_evaluations == 50 * 101
    assert (moved.x != state.x).all()


@dataclass(frozen=True)
class MisledHMC(LatentHMC):
    """A planted error: trajectories are those of another inverse temperature."""

    def advance(self, path, state, beta, chains):
        return super().advance(path, state, 0.8 * beta, chains)


@pytest.mark.parametrize("reference", ["prior", "ep"])
def test_slopes_are_those_of_the_hamiltonian(reference):
    """By differences, with the terms of the metric's derivative."""
    path = problem(reference, 4)
    rng = np.random.default_rng(1)
    x, momentum, step = 2.0 * rng.standard_normal(4), rng.standard_normal(4), 1e-5
    (slope,) = riemannian._Points(path, 0.6, x[None]).slope(momentum[None])
    for i in range(4):
        shift = step * np.eye(4)[i]
        above, below = (
            riemannian._Points(path, 0.6, (x + sign * shift)[None]).hamiltonian(momentum[None])[0]
            for sign in (1, -1)
        )
        assert slope[i] == pytest.approx((above - below) / (2.0 * step), rel=1e-6, abs=1e-7)


def test_trajectories_run_backwards():
    """With the momentum turned round, implicit steps come back to their start."""
    path = problem("prior", 4)
    starts = np.array([[0.5, -1.0, 2.0, 0.1], [3.0, 1.0, -2.0, 0.0]])
    here = riemannian._Points(path, 1.0, starts)
    momentum = here.momentum(np.random.default_rng(2).standard_normal((2, 8)))
    half, kicked = riemannian._half_kicked(here, momentum, 0.3)
    x, moved = riemannian._moved(here, half, 0.3)
    there = riemannian._Points(path, 1.0, x)
    end = half - 0.15 * there.slope(half)
    half, kicked_back = riemannian._half_kicked(there, -end, 0.3)
    x, moved_back = riemannian._moved(there, half, 0.3)
    back = riemannian._Points(path, 1.0, x)
    assert (kicked & moved & kicked_back & moved_back).all()
    np.testing.assert_allclose(back.x, here.x, atol=1e-6)
    np.testing.assert_allclose(half - 0.15 * back.slope(half), -momentum, atol=1e-6)


def test_steps_are_found_where_the_metric_changes_much():
    """A prior of amplitude 150, where a label gives no information but near 0."""
    inputs = np.linspace(-2.0, 2.0, 30)
    options = {"amplitude": 150.0, "length_scale": 0.3, "representation": "latent"}
    target = GPClassification(inputs, np.sin(3.0 * inputs) > 0.0, reference="ep", **options)
    path, beta, step = target.annealing_setup("auto").path, 0.5, 0.1
    state = path.draw(20, np.random.SeedSequence(1))
    here = riemannian._Points(path, beta, state.x)
    momentum = here.momentum(np.random.default_rng(1).standard_normal((20, 60)))
    x, found = riemannian._moved(here, momentum, step)
    assert found.sum() >= 19  # iterations for one of the states do not end
    there = riemannian._Points(path, beta, x)
    assert (np.abs(there.d - here.d) * 150.0**2 > 10.0).any(axis=1).sum() > 5
    middle = 0.5 * (here.velocity(momentum) + there.velocity(momentum))
    ends = here.x + step * middle
    np.testing.assert_allclose(x[found], ends[found], atol=1e-6 * np.abs(x).max())


def test_riemannian_steps_conserve_the_energy():
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
class MisledRiemannian(RiemannianHMC):
    """A planted error: trajectories are those of another inverse temperature."""

    def advance(self, path, state, beta, chains):
        return super().advance(path, state, 0.1 * beta, chains)


# Kernel, reference, inverse temperature and members; and the kernel with its planted error.
KERNELS = {
    "gaussian": (LatentHMC(0.5, 3, "gaussian"), "prior", 0.7, 20_000),
    "gaussian-ep": (LatentHMC(0.5, 3, "gaussian"), "ep", 0.7, 20_000),
    "identity": (LatentHMC(0.4, 3, "identity"), "prior", 0.7, 20_000),
    "riemannian": (RiemannianHMC(0.7, 1), "prior", 0.7, 400),
    "riemannian-ep": (RiemannianHMC(0.7, 1), "ep", 0.7, 400),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(k, marks=pytest.mark.slow if "riemannian" in k else ()) for k in KERNELS],
)
def test_it_is_a_kernel(name):
    """Invariance, reversal and streams, by the checks that users have for theirs."""
    kernel, reference, beta, n = KERNELS[name]
    path = problem(reference, 2 if name.startswith("riemannian") else 4)
    check_kernel(kernel, path, exact(path, beta, n), beta)


def test_planted_errors_are_found():
    for kernel, n_points, n in (
        (MisledHMC(), 4, 20_000),
        (MisledRiemannian(0.7, 1), 2, 500),
    ):
        path = problem("prior", n_points)
        with pytest.raises(AssertionError):
            check_kernel(kernel, path, exact(path, 1.0, n), 1.0)


def test_settings_and_bad_arguments():
    assert LatentHMC().settings() == {"step_size": 0.4, "n_leapfrogs": 4.0}
    assert RiemannianHMC().settings() == {"step_size": 0.1, "n_leapfrogs": 10.0}
    for kernel, name, value in (
        (LatentHMC(), "step_size", 0.0),
        (LatentHMC(), "n_leapfrogs", 0),
        (LatentHMC(), "metric", "dense"),
        (RiemannianHMC(), "step_size", -1.0),
        (RiemannianHMC(), "n_leapfrogs", 0),
    ):
        with pytest.raises(ValueError, match=name):
            replace(kernel, **{name: value})
