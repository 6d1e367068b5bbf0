"""What evaluates a model: NumPy and compiled code give the same run, and a rule chooses."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.runs import defaults as evaluators
from pm_evidence.runs import routes
from pm_evidence.runs.defaults import (
    compiled_if_long,
    expected_evaluations,
    grown_effort,
    model_target,
)
from pm_evidence.runs.rounds import Limits
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.smc import SMC
from pm_evidence.samplers.tempering import ParallelTempering
from pm_evidence.targets.compile.numba_density import CompiledDensity
from pm_evidence.targets.compile.numpy_density import NumpyDensity
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.plates.target import PlateTarget
from tests.models import loop, shared
from tests.references.densities import InPython

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

QUIET = {"progressbar": False, "random_seed": 3, "cores": 1}
SHORT = {"draws": 320, "target_mcse": None}
GROUPS = ("posterior", "log_evidence", "work", "annealing")
ERRORS = 4.4


def run(name, **options):
    model = shared(name).model if isinstance(name, str) else name
    return pe.sample_evidence(model, **QUIET | options)


def backend_of(dt):
    return dt["log_evidence"].attrs["backend"]


# --- the same run ---


def check_same(one, other, atol=1e-8):
    """The same estimates, evaluations and draws, but for rounding.

    The last digit may decide when an ascent ends, which changes nothing but the number of steps.
    """
    found, expected = (pe.log_evidence(dt) for dt in (one, other))
    assert found.value == pytest.approx(expected.value, abs=atol)
    assert found.mcse == pytest.approx(expected.mcse, rel=1e-5, abs=atol)
    assert found.status == expected.status
    attrs = [dt["log_evidence"].attrs for dt in (one, other)]
    n, same = (each["n_evaluations"] for each in attrs)
    assert abs(n - same) <= 1e-3 * same
    for fact in ("n_nan", "route", "centring"):
        assert attrs[0].get(fact) == attrs[1].get(fact), fact
    for name, values in other.posterior.data_vars.items():
        np.testing.assert_allclose(one.posterior[name], values, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["schools", "modes", "support", "several"])
def test_numpy_and_numba_make_the_same_default_run(name):
    """All of a run: the survey, ascents, fits, and what certifies it."""
    one, other = (run(name, backend=backend) for backend in ("numpy", "numba"))
    check_same(one, other, atol=1e-6)


@pytest.mark.filterwarnings("ignore::pm_evidence.EvidenceWarning")  # of R-hat
def test_posterior_draws_of_others_are_bridged_by_numpy():
    """A bridge needs few evaluations."""
    given = run("line", backend="numba", **SHORT | {"draws": 1600})
    dt = pe.bridge_sampling(given, shared("line").model, random_seed=1, progressbar=False)
    found = pe.log_evidence(dt)
    assert backend_of(dt) == "numpy"
    assert abs(found.value - shared("line").log_evidence) < ERRORS * found.mcse + 1e-6


# --- results do not depend on what runs in parallel ---


def check_identical(one, other):
    for group in GROUPS:
        first, second = (dt[group].to_dataset().drop_attrs() for dt in (one, other))
        assert first.identical(second), group
    assert pe.log_evidence(one).value == pe.log_evidence(other).value


@pytest.mark.slow
def test_another_process_evaluates_by_numpy_too():
    """A worker builds the target anew from the model and the name of the backend."""
    one = run("schools", backend="numpy", **SHORT)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        check_identical(one, run("schools", backend="numpy", executor=pool, **SHORT))


# --- what chooses ---


@pytest.fixture
def nothing_is_long(monkeypatch):
    """All work is short: what is compiled all the same needs it."""
    monkeypatch.setattr(evaluators, "_MOST", 1e300)


def test_small_models_are_evaluated_by_numpy():
    """The default: nothing is compiled, and the result says so."""
    dt = run("line")
    assert backend_of(dt) == "numpy"
    assert dt["log_evidence"].attrs["route"] == "importance"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("discrete", {}),
        ("mixed", {}),
        ("states", {"draws": 40}),
        ("loop", {}),
        ("normal", {"compile_kwargs": {"profile": False}}),
        ("normal", {"method": "parallel_tempering", "draws": 640}),
        ("normal", {"kernel": "random_walk"}),
        ("normal", {"method": "resample_move"}),
        ("normal", {"reference": "of a user's own"}),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::pm_evidence.EvidenceWarning")
def test_what_needs_compiled_code_has_it(name, options, nothing_is_long):
    """NumPy could not do it, would be slow, or the user says how to compile."""
    model = loop() if name == "loop" else shared(name).model
    if options.get("reference") == "of a user's own":
        options = {"reference": InPython(pe.references.Normal([0.0], [[1.0]]))}
    assert backend_of(run(model, **SHORT | options)) == "numba"


def test_of_a_loop_the_density_alone_is_compiled():
    """Kernels and references work on arrays, and the run is that of compiled ones."""
    model = loop()
    one, other = run(model), run(model, backend="numba")
    check_same(one, other, atol=1e-6)
    target = model_target(model, "auto", 1e4, {}, reparameterise=True)
    assert isinstance(target.differentiable, NumpyDensity)
    assert target.differentiable.by_rows
    assert target.compiled_for() == {"backend": "numba"}
    assert isinstance(compiled_if_long(target, np.inf).differentiable, CompiledDensity)


def test_the_second_route_is_compiled(monkeypatch):
    """Annealing needs so many more evaluations; the numbers are those of a compiled run.

    The limit lies between the two routes of this model, whose first one does not certify itself.
    """
    density = target_of(shared("modes").model, backend="numpy").differentiable
    each = density.n_numbers + evaluators._PER_POINT
    options = {"target_mcse": 0.004}
    first = expected_evaluations(SMC(), Limits(target_mcse=0.004), is_short=True)
    monkeypatch.setattr(evaluators, "_MOST", each * first)
    monkeypatch.setattr(routes._Routes, "ended", property(lambda self: len(self.taken) > 1))
    dt = run("modes", **options)
    assert dt["log_evidence"].attrs["route"] == "annealing"
    assert backend_of(dt) == "numba"


def test_expected_evaluations():
    """More for smaller errors; without end where chains move step by step."""
    usual, none = Limits(target_mcse=0.02), Limits(target_mcse=None)
    assert expected_evaluations(SMC(), usual, is_short=True) == evaluators._FIRST
    assert expected_evaluations(SMC(), usual, is_short=False) == evaluators.ANNEALING
    assert expected_evaluations(AIS(), none, is_short=False) == evaluators.ANNEALING
    small = expected_evaluations(SMC(), Limits(target_mcse=0.002), is_short=False)
    assert small == pytest.approx(10 * evaluators.ANNEALING)
    assert expected_evaluations(SMC(), Limits(target_mcse=1.0), is_short=True) == evaluators._FIRST
    tiny = expected_evaluations(SMC(), Limits(target_mcse=1e-9), is_short=True)
    assert tiny == grown_effort(1e-9) * evaluators._FIRST > evaluators._FIRST
    assert expected_evaluations(ParallelTempering(), usual, is_short=False) == np.inf
    assert expected_evaluations(ParallelTempering(), usual, is_short=True) == evaluators._FIRST


def test_a_target_is_compiled_in_the_coordinates_that_it_has(monkeypatch):
    """The second route would otherwise begin in others than the first has chosen."""
    target = target_of(shared("schools").model, reparameterise=True, backend="numpy")
    assert isinstance(target.differentiable, NumpyDensity)
    assert compiled_if_long(target, 1.0) is target
    moved = target.centred_by(type(target.centring).common(0.3, len(target.variables)))
    x = moved.draw(5, np.random.SeedSequence(1)).x
    monkeypatch.setattr(evaluators, "_MOST", 1.0)
    compiled = compiled_if_long(moved, 1.0)
    assert isinstance(compiled.differentiable, CompiledDensity)
    assert compiled.centring == moved.centring
    for found, expected in zip(
        compiled.differentiable.evaluate(x), moved.differentiable.evaluate(x), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert compiled_if_long(compiled, 1.0) is compiled


def test_local_variables_stay_integrated_however_long_a_route_is(monkeypatch):
    """Compiled code has all variables together, whose chains did not mix in 670,000 evaluations."""
    target = target_of(shared("schools").model, marginalise=True, backend="numpy")
    monkeypatch.setattr(evaluators, "_MOST", 1.0)
    assert isinstance(target, PlateTarget)
    assert compiled_if_long(target, np.inf) is target


# --- what NumPy cannot do, said before anything is run ---


def refused(error, match, name="normal", **options):
    with pytest.raises(error, match=match):
        run(name, **{"backend": "numpy", **options})


def test_models_that_numpy_cannot_evaluate():
    refused(
        pe.ModelError,
        r"backend='numpy' needs continuous variables only, got .* is discrete; .*leave backend out",
        "discrete",
    )
    refused(
        pe.ModelError,
        r"backend='numpy' needs a likelihood that is evaluated, got .*'y' is estimated by .*; "
        "leave backend out",
        "states",
    )
    refused(
        pe.ModelError,
        r"backend='numpy' needs a model whose operations NumPy does for many points at once, got "
        r"one of which it cannot: Scan.*\. Leave backend out",
        loop(),
    )


def test_a_model_without_a_gradient(monkeypatch):
    monkeypatch.setattr("pm_evidence.targets.model.target.gradient_graphs", lambda graphs: None)
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", x, 1, observed=1.0)
    refused(pe.ModelError, "backend='numpy' needs a gradient, got .*leave backend out", model)
