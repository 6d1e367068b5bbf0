"""Trajectories of a whole population by JAX, against those of numba with the same streams.

``test_conformance`` checks invariance and reversal of the same kernels.
"""

from dataclasses import replace

import numpy as np
import pytest

from pm_evidence.core.random import streams
from pm_evidence.kernels import jax_trajectories
from pm_evidence.kernels.hmc import HMC
from pm_evidence.testing.invariance import check_invariance
from tests.kernels.exact import SYSTEMS, fitted

N = 60


def moved(kernel, system, start, beta=0.5):
    chains = streams(np.random.SeedSequence(1), len(start))
    state, info = kernel.advance(SYSTEMS[system]().path, start, beta, chains)
    return state, info, chains


@pytest.mark.parametrize("system", ["gaussian", "circle"])
@pytest.mark.parametrize("name", ["hmc-dense", "hmc-diagonal", "hmc-exploring"])
def test_the_same_move_as_numba(system, name):
    """The same streams give the same momenta, step sizes and decisions."""
    kernel = fitted(system, name, 0.5)
    start = SYSTEMS[system]().population(0.5, N, seed=2)
    one, info, chains = moved(kernel, system, start)
    other, by_jax, other_chains = moved(kernel, f"{system} by jax", start)
    np.testing.assert_allclose(other.x, one.x, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(other.log_density, one.log_density, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(other.gradient, one.gradient, rtol=1e-9, atol=1e-9)
    assert np.array_equal(chains, other_chains)
    assert by_jax.acceptance == pytest.approx(info.acceptance, rel=1e-10)
    assert (by_jax.n_evaluations, by_jax.n_nan) == (info.n_evaluations, info.n_nan)
    assert by_jax.reach == info.reach


def test_a_density_of_nan_is_rejected_and_counted():
    """Random numbers differ from those of numba here, which draws none for the decision."""
    start = SYSTEMS["holes by jax"]().population(0.5, N, seed=2)
    kernel = HMC(step_size=1.5, path_length=4.5)
    one, info, _ = moved(kernel, "holes", start)
    other, by_jax, _ = moved(kernel, "holes by jax", start)
    assert by_jax.n_nan == info.n_nan > 5
    np.testing.assert_allclose(other.x, one.x, rtol=1e-10)
    assert (other.x > 0.0).all()


def test_members_of_weight_zero_are_not_moved():
    """They have no density from which a trajectory could start."""
    start = SYSTEMS["gaussian by jax"]().population(0.5, N, seed=2)
    start.log_density[5] = -np.inf, 0.0
    start.log_density[6, 1] = np.nan
    state, info, _ = moved(HMC(), "gaussian by jax", start)
    stays = (state.x == start.x).all(axis=1)
    assert stays[[5, 6]].all() and stays.mean() < 0.5
    assert info.n_nan == 0
    assert np.isfinite(np.delete(state.log_density, [5, 6], axis=0)).all()


def test_one_member_and_many():
    """Populations are padded to few sizes, and cut into blocks."""
    exact = SYSTEMS["gaussian by jax"]()
    start = exact.population(0.5, 3000, seed=2)
    kernel = HMC().learn(exact.path, start)
    whole = moved(kernel, "gaussian by jax", start)[0]
    chains = streams(np.random.SeedSequence(1), 3000)
    for rows in ([0], [17, 2999], range(100, 109)):
        index = np.array(rows)
        part = kernel.advance(exact.path, start.take(index), 0.5, chains[index].copy())[0]
        np.testing.assert_allclose(part.x, whole.x[index], rtol=1e-10, atol=1e-10)


def test_a_wrong_leapfrog_is_caught(monkeypatch):
    """Without the last half step of the momentum a proposal is not reversible."""
    leapfrog = jax_trajectories._leapfrog

    def too_short(density, x, log_density, gradient, momentum, *others):
        *rest, last = leapfrog(density, x, log_density, gradient, momentum, *others)
        return *rest, 0.0 * last

    monkeypatch.setattr(jax_trajectories, "_leapfrog", too_short)
    kernel = replace(fitted("gaussian by jax", "hmc-dense", 1.0), step_size=1.4)
    exact = SYSTEMS["gaussian by jax"]()
    with pytest.raises(AssertionError, match="invariant"):
        check_invariance(kernel, exact.path, exact.population(1.0, 5000, seed=1), 1.0)
