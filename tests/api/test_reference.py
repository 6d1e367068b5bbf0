"""Runs from other references than the prior, against exact log evidences."""

import pytest

import pm_evidence as pe
from tests.models import NAMES, Known, shared
from tests.references.densities import InPython
from tests.systems.exact import exact_systems

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")
SYSTEMS = exact_systems()
STUDENT = pe.references.StudentT([0.5], [1.0], dof=5)


def known(name):
    """One of the shared models, or another one whose evidence is exact."""
    if name in NAMES:
        return shared(name)
    return Known(SYSTEMS[name].build(), SYSTEMS[name].log_evidence)


def run(model, reference, seed=1, **kwargs):
    options = {"target_mcse": None, "progressbar": False, "cores": 1, **kwargs}
    return pe.sample_evidence(model, reference=reference, random_seed=seed, **options)


def check(name, reference, **options):
    """Five standard errors, with at least 0.005 nats of an error that is nearly zero."""
    there = known(name)
    found = pe.log_evidence(run(there.model, reference, **options))
    assert found.status == "ok", found
    error = abs(found.value - there.log_evidence)
    assert error < 5.0 * max(found.mcse, 0.005), found
    return found


def slow(*names):
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("reference", ["laplace", "fit"])
@pytest.mark.parametrize(
    "name",
    ["positive", *slow(
        "schools", "eight_schools_pooled", "beta_binomial", "half_cauchy_scale",
        "student_t_likelihood", "ordered_two", "von_mises", "gaussian_10", "potential_and_data",
        "correlated_gaussian_50", "lkj_covariance", "zero_sum",
    )],
)  # fmt: skip
def test_evidence(name, reference):
    """A reference must never change the evidence."""
    check(name, reference)


@pytest.mark.parametrize("name", ["mixed", *slow("sprinkler", "missing_normal")])
def test_evidence_with_discrete_or_imputed_variables(name):
    """Discrete variables keep their prior."""
    check(name, "fit")


@pytest.mark.parametrize(
    "method",
    ["ais", pe.methods.AIS(direction="forward"), "parallel_tempering", "simulated_tempering"],
)
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("positive", "laplace"),
        *(
            pytest.param("ordered_two", reference, marks=pytest.mark.slow)
            for reference in ("laplace", "fit")
        ),
    ],
)
def test_evidence_by_other_methods(name, reference, method):
    """Reverse paths and chains use the same densities in another order."""
    check(name, reference, method=method)


def test_posteriors_and_objects():
    """A posterior and an object of the user's own are references as good as any."""
    check("positive", run(shared("positive").model, "prior"))
    compiled = check("positive", STUDENT)
    own = check("positive", InPython(STUDENT), draws=800)
    assert compiled.value != own.value  # the latter moves by a random walk


def test_the_result_says_what_it_was_annealed_from():
    """A stored run would be estimated as one from the prior, without its check."""
    model = shared("positive").model
    dt = run(model, "fit")
    attrs = dt["log_evidence"].attrs
    assert attrs["reference"] == "fit" and attrs["trial_mcse"] > 0.0
    assert attrs["log_prior_mass"] == 0.0
    assert run(model, "prior")["log_evidence"].attrs["reference"] == "prior"
    found = pe.log_evidence(dt)
    again = pe.estimate(dt)[found.estimator]
    assert again.value == pytest.approx(found.value, abs=1e-12) and again.status == found.status
    assert pe.to_record(dt).facts.reference == "fit"


@pytest.mark.parametrize("method", ["smc", "ais"])
@pytest.mark.parametrize(
    ("name", "mean"),
    [
        ("modes", [3.96]),
        pytest.param("bimodal_10", [2.97] * 10, marks=pytest.mark.slow),
        pytest.param("gaussian_shells", [-0.51, 0, 0, 0, 0], marks=pytest.mark.slow),
    ],
)
def test_a_reference_at_one_mode(name, mean, method):
    """Annealing from one of two modes finds half of the evidence, with a small error."""
    reference = pe.references.StudentT(mean, [0.2] * len(mean), dof=5)
    check(name, reference, method=method)
