"""The path from independent units: its ends, its reference, its constant."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.families.rbm.path import BaseRatePath
from pm_evidence.testing import check_path
from tests.families.rbm.machines import bits, sine


@pytest.mark.parametrize("latent", ["full", "marginal", "visible"])
def test_it_is_a_path(latent):
    rates = np.linspace(0.2, 0.8, 12 if latent == "marginal" else 16)
    check_path(BaseRatePath(sine(base=rates, latent=latent)))


def test_the_reference_is_normalised_and_drawn_exactly():
    """Rates of all visible units in 20,000 draws; false alarms in one of 10,000 seeds."""
    rates = np.linspace(0.05, 0.95, 16)
    path = BaseRatePath(sine(base=rates))
    state = path.draw(20_000, np.random.SeedSequence(3))
    draws = state.to_draws()
    exact = np.append(rates, np.full(12, 0.5))
    z = (draws.mean(axis=0) - exact) / np.sqrt(exact * (1 - exact) / len(draws))
    assert stats.chi2.sf((z**2).sum(), len(z)) > 1e-4
    log_p = stats.bernoulli.logpmf(draws, exact).sum(axis=1)
    np.testing.assert_allclose(state.log_density.base - path.log_base_z, log_p, rtol=1e-10)


def test_log_ratio_is_that_of_the_machine():
    machine = sine(base="uniform")
    path, draws = BaseRatePath(machine), bits(5, 28)
    state = path.at(draws)
    expected = -machine.joint_energy(draws[:, :16], draws[:, 16:]) + 28 * np.log(2.0)
    np.testing.assert_allclose(path.log_ratio(state, 0.0, 1.0), expected, rtol=1e-12)
    order = path.order(state)
    assert (np.diff(state.log_density.target[order]) >= 0).all()
