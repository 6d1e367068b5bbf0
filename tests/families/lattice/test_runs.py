"""Lattices as users call them: one call, the right answer, honest errors."""

import numpy as np
import pytest
import xarray as xr

import pm_evidence as pe
from pm_evidence.families.lattice.ising import SpinHeatBath
from pm_evidence.families.lattice.target import SwendsenWang
from pm_evidence.testing.lattices import kaufman, transfer_matrix


def sample(target, **kwargs):
    kwargs = {"random_seed": 1, "progressbar": False, "draws": 512, "target_mcse": None} | kwargs
    return pe.sample_evidence(target, **kwargs)


def z_score(target, exact, **kwargs):
    found = pe.log_evidence(sample(target, **kwargs))
    assert found.estimator == "bar" and found.status == "ok"
    return (found.value - exact) / found.mcse


def relative(target):
    """Log Z relative to the uniform distribution."""
    return transfer_matrix(target) - target.log_n_states


LATTICES = {
    "ising": pe.lattices.Ising(6),
    "odd": pe.lattices.Ising(5),
    "free": pe.lattices.Ising((4, 6), periodic=False),
    "antiferromagnet": pe.lattices.Ising(6, coupling=-0.8),
    "in a field": pe.lattices.Ising(6, field=0.05),
    "potts": pe.lattices.Potts(4, q=10),
    "potts at its transition": pe.lattices.Potts(4, q=10, coupling=float(np.log(1 + 10**0.5))),
    "three colours": pe.lattices.Potts(6, q=3, coupling=1.0),
    "repelling colours": pe.lattices.Potts(4, q=3, coupling=-1.0),
}


@pytest.mark.parametrize("name", LATTICES)
def test_one_call_is_right(name):
    target = LATTICES[name]
    assert abs(z_score(target, relative(target), method=pe.methods.AIS(n_stages=300))) < 4.0


def test_defaults_are_right():
    """Without any option; exact by Kaufman's formula."""
    target = pe.lattices.Ising(8)
    exact = kaufman((8, 8), 1.0) - target.log_n_states
    assert abs(z_score(target, exact)) < 4.0


def test_same_numbers_on_any_number_of_threads():
    one, two = (
        sample(pe.lattices.Potts(4), method=pe.methods.AIS(n_stages=30), cores=cores, draws=700)
        for cores in (1, 2)
    )
    for direction in ("forward", "reverse"):
        assert np.array_equal(one["work"][direction], two["work"][direction])


def test_a_kernel_that_cannot_cross_says_so():
    """Clusters on the straight path of many colours: hysteresis, and not a number to rely on."""
    with pytest.warns(pe.EvidenceWarning, match=r"no_overlap|inconsistent"):
        dt = sample(
            pe.lattices.Potts(16, q=10),
            kernel="swendsen_wang",
            method=pe.methods.AIS(n_stages=100),
            draws=128,
        )
    assert pe.log_evidence(dt).status != "ok"


def test_kernels_that_do_not_suit():
    for target, kernel, message in (
        (pe.lattices.Ising(4), "hmc", "kernel must be one of 'auto', 'heat_bath', 'metropolis'"),
        (pe.lattices.Potts(4), "slice_gibbs", "kernel must be one of 'auto', 'heat_bath'"),
        (pe.lattices.Potts(4), SpinHeatBath(), "kernel must be one of auto, heat_bath"),
        (pe.lattices.Ising(4, field=0.1), SwendsenWang(), "must have no field for cluster moves"),
    ):
        with pytest.raises(ValueError, match=message):
            sample(target, kernel=kernel, method=pe.methods.AIS(n_stages=5))


def test_starts_of_the_user():
    """Draws of an earlier run of the same target, as a result or as states alone."""
    target = pe.lattices.Ising(6, coupling=0.4)
    earlier = sample(target, method=pe.methods.AIS(n_stages=100), draws=256)
    for start in (earlier, earlier["posterior"]["x"].values[0]):
        method = pe.methods.AIS(n_stages=100, reverse_start=start)
        assert abs(z_score(target, relative(target), method=method)) < 4.0


def test_starts_of_the_user_must_be_its_states():
    """A KeyError would say neither which argument nor what to pass."""
    target = pe.lattices.Ising(4, coupling=0.4)
    earlier = sample(target, method=pe.methods.AIS(n_stages=20), draws=64)

    other = xr.Dataset({"mu": (("chain", "draw"), np.zeros((1, 20)))})

    def without(group, name):
        broken = earlier.copy()
        broken[group] = xr.DataTree(broken[group].to_dataset().drop_vars(name))
        return broken

    for wanted, start, error, message in (
        (pe.lattices.Ising(4), 3, TypeError, "must be a DataTree"),
        (
            pe.lattices.Ising(4),
            earlier,
            ValueError,
            "must hold states of Ising.*got draws with coupling",
        ),
        (
            pe.lattices.Ising(4),
            np.zeros((5, 4, 4)),
            ValueError,
            "must hold the values -1 or 1 only, got",
        ),
        (pe.lattices.Ising(4), np.ones((5, 3, 4)), ValueError, r"must have shape \(n, 4, 4\)"),
        (target, without("constant_data", "coupling"), ValueError, "got draws with coupling=None"),
        (target, without("posterior", "x"), ValueError, "must hold draws"),
        # both have no observed data, so that their fingerprints agree
        (
            pe.mixtures.Gaussian(),
            xr.DataTree.from_dict({"posterior": other}),
            ValueError,
            r"states of Gaussian\(.*as 'x'",
        ),
    ):
        with pytest.raises(error, match=message):
            sample(wanted, method=pe.methods.AIS(reverse_start=start))


@pytest.mark.slow
def test_habecks_ising_lattice():
    """At the default settings the error is a hundredth of a nat, of 1339."""
    found = pe.log_evidence(
        pe.sample_evidence(pe.lattices.Ising(32), random_seed=1, progressbar=False)
    )
    assert found.status == "ok" and found.mcse < 0.007
    assert abs(found.value - 1339.267076796703) < 4 * found.mcse


@pytest.mark.slow
def test_habecks_potts_lattice():
    found = pe.log_evidence(
        pe.sample_evidence(pe.lattices.Potts(32), random_seed=1, progressbar=False)
    )
    assert found.status == "ok" and found.mcse < 0.04
    assert abs(found.value - 1743.7872) < 4 * found.mcse


# log Z by transfer matrices, absolute, for sum_bonds delta times the coupling
TRANSFER = {
    (3, 1.0): 75.268459042667,
    (3, "critical"): 75.571951800165,
    (3, 2.0): 145.123801548579,
    (10, 1.0): 94.477086773507,
    (10, "critical"): 106.725453258019,
    (10, 2.0): 146.419716818413,
}


@pytest.mark.slow
@pytest.mark.parametrize(("q", "coupling"), TRANSFER)
def test_potts_to_five_thousandths(q, coupling):
    """Below, at and above the transition, by going on until the error is small enough."""
    value = np.log(1.0 + np.sqrt(q)) if coupling == "critical" else coupling
    target = pe.lattices.Potts(6, q=q, coupling=value)
    dt = pe.sample_evidence(target, target_mcse=0.005, random_seed=7, progressbar=False)
    found = pe.log_evidence(dt)
    assert found.status == "ok" and found.mcse <= 0.005
    assert abs(found.value + target.log_n_states - TRANSFER[q, coupling]) < 3.5 * found.mcse
