"""Machines as users call them: one call, the right log Z, honest statuses."""

from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

import numpy as np
import pytest
from scipy import stats

import pm_evidence as pe
from pm_evidence.testing import check_target
from tests.families.rbm.machines import bits, log_z, sine


def sample(machine, seed=1, **kwargs):
    options = {"target_mcse": None, "progressbar": False, "random_seed": seed} | kwargs
    return pe.sample_evidence(machine, **options)


@pytest.mark.parametrize(
    ("size", "latent"),
    [
        ((16, 12), "full"),
        ((30, 16), "marginal"),
        ((16, 12), "visible"),
        *(
            pytest.param((100, 20), k, marks=pytest.mark.slow)
            for k in ("full", "marginal", "visible")
        ),
    ],
)
def test_one_call_finds_the_exact_log_z(size, latent):
    """Exact values by enumeration."""
    dt = sample(sine(*size, latent=latent, data=bits(200, size[0])))
    found = pe.log_evidence(dt)
    assert found.estimator == "bar" and found.status == "ok" and found.mcse <= 0.01
    assert abs(found.value - log_z(*size)) < 3 * found.mcse
    both = pe.estimate(dt, ["jarzynski", "jarzynski_reverse"])
    for each in both.values():
        assert abs(each.value - log_z(*size)) < 4 * each.mcse


@pytest.mark.slow
def test_without_data_reverse_paths_start_from_islands():
    dt = sample(sine(), draws=400)
    assert "island" in dt["work"] and "island" not in sample(sine(data=bits(9, 16)))["work"]
    found = pe.log_evidence(dt)
    assert found.status == "ok" and abs(found.value - log_z()) < 4 * found.mcse


@pytest.mark.slow
def test_conformance():
    check_target(sine(8, 6, data=bits(20, 8)), log_evidence=log_z(8, 6))


def test_same_numbers_on_any_number_of_threads():
    machine = sine(data=bits(20, 16))
    one, two = (sample(machine, draws=300, cores=cores) for cores in (1, 2))
    for name in ("forward", "reverse"):
        np.testing.assert_array_equal(one["work"][name], two["work"][name])


def test_starts_of_the_user():
    """States of both layers, from an earlier result or as an array, of this machine."""
    machine = sine()
    given = sample(sine(data=bits(40, 16)), draws=200)
    states = np.concatenate([given["posterior"][name].values[0] for name in ("v", "h")], axis=1)
    found = pe.log_evidence(sample(machine, method=pe.methods.AIS(reverse_start=states), draws=300))
    assert found.status == "ok" and abs(found.value - log_z()) < 4 * found.mcse
    again = pe.log_evidence(sample(machine, method=pe.methods.AIS(reverse_start=given), draws=300))
    assert again.status == "ok" and abs(again.value - log_z()) < 4 * again.mcse
    with pytest.raises(ValueError, match="reverse_start must hold states of RBM"):
        sample(sine(16, 11), method=pe.methods.AIS(reverse_start=given))
    with pytest.raises(ValueError, match="reverse_start must hold states of RBM"):
        sample(
            sine(latent="marginal"),
            method=pe.methods.AIS(reverse_start=sample(pe.lattices.Ising(4), draws=64)),
        )
    with pytest.raises(ValueError, match=r"reverse_start must have the shape \(n, 28\)"):
        sample(machine, method=pe.methods.AIS(reverse_start=states[:, :16]))


@cache
def deep():
    """A machine with two modes that a uniform reference cannot reach in a few stages."""
    rng = np.random.default_rng(1)
    patterns = rng.integers(2, size=(4, 200))
    W = 0.6 * (2 * patterns.T - 1.0)
    return W, -0.5 * W.sum(axis=1) - 2.0, np.full(4, -20.0)


def test_an_annealing_that_fails_says_so():
    """Far too few stages: whatever is recommended is not called ok."""
    machine = pe.rbm.RBM(*deep(), base="uniform")
    with pytest.warns(pe.EvidenceWarning, match="status"):
        dt = sample(machine, method=pe.methods.AIS(n_stages=5, direction="forward"), draws=100)
    assert pe.log_evidence(dt).status != "ok"


@pytest.mark.slow
@pytest.mark.parametrize("latent", ["full", "marginal"])
def test_intervals_cover(latent):
    """100 seeds; the bounds have a false-alarm rate of 2e-4 each."""
    exact, covered, z = log_z(), 0, []
    for seed in range(100):
        machine = sine(data=bits(200, 16), latent=latent)
        found = pe.log_evidence(
            sample(machine, seed, draws=256, method=pe.methods.AIS(n_stages=200))
        )
        assert found.status == "ok"
        covered += found.lower <= exact <= found.upper
        z.append((found.value - exact) / found.mcse)
    low, high = stats.binom.ppf([2e-4, 1 - 2e-4], 100, 0.95)
    assert low <= covered <= high, covered
    assert 0.75 < np.std(z) < 1.3 and abs(np.mean(z)) < 0.4, (np.mean(z), np.std(z))


@pytest.mark.slow
def test_same_numbers_in_other_processes():
    """Machines, their learnt base rates and their paths go to workers."""
    machine, options = sine(), {"draws": 300, "method": pe.methods.AIS(n_stages=50)}
    for path in ("auto", "moment_average"):
        here = sample(machine, path=path, **options)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
            there = sample(sine(), path=path, executor=executor, **options)
        np.testing.assert_array_equal(here["work"]["forward"], there["work"]["forward"])
        np.testing.assert_array_equal(here["work"]["reverse"], there["work"]["reverse"])


def test_data_that_lack_a_mode_of_the_machine():
    """Two modes, and data of one of them: forward paths know nothing of the data, and find both."""
    weights = np.full((40, 14), 0.35)
    biases = 0.05 - weights.sum(axis=1) / 2, -weights.sum(axis=0) / 2
    machine = pe.rbm.RBM(weights, *biases, data=np.zeros((20, 40)))
    with pytest.warns(pe.EvidenceWarning, match="inconsistent"):
        dt = sample(machine, draws=256)
    assert pe.log_evidence(dt).status == "inconsistent"
