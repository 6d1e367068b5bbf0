"""How machines are annealed by default."""

import warnings

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.families.rbm.gibbs import BlockGibbs
from pm_evidence.families.rbm.metropolis import UnitMetropolis
from pm_evidence.families.rbm.setup import rbm_setup, smoothed, trial_of
from pm_evidence.testing.boltzmann import exact_log_z, exact_moments, sine_rbm
from tests.families.rbm.machines import bits, sine


def test_kernel_by_what_is_annealed():
    for latent, name, kind in (
        ("full", "block_gibbs", BlockGibbs),
        ("marginal", "metropolis", UnitMetropolis),
        ("visible", "metropolis", UnitMetropolis),
    ):
        machine = sine(latent=latent, base="uniform")
        assert isinstance(rbm_setup(machine, "auto").kernel, kind)
        assert rbm_setup(machine, name).kernel == kind()
        assert rbm_setup(machine, kind(n_sweeps=4)).kernel == kind(n_sweeps=4)
    with pytest.raises(ValueError, match="kernel must be 'auto', 'block_gibbs' or a BlockGibbs"):
        rbm_setup(sine(base="uniform"), UnitMetropolis())
    with pytest.raises(ValueError, match="kernel must be one of"):
        rbm_setup(sine(base="uniform"), "hmc")


def test_reverse_paths_start_from_data_where_there_are_some():
    assert rbm_setup(sine(base="uniform"), "auto").starts is None
    starts = rbm_setup(sine(data=bits(30, 16)), "auto").starts
    assert starts(5, np.random.default_rng(1)).shape == (5, 28)


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
    machine = pe.RBM(*parameters, base=np.full(n, 0.999))
    options = {"method": pe.AIS(n_stages=200), "draws": 200, "target_mcse": None}
    with pytest.warns(pe.EvidenceWarning, match="missed_mass"):
        dt = pe.sample_evidence(machine, **options, random_seed=1, progressbar=False)
    exact = exact_log_z(*parameters)
    found = pe.log_evidence(dt)
    assert found.value < exact - 3.0
    assert "short annealing from independent units of rate 1/2" in found.message
    assert pe.estimate(dt)[found.estimator] == found


def test_rates_are_never_certain():
    rates = smoothed(np.array([0.0, 0.5, 1.0]))
    assert 0.0 < rates[0] < 0.05 and rates[1] == 0.5 and rates[2] == pytest.approx(1 - rates[0])


def test_a_default_run_ends_at_a_number_of_paths(monkeypatch):
    """Large machines would otherwise take a quarter of an hour, unless more is asked for."""
    monkeypatch.setattr("pm_evidence.families.rbm.setup._MOST_DRAWS", 40)
    machine = pe.RBM(*sine_rbm(16, 12), base="uniform")
    options = {"method": pe.AIS(n_stages=5), "random_seed": 1, "progressbar": False, "draws": 20}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        short = pe.sample_evidence(machine, **options)
        longer = pe.sample_evidence(machine, **options, max_draws=60)
    assert short["work"].sizes["forward_path"] == 40
    assert longer["work"].sizes["forward_path"] == 60
