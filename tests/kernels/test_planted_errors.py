"""The checks catch wrong kernels, and the compiled kernels are what their source says.

Kernels run here as plain Python: what numba compiled is replaced by its ``py_func``, and calls of
the density by address go through ctypes. So a single step can be taken out.
"""

import ctypes
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from pm_evidence.core.random import streams
from pm_evidence.kernels import discrete, hmc, random_walk
from pm_evidence.kernels.cycle import Cycle
from pm_evidence.kernels.discrete import DiscreteGibbs
from pm_evidence.kernels.hmc import HMC
from pm_evidence.testing.invariance import check_invariance, check_reversal, standard_functions
from tests.kernels.exact import CASES, FUNCTIONS, N_PAIRS, SYSTEMS, fitted

COMPILED = {
    hmc: ["_trajectories", "_half_square", "move_along", "pull_back"],
    random_walk: ["_walk"],
    discrete: ["_gibbs_sweep", "_integer_sweep"],
}
_C_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4)


def call_density(address, x, out, gradient, data):
    """What the intrinsic of the same name does in compiled code."""
    arrays = (x, out, gradient, data)
    assert all(a.flags.c_contiguous for a in arrays)
    return _C_FUNCTION(address)(*(a.ctypes.data for a in arrays))


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels in plain Python from here on."""
    for module, names in COMPILED.items():
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name).py_func)
        monkeypatch.setattr(module, "call_density", call_density)


@pytest.fixture
def without_reject(interpreted, monkeypatch):
    """The same without a reject step."""
    for module in COMPILED:
        monkeypatch.setattr(module, "accepts", lambda log_ratio, stream: True)


def run(system, kernel, n):
    exact = SYSTEMS[system]()
    chains = streams(np.random.SeedSequence(8), n)
    state = exact.population(0.6, n, seed=4)
    infos = []
    for _ in range(2):
        state, info = kernel.advance(exact.path, state, 0.6, chains)
        infos.append(info)
    return state, infos, chains


COMPILED_CASES = [case for case in CASES if not case[0].endswith("by jax")]


@pytest.mark.parametrize(("system", "name"), COMPILED_CASES)
def test_compiled_equals_interpreted(system, name, request):
    """What is tested in Python would otherwise say nothing of what runs."""
    kernel = fitted(system, name, 0.6)
    compiled, infos, chains = run(system, kernel, 40)
    request.getfixturevalue("interpreted")
    interpreted, python_infos, python_chains = run(system, kernel, 40)
    # Equal bits on most machines; numba rounds logarithms otherwise where it finds Intel's SVML.
    np.testing.assert_allclose(interpreted.x, compiled.x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(interpreted.log_density, compiled.log_density, rtol=1e-11)
    assert np.array_equal(python_chains, chains)
    for one, other in zip(python_infos, infos, strict=True):
        assert one.n_evaluations == other.n_evaluations
        assert one.n_nan == other.n_nan
        np.testing.assert_allclose(one.acceptance, other.acceptance, rtol=1e-10)


REJECTING = [
    (system, name)
    for system, name in CASES
    if system in ("gaussian", "circle", "tails", "table", "mixed")
    and name not in ("gibbs", "hmc-exploring", "hmc-exploring-and-discrete")
]


@pytest.mark.parametrize(("system", "name"), REJECTING)
def test_kernel_without_reject_step_is_caught(system, name, without_reject):
    """Were this to pass, the invariance test could not see the error that it is there for."""
    exact = SYSTEMS[system]()
    kernel = fitted(system, name, 1.0)
    if isinstance(kernel, HMC):
        kernel = replace(kernel, step_size=1.4)  # else there is little to reject
    with pytest.raises(AssertionError, match="invariant"):
        check_invariance(
            kernel,
            exact.path,
            exact.population(1.0, 2000, seed=1),
            1.0,
            functions=FUNCTIONS.get(system),
        )


def test_gibbs_without_weights_is_caught(interpreted, monkeypatch):
    """Gibbs draws have no reject step: their error is a draw that ignores the density."""
    monkeypatch.setattr(discrete, "exp", lambda log_weight: 1.0)
    expect_not_invariant("table", "gibbs")


def expect_not_invariant(system, name, wrap=lambda kernel: kernel):
    exact = SYSTEMS[system]()
    kernel = wrap(fitted(system, name, 1.0))
    with pytest.raises(AssertionError, match="invariant"):
        check_invariance(
            kernel,
            exact.path,
            exact.population(1.0, 5000, seed=1),
            1.0,
            functions=FUNCTIONS.get(system),
        )


@dataclass(frozen=True)
class Wrapped:
    """A kernel with a planted error."""

    kernel: Any

    def advance(self, path, state, beta, chains):
        return self.kernel.advance(path, state, beta, chains)

    def reversed(self):
        return self


class AtWrongBeta(Wrapped):
    """Moves at the inverse temperature of the stage before."""

    def advance(self, path, state, beta, chains):
        return self.kernel.advance(path, state, 0.7 * beta, chains)


class StaleDensities(Wrapped):
    """Forgets to hand on the densities of the new points."""

    def advance(self, path, state, beta, chains):
        moved, info = self.kernel.advance(path, state, beta, chains)
        return replace(moved, log_density=state.log_density), info


class Nothing(Wrapped):
    """Moves nobody."""

    def advance(self, path, state, beta, chains):
        return state, None


@pytest.mark.parametrize(
    ("system", "name"),
    [
        ("gaussian", "hmc-dense"),
        ("gaussian", "random-walk"),
        ("tails", "random-walk"),
        ("table", "gibbs"),
        ("table", "integer-walk"),
        ("mixed", "hmc-dense-and-discrete"),
    ],
)
def test_wrong_beta_is_caught(system, name):
    expect_not_invariant(system, name, AtWrongBeta)


@pytest.mark.parametrize(
    ("system", "name"), [("gaussian", "hmc-dense"), ("gaussian", "hmc-diagonal")]
)
def test_stale_densities_are_caught(system, name):
    expect_not_invariant(system, name, StaleDensities)


@pytest.mark.parametrize(
    ("system", "name"),
    [
        ("table", "gibbs"),
        ("table", "integer-walk"),
        ("table", "gibbs-and-walk"),
        ("mixed", "hmc-dense-and-discrete"),
    ],
)
def test_sweep_that_is_not_reversed_is_caught(system, name):
    """A sweep is invariant in either order: only pairs of states show its direction."""
    exact = SYSTEMS[system]()
    kernel = Wrapped(fitted(system, name, 1.0))
    with pytest.raises(AssertionError, match=r"reversed\(\) is not the kernel's reversal"):
        check_reversal(
            kernel,
            exact.path,
            exact.population(1.0, N_PAIRS, seed=1),
            1.0,
            functions=FUNCTIONS.get(system),
        )


def test_cycle_in_the_old_order_is_caught():
    """Each part reversed, but not their order."""

    @dataclass(frozen=True)
    class SameOrder(Cycle):
        def reversed(self):
            return SameOrder(tuple(part.reversed() for part in self.parts))

    exact = SYSTEMS["table"]()
    population = exact.population(1.0, N_PAIRS, seed=1)
    parts = [DiscreteGibbs(np.array([c]), np.zeros(1), np.full(1, 3.0)) for c in range(3)]
    with pytest.raises(AssertionError, match="opposite order"):
        check_reversal(SameOrder(tuple(parts)), exact.path, population, 1.0)
    check_reversal(Cycle(tuple(parts)), exact.path, population, 1.0)


# --- the checks themselves ---


def test_start_that_is_not_exact_is_caught():
    exact = SYSTEMS["gaussian"]()
    wrong = exact.population(0.8, 5000, seed=1)
    with pytest.raises(AssertionError, match="exact"):
        check_invariance(fitted("gaussian", "hmc-dense", 1.0), exact.path, wrong, 1.0)


def test_z_values_are_standard_normal():
    """The stated false-alarm rate rests on this. Bounds: 5 standard errors."""
    exact = SYSTEMS["gaussian"]()
    kernel = fitted("gaussian", "random-walk-diagonal", 0.5)
    invariance, reversal = [], []
    for seed in range(100):
        population = exact.population(0.5, 1000, seed=1000 + seed)
        setting = {"seed": seed, "false_alarm": 1e-9}
        invariance.append(check_invariance(kernel, exact.path, population, 0.5, **setting).z)
        reversal.append(check_reversal(kernel, exact.path, population, 0.5, **setting).z)
    for z in (np.array(invariance), np.array(reversal)):
        # statistics of one run are correlated: judge every one by itself
        assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(100)
        assert np.abs(z.var(axis=0) - 1).max() < 5 * np.sqrt(2 / 100)


def test_kernel_that_moves_nobody_is_invariant():
    """True, and why a check has to look at ``moved``."""
    exact = SYSTEMS["gaussian"]()
    report = check_invariance(Nothing(None), exact.path, exact.population(1.0, 200, seed=1), 1.0)
    assert report.passed
    assert report.moved == 0.0
    assert report.worst[1] == 0.0


def test_report():
    exact = SYSTEMS["mixed"]()
    kernel = fitted("mixed", "random-walk-and-discrete", 0.5)
    population = exact.population(0.5, 1000, seed=1)
    report = check_invariance(kernel, exact.path, population, 0.5, false_alarm=0.01)
    products = ("x0^2", "x1^2", "x2^2", "x0 x1", "x0 x2", "x1 x2")
    assert report.names == ("x0", "x1", "x2", *products, "energy")
    assert report.worst[1] == report.z[np.abs(report.z).argmax()]
    np.testing.assert_allclose(report.limit, 3.2905, atol=1e-3)  # 0.01 / 10, two-sided
    assert report.passed


def test_functions_of_many_coordinates():
    """All 4,950 pairs of 100 coordinates would drown an error in Bonferroni's limit."""
    draws = np.random.default_rng(1).normal(size=(500, 100))
    values = standard_functions(draws)(draws)
    assert len(values) == 100 + 100 + 99


def test_functions_survive_tails_and_constants():
    draws = np.random.default_rng(1).standard_cauchy(size=(500, 2))
    draws[:, 1] = 3.0
    values = standard_functions(draws)(draws)
    assert all(np.isfinite(value).all() for value in values.values())
    assert max(np.abs(value).max() for value in values.values()) <= 100.0


def test_mistakes_are_named():
    exact = SYSTEMS["gaussian"]()
    kernel = fitted("gaussian", "random-walk", 1.0)
    with pytest.raises(ValueError, match="at least 100 members"):
        check_invariance(kernel, exact.path, exact.population(1.0, 99, seed=1), 1.0)
    population = exact.population(1.0, 100, seed=1)
    with pytest.raises(ValueError, match="n_moves"):
        check_invariance(kernel, exact.path, population, 1.0, n_moves=0)
    for check in (check_invariance, check_reversal):
        with pytest.raises(ValueError, match="false_alarm"):
            check(kernel, exact.path, population, 1.0, false_alarm=0.0)
        with pytest.raises(ValueError, match="NaN of broken"):
            check(
                kernel,
                exact.path,
                population,
                1.0,
                functions=lambda x: {"broken": np.full(len(x), np.nan)},
            )
