"""What is annealed by default, and the runs that users make."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.families.gp_classification.gibbs import SliceGibbs
from pm_evidence.families.gp_classification.setup import gp_setup
from pm_evidence.kernels.growing import Grows
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
