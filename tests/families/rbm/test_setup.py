"""How machines are annealed by default."""

import warnings

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.families.rbm.gibbs import BlockGibbs
from pm_evidence.families.rbm.metropolis import UnitMetropolis
from pm_evidence.families.rbm.setup import learnt_rates, rbm_setup, smoothed
from pm_evidence.testing.boltzmann import exact_moments, sine_rbm
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


def test_learnt_rates_are_near_those_of_the_machine():
    """Exact by enumeration; 256 paths leave an error of about 0.03. The same at every call."""
    exact = exact_moments(*sine_rbm(16, 12))
    rates = learnt_rates(sine(base="uniform"))
    np.testing.assert_allclose(rates, np.append(exact.visible, exact.hidden), atol=0.15)
    np.testing.assert_array_equal(rates, learnt_rates(sine(base="uniform")))


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
