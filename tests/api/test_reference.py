"""Runs from other references than the prior, against exact log evidences."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.testing import exact_systems
from tests.references.densities import InPython

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")
SYSTEMS = exact_systems()


def run(name, reference, seed=1, **kwargs):
    options = {"target_mcse": None, "progressbar": False, "cores": 1, **kwargs}
    return pe.sample_evidence(
        SYSTEMS[name].build(), reference=reference, random_seed=seed, **options
    )


def check(dt, name):
    """Five standard errors, with at least 0.005 nats of an error that is nearly zero."""
    found = pe.log_evidence(dt)
    assert found.status == "ok", found
    error = abs(found.value - SYSTEMS[name].log_evidence)
    assert error < 5.0 * max(found.mcse, 0.005), found
    return found


@pytest.mark.parametrize("reference", ["laplace", "fit"])
@pytest.mark.parametrize(
    "name",
    ["eight_schools_pooled", "beta_binomial", "half_cauchy_scale", "student_t_likelihood",
     "ordered_two", "von_mises", "gaussian_10", "potential_and_data"],
)  # fmt: skip
def test_evidence(name, reference):
    """A reference must never change the evidence."""
    check(run(name, reference), name)


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["laplace", "fit"])
@pytest.mark.parametrize("name", ["correlated_gaussian_50", "lkj_covariance", "zero_sum"])
def test_evidence_of_larger_models(name, reference):
    """A reference must never change the evidence."""
    check(run(name, reference), name)


@pytest.mark.parametrize("name", ["spike_and_slab", "sprinkler", "missing_normal"])
def test_evidence_with_discrete_or_imputed_variables(name):
    """Discrete variables keep their prior."""
    check(run(name, "fit"), name)


@pytest.mark.parametrize(
    "method", ["ais", pe.AIS(direction="forward"), "parallel_tempering", "simulated_tempering"]
)
@pytest.mark.parametrize("reference", ["laplace", "fit"])
def test_evidence_by_other_methods(method, reference):
    """Reverse paths and chains use the same densities in another order."""
    check(run("ordered_two", reference, method=method), "ordered_two")


def test_posteriors_and_objects():
    """A posterior and an object of the user's own are references as good as any."""
    first = run("beta_binomial", "prior")
    check(run("beta_binomial", first), "beta_binomial")
    student = pe.references.StudentT([0.0], [2.0], dof=5)
    compiled = check(run("beta_binomial", student), "beta_binomial")
    own = check(run("beta_binomial", InPython(student), draws=800), "beta_binomial")
    assert compiled.value != own.value  # the latter moves by a random walk


def test_potentials_of_the_prior():
    """The constant of a prior with potentials is estimated from the prior as before."""
    exact = pe.log_evidence(run("potential_and_data", "prior", potentials="prior"))
    found = pe.log_evidence(run("potential_and_data", "laplace", potentials="prior"))
    assert abs(found.value - exact.value) < 5.0 * np.hypot(found.mcse, exact.mcse)


def test_the_result_says_what_it_was_annealed_from(tmp_path):
    """A stored run would be estimated as one from the prior, without its check."""
    dt = run("gaussian_10", "fit")
    attrs = dt["log_evidence"].attrs
    assert attrs["reference"] == "fit" and attrs["trial_mcse"] > 0.0
    assert run("gaussian_10", "prior")["log_evidence"].attrs["reference"] == "prior"
    found = pe.log_evidence(dt)
    again = pe.estimate(dt)[found.estimator]
    assert again.value == pytest.approx(found.value, abs=1e-12) and again.status == found.status
    assert pe.to_record(dt).info["reference"] == "fit"


def test_cores_do_not_change_the_result():
    """Parallel runs equal serial ones, bit for bit, the fit of the reference included."""
    one, two = (run("ordered_two", "fit", cores=cores) for cores in (1, 2))
    assert pe.log_evidence(one) == pe.log_evidence(two)


@pytest.mark.parametrize("method", ["smc", "ais"])
@pytest.mark.parametrize(
    ("name", "mean"),
    [("bimodal", [3.96]), ("bimodal_10", [2.97] * 10), ("gaussian_shells", [-0.51, 0, 0, 0, 0])],
)
def test_a_reference_at_one_mode(name, mean, method):
    """Annealing from one of two modes finds half of the evidence, with a small error."""
    reference = pe.references.StudentT(mean, [0.2] * len(mean), dof=5)
    check(run(name, reference, method=method), name)


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["laplace", "fit"])
@pytest.mark.parametrize("name", ["bimodal", "bimodal_10", "gaussian_shells"])
def test_modes_in_twenty_seeds(name, reference):
    """A status of ok must mean that the evidence is right.

    With normal errors, one of 20 runs is off by more than 5 standard errors in 1 of 80,000 cases.
    """
    for seed in range(20):
        found = pe.log_evidence(run(name, reference, seed=100 + seed))
        error = abs(found.value - SYSTEMS[name].log_evidence)
        assert found.status != "ok" or error < 5.0 * max(found.mcse, 0.005), (seed, found)
