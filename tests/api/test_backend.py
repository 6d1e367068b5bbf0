"""Runs that JAX evaluates, and what it cannot do, which must be said before anything is run."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py

import pm_evidence as pe
from pm_evidence.api import backend as api_backend
from pm_evidence.core import jax as core_jax
from pm_evidence.testing import exact_systems
from tests.references.densities import InPython

QUIET = {"progressbar": False, "random_seed": 3}


def sampled(name, **options):
    system = exact_systems()[name]
    dt = pe.sample_evidence(system.build(), backend="jax", **QUIET, **options)
    return dt, pe.log_evidence(dt), system.log_evidence


@pytest.mark.parametrize(
    "name",
    ["eight_schools_half_cauchy_centred", "bimodal", "von_mises", "zero_sum", "random_walk"],
)
def test_a_default_run_is_right(name):
    """The right number, its status, its route and what computed it."""
    dt, found, exact = sampled(name)
    assert found.status == "ok"
    assert abs(found.value - exact) < 5.0 * found.mcse
    assert found.mcse <= 0.02
    attrs = dt["log_evidence"].attrs
    assert attrs["backend"] == "jax" and attrs["device"]
    assert attrs["route"] in ("importance", "annealing")


def test_the_same_run_as_with_numba():
    """Both draw the same random numbers, so that only rounding differs."""
    system = exact_systems()["eight_schools_half_normal_centred"]
    runs = [
        pe.sample_evidence(system.build(), backend=name, draws=320, target_mcse=None, **QUIET)
        for name in ("numba", "jax")
    ]
    one, other = (pe.log_evidence(dt) for dt in runs)
    assert other.value == pytest.approx(one.value, abs=1e-6)
    assert other.mcse == pytest.approx(one.mcse, rel=1e-4)
    attrs = [dt["log_evidence"].attrs for dt in runs]
    assert attrs[0]["n_evaluations"] == attrs[1]["n_evaluations"]
    assert attrs[0]["centring"] == attrs[1]["centring"]
    assert (attrs[0]["backend"], "device" in attrs[0]) == ("numba", False)
    for variable in ("mu", "tau", "theta"):
        np.testing.assert_allclose(
            runs[1].posterior[variable], runs[0].posterior[variable], rtol=1e-5, atol=1e-5
        )
    np.testing.assert_allclose(runs[1].sample_stats["lp"], runs[0].sample_stats["lp"], rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "smc", "draws": 320},
        {"method": "ais", "draws": 100},
        {"method": "parallel_tempering", "draws": 640},
        {"kernel": pe.HMC(target_accept=0.7), "draws": 320},
        {"reference": "laplace", "draws": 320},
        {"reference": "fit", "draws": 320},
        {"reference": pe.references.StudentT([0.0], [[4.0]], dof=5), "draws": 320},
        {"reparameterise": False, "draws": 320},
    ],
    ids=lambda options: str(next(iter(options.values()))),
)
def test_other_methods_and_references(options):
    _, found, exact = sampled("normal_mean", target_mcse=None, **options)
    assert abs(found.value - exact) < 5.0 * found.mcse + 1e-6
    assert found.status == "ok"


def test_potentials_that_belong_to_the_prior():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Potential("p", -0.5 * x**2)
        pm.Normal("y", x, 1, observed=1.0)
    dt = pe.sample_evidence(
        model, backend="jax", potentials="prior", draws=320, target_mcse=None, **QUIET
    )
    found = pe.log_evidence(dt)
    exact = -0.5 * np.log(2 * np.pi * 1.5) - 0.5 / 1.5
    assert abs(found.value - exact) < 5.0 * found.mcse


def test_another_process_evaluates_by_jax_too():
    """A worker builds the target anew from the model and the name of the backend."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        _, found, exact = sampled("normal_mean", executor=pool, draws=320, target_mcse=None)
    assert abs(found.value - exact) < 5.0 * found.mcse
    assert found.status == "ok"


# --- what is refused ---


@pytest.fixture
def nothing_runs(monkeypatch):
    """Fails if a refused run comes as far as the density."""
    monkeypatch.setattr(api_backend, "check_gradient", lambda target: pytest.fail("was compiled"))


def refused(error, match, model, **options):
    with pytest.raises(error, match=match):
        pe.sample_evidence(model, **{"backend": "jax", **QUIET, **options})


def normal():
    return exact_systems()["normal_mean"].build()


def test_unknown_backends():
    refused(ValueError, r"backend must be .*'numba'.*'jax'.*got 'cuda'", normal(), backend="cuda")
    refused(ValueError, "backend must be", normal(), backend=None)


def test_jax_that_is_not_installed(monkeypatch, nothing_runs):
    monkeypatch.setattr(core_jax, "find_spec", lambda name: None)
    refused(ImportError, r"pip install 'pm-evidence\[jax\]'", normal())
    pe.sample_evidence(normal(), draws=40, target_mcse=None, **QUIET)  # numba does without


def test_native_targets():
    refused(ValueError, "native targets.*leave backend out", pe.Ising(4))


def test_discrete_variables(nothing_runs):
    with pm.Model() as model:
        k = pm.Poisson("k", 3)
        pm.Normal("y", k, 1, observed=1.0)
    refused(pe.ModelError, r"'k' is discrete; .*pm\.Mixture.*leave backend out", model)


def test_estimated_likelihoods(nothing_runs):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pe.StateSpace(
            "y",
            init=lambda: pm.Normal.dist(mu, 1),
            transition=lambda h, t: pm.Normal.dist(h, 1),
            emission=lambda h, t: pm.Normal.dist(h, 1),
            observed=np.zeros(3),
        )
    refused(pe.ModelError, r"'y' is estimated by pe\.StateSpace", model)


@pytest.mark.parametrize("kernel", ["random_walk", pe.RandomWalk()])
def test_kernels_that_call_compiled_code(kernel, nothing_runs):
    refused(ValueError, "kernel must be 'auto', 'hmc' or a pe.HMC", normal(), kernel=kernel)


@pytest.mark.parametrize("options", [{"method": "resample_move"}, {"path": "data_points"}])
def test_data_points(options, nothing_runs):
    refused(ValueError, "path must be 'auto' or 'geometric'", normal(), **options)


def test_references_in_python(nothing_runs):
    given = InPython(pe.references.Normal([0.0], [[1.0]]))
    refused(ValueError, "reference must be a name", normal(), reference=given)


def test_operations_that_jax_lacks():
    @wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])
    def black_box(x):
        return np.asarray(x)

    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", black_box(x), 1, observed=1.0)
    refused(pe.ModelError, r"black_box.*Leave backend out", model)


def test_a_model_without_a_gradient(monkeypatch):
    """An operation may have code for JAX and no gradient in PyTensor."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", pt.sort(x + np.zeros(2), kind="mergesort")[0], 1, observed=1.0)
    monkeypatch.setattr("pm_evidence.targets.model.target.gradient_graphs", lambda graphs: None)
    refused(pe.ModelError, "needs a gradient", model)
