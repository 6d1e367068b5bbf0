"""Machines: energies, conditional probabilities, likelihoods, and what goes into results."""

import pickle

import numpy as np
import pytest

import pm_evidence as pe
from tests.families.rbm.machines import bits, log_z, sine


def all_states(n):
    return ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(np.uint8)


def test_sums_over_all_states():
    """Free energy, marginal densities and log Z are sums of exp(-E), by brute force."""
    machine = sine(5, 4)
    v, h = all_states(5), all_states(4)
    joint = -np.array([[machine.joint_energy(x[None], y[None])[0] for y in h] for x in v])
    np.testing.assert_allclose(-machine.free_energy(v), np.logaddexp.reduce(joint, axis=1))
    for latent, states, axis in (("visible", v, 1), ("marginal", h, 0)):
        found = sine(5, 4, latent=latent, base="uniform").log_density(states)
        np.testing.assert_allclose(found, np.logaddexp.reduce(joint, axis=axis))
    assert np.logaddexp.reduce(joint.ravel()) == pytest.approx(log_z(5, 4), abs=1e-10)
    weights = np.exp(joint - joint.max())
    given_v = weights / weights.sum(axis=1, keepdims=True)
    given_h = weights / weights.sum(axis=0)
    np.testing.assert_allclose(machine.hidden_probabilities(v), given_v @ h, rtol=1e-10)
    np.testing.assert_allclose(machine.visible_probabilities(h), given_h.T @ v, rtol=1e-10)


def test_average_log_likelihood():
    """Exact with the exact log Z; the direction of the bias is named."""
    machine, states = sine(5, 4), all_states(5)
    exact = pe.LogEvidence(log_z(5, 4), 0.01, "bar", "ok", log_z(5, 4) - 0.02, log_z(5, 4) + 0.03)
    found = machine.log_likelihood(states, exact)
    each = -machine.free_energy(states) - log_z(5, 4)
    assert np.exp(each).sum() == pytest.approx(1.0)
    assert found.value == pytest.approx(each.mean()) and found.mcse == 0.01
    assert found.upper - found.value == pytest.approx(0.02)
    assert found.value - found.lower == pytest.approx(0.03)
    assert found.message == ""
    for name, word in (("jarzynski", "too high"), ("jarzynski_reverse", "too low")):
        one_sided = pe.LogEvidence(1.0, 0.1, name, "heavy_tail", message="few paths.")
        found = machine.log_likelihood(states, one_sided)
        assert found.status == "heavy_tail"
        assert found.message.startswith("few paths. ") and found.message.endswith(f"{word}.")
    with pytest.raises(TypeError, match=r"log_z must be of type LogEvidence, got 3\.0; pass"):
        machine.log_likelihood(states, 3.0)
    with pytest.raises(ValueError, match="visible must hold 0 and 1 only"):
        machine.log_likelihood(states * 2, exact)


def test_base_rates():
    data = np.vstack([np.zeros((3, 16), np.uint8), np.ones((1, 16), np.uint8)])
    np.testing.assert_allclose(sine(data=data, base="data").base_rates[:16], 0.26 / 1.02)
    np.testing.assert_array_equal(sine(data=data, base="data").base_rates[16:], 0.5)
    np.testing.assert_array_equal(sine(base="uniform", data=data).base_rates, 0.5)
    given = np.linspace(0.1, 0.9, 16)
    np.testing.assert_array_equal(sine(base=given).base_rates[:16], given)
    hidden = sine(data=data, latent="marginal", base="data").base_rates
    expected = sine().hidden_probabilities(data).mean(axis=0)
    np.testing.assert_allclose(hidden, (expected + 0.01) / 1.02)
    learnt = sine(data=data).base_rates
    np.testing.assert_array_equal(learnt, sine().base_rates)
    assert (np.abs(learnt[:16] - 0.26 / 1.02) > 0.01).any()


@pytest.mark.parametrize("latent", ["full", "marginal", "visible"])
def test_states_from_data(latent):
    """Visible units are rows of the data, and hidden units are drawn given these."""
    data = bits(3, 16)
    machine = sine(data=data, latent=latent)
    found = machine.states_from_data(4000, np.random.default_rng(1))
    assert found.shape == (4000, machine.n_dim) and found.dtype == np.uint8
    if latent != "marginal":
        assert {tuple(row) for row in found[:, :16]} == {tuple(row) for row in data}
    if latent != "visible":
        exact = machine.hidden_probabilities(data).mean(axis=0)
        np.testing.assert_allclose(found[:, -12:].mean(axis=0), exact, atol=0.04)


def test_what_goes_into_results():
    draws = bits(6, 28)
    found = sine().posterior(draws)
    np.testing.assert_array_equal(found["v"], draws[:, :16])
    np.testing.assert_array_equal(found["h"], draws[:, 16:])
    coords, dims = sine().coords_and_dims()
    assert dims["v"] == ["visible"] and dims["W"] == ["visible", "hidden"]
    assert len(coords["visible"]) == 16 and len(coords["hidden"]) == 12
    np.testing.assert_array_equal(sine().constant_data()["W"], sine().W)
    for latent, name in (("marginal", "h"), ("visible", "v")):
        machine = sine(latent=latent)
        assert list(machine.posterior(draws[:, : machine.n_dim])) == [name]
        assert machine.variables == (name,)
    with pytest.raises(ValueError, match=r"reverse_start must have the shape \(n, 28\)"):
        sine().check(draws[:, :20], "reverse_start")


def test_machines_pickle_without_what_can_be_computed():
    """Process pools and Dask send them to workers with every block."""
    machine = sine(data=bits(3, 16))
    before = machine.layers[0].weights
    again = pickle.loads(pickle.dumps(machine))
    assert "layers" not in again.__dict__
    np.testing.assert_array_equal(again.layers[0].weights, before)
    assert repr(again) == "RBM(16 x 12, latent='full')"
    learnt = sine()
    learnt.annealing_setup("auto")
    again = pickle.loads(pickle.dumps(learnt))
    np.testing.assert_array_equal(again.__dict__["base_rates"], learnt.base_rates)
