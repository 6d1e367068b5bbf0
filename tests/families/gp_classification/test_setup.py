"""What is annealed by default, and the runs that users make."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.families.gp_classification.elliptical import EllipticalSlice
from pm_evidence.families.gp_classification.gibbs import SliceGibbs
from pm_evidence.families.gp_classification.hamiltonian import LatentHMC
from pm_evidence.families.gp_classification.riemannian import RiemannianHMC
from pm_evidence.families.gp_classification.setup import gp_setup
from pm_evidence.kernels.growing import Grows
from pm_evidence.testing import check_target
from tests.families.gp_classification.problems import curve, one_factor, pair, triple


def sample(target, **options):
    options = {"target_mcse": None, "progressbar": False, "random_seed": 1} | options
    return pe.sample_evidence(target, **options)


@pytest.mark.parametrize("method", ["smc", "ais"])
@pytest.mark.parametrize("problem", [pair(1.0), pair(-2.0), triple(), one_factor(12)])
def test_sequences_find_the_exact_evidence(method, problem):
    """Orthant probabilities in closed form and by quadrature, forward and in both directions."""
    target, exact = problem
    found = pe.log_evidence(sample(target, method=method, draws=25_000))
    assert found.status == "ok" and found.mcse <= 0.01
    assert abs(found.value - exact) < 3.0 * found.mcse


@pytest.mark.parametrize("reference", ["prior", "ep"])
@pytest.mark.parametrize("problem", [pair, triple, one_factor])
def test_latent_values_find_the_exact_evidence(reference, problem):
    """The same probabilities from the other representation, in both directions."""
    given = (1.0,) if problem is pair else ()
    target, exact = problem(*given, representation="latent", reference=reference)
    found = pe.log_evidence(sample(target, draws=3000, random_seed=2))
    assert found.estimator == "bar" and found.status == "ok" and found.mcse <= 0.01
    assert abs(found.value - exact) < 3.0 * found.mcse


@pytest.mark.parametrize("method", ["resample_move", "arm"])
def test_resample_move_finds_the_exact_evidence(method):
    target, exact = one_factor(12)
    found = pe.log_evidence(sample(target, method=method, draws=16_000))
    assert found.status == "ok" and abs(found.value - exact) < 3.0 * found.mcse


@pytest.mark.parametrize("order", ["given", "random", "informative"])
def test_any_order_is_right(order):
    target, exact = one_factor(12, order=order)
    found = pe.log_evidence(sample(target))
    assert found.status == "ok" and abs(found.value - exact) < 4.0 * found.mcse


def test_results_hold_the_values_and_labels():
    target = curve(6)
    dt = sample(target, draws=200)
    z = dt["posterior"]["z"]
    assert z.dims[-1] == "point" and (np.sign(z.values) == target.signs).all()
    assert (dt["observed_data"]["y"].values == target.signs).all()
    assert sorted(dt["constant_data"]["order"].values) == list(range(6))


def test_same_numbers_on_any_number_of_threads():
    target = curve(8)
    one, two = (sample(target, draws=400, cores=cores) for cores in (1, 2))
    np.testing.assert_array_equal(one["work"]["forward"], two["work"]["forward"])


def test_kernels_of_a_sequence():
    target, mine = curve(4), SliceGibbs(n_sweeps=3)
    for kernel in ("auto", "slice_gibbs"):
        assert gp_setup(target, kernel).kernel == Grows(SliceGibbs())
    assert gp_setup(target, mine).kernel == gp_setup(target, Grows(mine)).kernel == Grows(mine)
    for kernel in ("hmc", pe.HMC()):
        with pytest.raises(ValueError, match="kernel must be"):
            gp_setup(target, kernel)


def test_kernels_of_latent_values():
    target = curve(4, representation="latent", jitter=0.01)
    assert gp_setup(target, "auto").kernel == gp_setup(target, "hmc").kernel == LatentHMC()
    assert gp_setup(target, "elliptical_slice").kernel == EllipticalSlice()
    assert gp_setup(target, "riemannian_hmc").kernel == RiemannianHMC()
    assert gp_setup(target, LatentHMC(0.1)).kernel == LatentHMC(0.1)
    for kernel in ("slice_gibbs", SliceGibbs()):
        with pytest.raises(ValueError, match="kernel must be"):
            gp_setup(target, kernel)


@pytest.mark.parametrize("reference", ["prior", "ep"])
def test_conformance_of_latent_values(reference):
    """What every target has to do, by the checks that users have for theirs."""
    target, exact = one_factor(4, representation="latent", reference=reference)
    check_target(target, log_evidence=exact)
