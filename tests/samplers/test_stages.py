"""Stages one by one and many at a time, by a path and a kernel that write down what they do."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from pm_evidence.core.contracts import MoveInfo, Plan, StageBatch
from pm_evidence.samplers.sampler import passed, stretches

BETA = np.array([0.0, 0.1, 0.3, 0.6, 1.0])


@dataclass(frozen=True)
class Adding:
    """A kernel that adds beta to every member, or takes it away in reverse."""

    sign: float = 1.0
    calls: list = field(default_factory=list, compare=False)

    def advance(self, path, state, beta, streams):
        self.calls.append((self.sign, beta))
        return state + self.sign * beta, MoveInfo(0.25, 3, 1)

    def reversed(self):
        return type(self)(-self.sign, self.calls)


class AddingMany(Adding):
    """The same, through many stages in one call."""

    def advance_many(self, path, state, beta, streams):
        before, after = [], []
        for b in beta:
            before.append(state)
            state, _ = self.advance(path, state, b, streams)
            after.append(state)
        shares = np.full(len(beta), 0.25)
        return StageBatch(
            state, np.stack(before), np.stack(after), shares, 3 * len(beta), len(beta)
        )


class Quadratic:
    """Energy ``x**2``, so that log ratios are the step times minus its square."""

    def energy(self, state, beta):
        return state**2

    def log_ratio(self, state, start, stop):
        return -(stop - start) * state**2

    def weigh(self, visited, start, stop):
        return self.energy(visited, start), self.log_ratio(visited, start, stop)


def plan(*kernels):
    return Plan(BETA, kernels)


def test_single_stages_stay_single():
    kernel = Adding()
    found = list(stretches(plan(kernel, kernel, kernel, kernel), 10))
    assert [k is kernel for k, _ in found] == 4 * [True]
    np.testing.assert_array_equal([beta for _, beta in found], np.stack([BETA[:-1], BETA[1:]], 1))


def test_stages_of_one_kernel_go_together():
    """Two kernels, one of which goes through many stages: the plan is cut where they change."""
    many, single = AddingMany(), Adding()
    found = list(stretches(plan(many, many, single, many), 10))
    assert [kernel for kernel, _ in found] == [many, single, many]
    assert [beta.tolist() for _, beta in found] == [[0.0, 0.1, 0.3], [0.3, 0.6], [0.6, 1.0]]


@pytest.mark.parametrize(("n", "most"), [(1, 32_000), (1000, 32), (10**6, 8)])
def test_a_stretch_is_as_long_as_memory_allows(n, most):
    kernel, n_stages = AddingMany(), 70_000
    long = Plan(np.linspace(0.0, 1.0, n_stages + 1), (kernel,) * n_stages)
    lengths = [len(beta) - 1 for _, beta in stretches(long, n)]
    assert sum(lengths) == n_stages and set(lengths[:-1]) == {most} and lengths[-1] <= most


@pytest.mark.parametrize("kind", [Adding, AddingMany])
def test_forward_weighs_before_it_moves(kind):
    """The energy is that of the population before the stage, at the beta that it comes from."""
    kernel, start = kind(), np.array([1.0, -2.0])
    beta = BETA[:2] if kind is Adding else BETA[:4]
    batch, energy, ratio = passed(kernel, Quadratic(), start, beta, None)
    visited = start + np.append(0.0, np.cumsum(beta[1:-1]))[:, None]
    np.testing.assert_allclose(energy, visited**2, rtol=1e-15)
    np.testing.assert_allclose(ratio, -np.diff(beta)[:, None] * visited**2, rtol=1e-15)
    np.testing.assert_allclose(batch.state, start + beta[1:].sum(), rtol=1e-15)
    assert kernel.calls == [(1.0, b) for b in beta[1:]]
    assert batch.n_evaluations == 3 * (len(beta) - 1) and batch.n_nan == len(beta) - 1


@pytest.mark.parametrize("kind", [Adding, AddingMany])
def test_reverse_moves_before_it_weighs(kind):
    """By the reversed kernel, in the opposite order, and at the beta that it goes on to."""
    kernel, start = kind(), np.array([1.0, -2.0])
    beta = BETA[-2:] if kind is Adding else BETA[1:]
    batch, energy, ratio = passed(kernel, Quadratic(), start, beta, None, back=True)
    visited = start - np.cumsum(beta[:0:-1])[:, None]
    np.testing.assert_allclose(energy, visited**2, rtol=1e-15)
    np.testing.assert_allclose(ratio, -np.diff(beta)[::-1, None] * visited**2, rtol=1e-14)
    np.testing.assert_allclose(batch.state, visited[-1], rtol=1e-15)
    assert kernel.calls == [(-1.0, b) for b in beta[:0:-1]]


def test_a_path_and_its_reversal_have_the_same_work():
    """They meet the same populations, and work is that of the forward direction in both."""
    kernel, start = AddingMany(), np.array([1.0, -2.0])
    there, _, forward = passed(kernel, Quadratic(), start, BETA, None)
    back, _, reverse = passed(kernel, Quadratic(), there.state, BETA, None, back=True)
    np.testing.assert_allclose(back.state, start, rtol=1e-14)
    np.testing.assert_allclose(reverse[::-1], forward, rtol=1e-13)
