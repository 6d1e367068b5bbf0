"""Runs that JAX evaluates, and what it cannot do, which must be said before anything is run."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py

import pm_evidence as pe
from pm_evidence.api import arguments as api_backend
from pm_evidence.core import jax as core_jax
from tests.models import Known, shared
from tests.references.densities import InPython
from tests.systems.exact import exact_systems

QUIET = {"progressbar": False, "random_seed": 3}
SHORT = {"draws": 320, "target_mcse": None}


def check(known, **options):
    """Run by JAX, and compare with the exact log evidence."""
    dt = pe.sample_evidence(known.model, backend="jax", **QUIET, **options)
    found = pe.log_evidence(dt)
    assert found.status == "ok"
    assert abs(found.value - known.log_evidence) < 5.0 * found.mcse + 1e-6
    return dt, found


OTHERS = ["eight_schools_half_cauchy_centred", "von_mises", "zero_sum", "random_walk"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["modes", *OTHERS])
def test_a_default_run_is_right(name):
    """The right number, its status, its route and what computed it."""
    system = exact_systems().get(name)
    known = Known(system.build(), system.log_evidence) if system else shared(name)
    dt, found = check(known)
    assert found.mcse <= 0.02
    attrs = dt["log_evidence"].attrs
    assert attrs["backend"] == "jax" and attrs["device"]
    assert attrs["route"] in ("importance", "annealing")


@pytest.mark.slow
def test_the_same_run_as_with_numba():
    """Both draw the same random numbers, so that only rounding differs."""
    runs = [
        pe.sample_evidence(shared("schools").model, backend=name, **SHORT, **QUIET)
        for name in ("numba", "jax")
    ]
    one, other = (pe.log_evidence(dt) for dt in runs)
    assert other.value == pytest.approx(one.value, abs=1e-6)
    assert other.mcse == pytest.approx(one.mcse, rel=1e-4)
    attrs = [dt["log_evidence"].attrs for dt in runs]
    assert attrs[0]["n_evaluations"] == pytest.approx(attrs[1]["n_evaluations"], rel=1e-3)
    assert attrs[0]["centring"] == attrs[1]["centring"]
    assert (attrs[0]["backend"], "device" in attrs[0]) == ("numba", False)
    for variable in ("mu", "tau", "theta"):
        np.testing.assert_allclose(
            runs[1].posterior[variable], runs[0].posterior[variable], rtol=1e-5, atol=1e-5
        )
    np.testing.assert_allclose(runs[1].sample_stats["lp"], runs[0].sample_stats["lp"], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"method": "smc"},
        {"method": "ais", "draws": 100},
        {"method": "parallel_tempering", "draws": 640},
        {"kernel": pe.kernels.HMC(target_accept=0.7)},
        {"reference": "laplace"},
        {"reference": "fit"},
        {"reference": pe.references.StudentT([0.0], [[4.0]], dof=5)},
        {"reparameterise": False},
    ],
    ids=str,
)
def test_other_methods_and_references(options):
    check(shared("normal"), **SHORT | options)


@pytest.mark.slow
def test_another_process_evaluates_by_jax_too():
    """A worker builds the target anew from the model and the name of the backend."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        check(shared("normal"), executor=pool, **SHORT)


# --- what is refused ---


@pytest.fixture
def nothing_runs(monkeypatch):
    """Fails if a refused run comes as far as the density."""
    monkeypatch.setattr(api_backend, "check_gradient", lambda target: pytest.fail("was compiled"))


def refused(error, match, model=None, **options):
    model = shared("normal").model if model is None else model
    with pytest.raises(error, match=match):
        pe.sample_evidence(model, **{"backend": "jax", **QUIET, **options})


def test_jax_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(core_jax, "find_spec", lambda name: None)
    refused(ImportError, r"pip install 'pm-evidence\[jax\]'")
    # numba does without
    pe.sample_evidence(shared("normal").model, draws=40, target_mcse=None, **QUIET)


def test_models_without_a_density_that_jax_can_evaluate(nothing_runs):
    message = r"discrete; .*pm\.Mixture.*leave backend out"
    refused(pe.ModelError, message, shared("discrete").model)
    refused(pe.ModelError, r"'y' is estimated by pe\.StateSpace", shared("states").model)


def test_options_that_need_compiled_code_or_python(nothing_runs):
    for kernel in ("random_walk", pe.kernels.RandomWalk()):
        refused(ValueError, "kernel must be 'auto', 'hmc' or a pe.kernels.HMC", kernel=kernel)
    for options in ({"method": "resample_move"}, {"path": "data_points"}):
        refused(ValueError, "path must be 'auto' or 'geometric'", **options)
    given = InPython(pe.references.Normal([0.0], [[1.0]]))
    refused(ValueError, "reference must be a name", reference=given)


def test_operations_that_jax_lacks():
    @wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])
    def black_box(x):
        return np.asarray(x)

    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", black_box(x), 1, observed=1.0)
    refused(pe.ModelError, r"black_box.*Leave backend out", model)
