"""The path from independent units, its populations, and how machines are annealed by default."""

import warnings

import numpy as np
import pytest
from scipy import stats

import pm_evidence as pe
from pm_evidence.families.rbm.gibbs import (
    BaseRatePath,
    BlockGibbs,
    LogDensities,
    UnitMetropolis,
    Units,
    pack,
    unpack,
)
from pm_evidence.families.rbm.target import trial_of
from pm_evidence.testing import check_path
from pm_evidence.testing.boltzmann import exact_log_z, exact_moments, sine_rbm
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


# --- populations ---


@pytest.mark.parametrize("n_units", [1, 63, 64, 65, 200])
def test_packed_and_unpacked(n_units):
    rows = bits(7, n_units)
    words = pack(rows)
    assert words.dtype == np.uint64 and words.shape == (7, -(-n_units // 64))
    np.testing.assert_array_equal(unpack(words, n_units), rows)
    assert bool(words[3, 0] & np.uint64(1)) == bool(rows[3, 0])


def test_members_taken_and_joined():
    """Their log densities go with them."""
    path = BaseRatePath(sine(base="uniform"))
    draws = bits(9, 28)
    state = path.at(draws)
    assert isinstance(state, Units) and isinstance(state.log_density, LogDensities)
    some = state.take(np.array([3, 3, 8]))
    np.testing.assert_array_equal(some.to_draws(), draws[[3, 3, 8]])
    both = some.join([state])
    np.testing.assert_array_equal(both.to_draws(), np.concatenate([draws[[3, 3, 8]], draws]))
    np.testing.assert_array_equal(both.log_density.target[3:], state.log_density.target)
    np.testing.assert_array_equal(both.log_density.base[:3], state.log_density.base[[3, 3, 8]])


# --- how machines are annealed by default ---


def test_kernel_by_what_is_annealed():
    for latent, name, kind in (
        ("full", "block_gibbs", BlockGibbs),
        ("marginal", "metropolis", UnitMetropolis),
        ("visible", "metropolis", UnitMetropolis),
    ):
        machine = sine(latent=latent, base="uniform")
        assert isinstance(machine.annealing_setup("auto").kernel, kind)
        assert machine.annealing_setup(name).kernel == kind()
        assert machine.annealing_setup(kind(n_sweeps=4)).kernel == kind(n_sweeps=4)
    with pytest.raises(ValueError, match="kernel must be one of auto, block_gibbs, or such"):
        sine(base="uniform").annealing_setup(UnitMetropolis())
    with pytest.raises(ValueError, match="kernel must be one of"):
        sine(base="uniform").annealing_setup("hmc")


def test_trial_is_near_the_machine():
    """Exact by enumeration; 512 paths leave an error of about 0.03. The same at every call."""
    exact = exact_moments(*sine_rbm(16, 12))
    trial = trial_of(sine(base="uniform"))
    np.testing.assert_allclose(trial.rates, np.append(exact.visible, exact.hidden), atol=0.15)
    np.testing.assert_array_equal(trial.rates, trial_of(sine(base="uniform")).rates)
    assert abs(trial.log_z - exact_log_z(*sine_rbm(16, 12))) < 5.0 * trial.mcse
    assert 0.0 < trial.mcse < 0.05


def test_a_mode_that_the_reference_excludes_is_noticed():
    """Paths in both directions agree about a mode that neither has seen, and say ok."""
    n = 30  # two modes: nearly all units on, and, a thousand times as probable, nearly all off
    parameters = np.full((n, 1), 4.0), np.full(n, -2.0), np.array([-67.0])
    machine = pe.rbm.RBM(*parameters, base=np.full(n, 0.999))
    options = {"method": pe.methods.AIS(n_stages=200), "draws": 200, "target_mcse": None}
    with pytest.warns(pe.EvidenceWarning, match="missed_mass"):
        dt = pe.sample_evidence(machine, **options, random_seed=1, progressbar=False)
    exact = exact_log_z(*parameters)
    found = pe.log_evidence(dt)
    assert found.value < exact - 3.0
    assert "short annealing from independent units of rate 1/2" in found.message
    assert pe.estimate(dt)[found.estimator] == found


def test_a_default_run_ends_at_a_number_of_paths(monkeypatch):
    """Large machines would otherwise take a quarter of an hour, unless more is asked for."""
    monkeypatch.setattr("pm_evidence.families.rbm.target._MOST_DRAWS", 40)
    machine = pe.rbm.RBM(*sine_rbm(16, 12), base="uniform")
    options = {
        "method": pe.methods.AIS(n_stages=5),
        "random_seed": 1,
        "progressbar": False,
        "draws": 20,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        short = pe.sample_evidence(machine, **options)
        longer = pe.sample_evidence(machine, **options, max_draws=60)
    assert short["work"].sizes["forward_path"] == 40
    assert longer["work"].sizes["forward_path"] == 60
