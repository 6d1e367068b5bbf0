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
from pm_evidence.testing.checks import check_invariance, check_reversal
from tests.kernels.exact import (
    BETA,
    CASES,
    FUNCTIONS,
    SYSTEMS,
    TOGETHER,
    fitted,
    n_members,
    n_pairs,
)

COMPILED = {
    hmc: ["_trajectories", "_half_square", "move_along", "pull_back"],
    random_walk: ["_walk", "add_scaled"],
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
    state = exact.population(BETA, n, seed=4)
    infos = []
    for _ in range(2):
        state, info = kernel.advance(exact.path, state, BETA, chains)
        infos.append(info)
    return state, infos, chains


COMPILED_CASES = [case for case in CASES if case[0] not in TOGETHER]


@pytest.mark.parametrize(("system", "name"), COMPILED_CASES)
def test_compiled_equals_interpreted(system, name, request):
    """What is tested in Python would otherwise say nothing of what runs."""
    kernel = fitted(system, name, BETA)
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
    and name != "gibbs"
    and "diagonal" not in name  # the same step
    and "exploring" not in name
]


@pytest.mark.parametrize(("system", "name"), REJECTING)
def test_kernel_without_reject_step_is_caught(system, name, without_reject):
    """Were this to pass, the invariance test could not see the error that it is there for."""

    def far(kernel):
        # else there is little to reject
        return replace(kernel, step_size=1.4) if isinstance(kernel, HMC) else kernel

    expect_not_invariant(system, name, far, n=2000)  # in plain Python


@pytest.mark.slow
def test_gibbs_without_weights_is_caught(interpreted, monkeypatch):
    """Gibbs draws have no reject step: their error is a draw that ignores the density."""
    monkeypatch.setattr(discrete, "exp", lambda log_weight: 1.0)
    expect_not_invariant("table", "gibbs")


def expect_not_invariant(system, name, wrap=lambda kernel: kernel, n=None):
    """With as many members as the fast tests of conformance have, or fewer."""
    exact = SYSTEMS[system]()
    with pytest.raises(AssertionError, match="invariant"):
        check_invariance(
            wrap(fitted(system, name, BETA)),
            exact.path,
            exact.population(BETA, n or n_members(system), seed=1),
            BETA,
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
    with pytest.raises(AssertionError, match=r"reversed\(\) is not the kernel's reversal"):
        check_reversal(
            Wrapped(fitted(system, name, BETA)),
            exact.path,
            exact.population(BETA, n_pairs(system), seed=1),
            BETA,
            functions=FUNCTIONS.get(system),
        )


def test_cycle_in_the_old_order_is_caught():
    """Each part reversed, but not their order."""

    @dataclass(frozen=True)
    class SameOrder(Cycle):
        def reversed(self):
            return SameOrder(tuple(part.reversed() for part in self.parts))

    exact = SYSTEMS["table"]()
    population = exact.population(BETA, n_pairs("table"), seed=1)
    parts = [DiscreteGibbs(np.array([c]), np.zeros(1), np.full(1, 3.0)) for c in range(3)]
    with pytest.raises(AssertionError, match="opposite order"):
        check_reversal(SameOrder(tuple(parts)), exact.path, population, BETA)
    check_reversal(Cycle(tuple(parts)), exact.path, population, BETA)


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
