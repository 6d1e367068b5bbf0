"""Every rule of ``check_path`` is broken once, and noticed."""

from dataclasses import dataclass

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.extending import Points
from pm_evidence.testing import check_path
from tests.testing.page import objects

page = objects(0)
RINGS = np.random.default_rng(0)


class RepeatsOnly(Points):
    def take(self, index):
        return type(self)(self.x[np.unique(index)])


class FirstOnly(Points):
    def join(self, others):
        return self


class Path(page.RingPath):
    """The page's path, with one planted error."""


class IgnoresSeed(Path):
    def draw(self, n, seed):
        return super().draw(n, np.random.SeedSequence(1))


class DrawsFromElsewhere(Path):
    def draw(self, n, seed):
        return self.at(RINGS.choice([-1.0, 1.0], (n, self.target.n_dim)))


class DrawsTooFew(Path):
    def draw(self, n, seed):
        return super().draw(n - 1, seed)


class DrawsArrays(Path):
    def draw(self, n, seed):
        return super().draw(n, seed).x


class TakesOnce(Path):
    def at(self, draws):
        return RepeatsOnly(draws)


class JoinsNothing(Path):
    def at(self, draws):
        return FirstOnly(draws)


class TurnsDraws(Path):
    def draw(self, n, seed):
        return Points(super().draw(n, seed).x)

    def at(self, draws):
        return Points(np.array(draws)[:, ::-1])


class Centred(Path):
    def log_ratio(self, state, start, stop):
        ratio = super().log_ratio(state, start, stop)
        return ratio - ratio.mean()


class ChangesTheState(Path):
    def log_ratio(self, state, start, stop):
        ratio = super().log_ratio(state, start, stop)
        state.x[0] = 1.0
        return ratio


class DoesNotAddUp(Path):
    def log_ratio(self, state, start, stop):
        return super().log_ratio(state, start, stop) * (1.0 + 0.01 * stop)


class SinglePrecision(Path):
    def log_ratio(self, state, start, stop):
        return super().log_ratio(state, start, stop).astype(np.float32)


class OfTheOtherSign(Path):
    def energy(self, state, beta):
        return -super().energy(state, beta)

    def log_ratio(self, state, start, stop):
        return (start - stop) * super().energy(state, start)

    def order(self, state):
        return np.arange(len(state))


class ForgetsTheSquare(OfTheOtherSign):
    """log f is proportional to beta squared, and energy forgets to differentiate that."""

    def energy(self, state, beta):
        return beta * page.RingPath.energy(self, state, beta)

    def log_ratio(self, state, start, stop):
        return (start**2 - stop**2) * page.RingPath.energy(self, state, start)


class OrdersTwice(Path):
    def order(self, state):
        return np.zeros(len(state), int)


@dataclass(frozen=True)
class WithoutOrder:
    draw, at, log_ratio, energy = None, None, None, None


PLANTED = [
    (IgnoresSeed, "depend on its seed"),
    (DrawsFromElsewhere, "repeat with its seed"),
    (DrawsTooFew, "must return n=200 members"),
    (DrawsArrays, "without join, to_draws"),
    (TakesOnce, r"take\(index\) must"),
    (JoinsNothing, r"join\(others\) must"),
    (TurnsDraws, r"at\(draws\).to_draws\(\) must"),
    (Centred, "must not depend on the other members"),
    (ChangesTheState, "must leave the population as it is"),
    (DoesNotAddUp, "must add up along beta"),
    (SinglePrecision, "float64"),
    (OfTheOtherSign, "energy must be minus the derivative"),
    (ForgetsTheSquare, "energy must be minus the derivative"),
    (OrdersTwice, "order must return a permutation"),
]


@pytest.mark.parametrize(("path", "message"), PLANTED)
def test_planted_errors_are_caught(path, message):
    with pytest.raises(AssertionError, match=message):
        check_path(path(page.Ring()))


def test_missing_methods_are_named():
    with pytest.raises(AssertionError, match="path must have order;"):
        check_path(WithoutOrder())


@pytest.mark.parametrize(
    "target",
    [
        page.Ring(),
        pe.mixtures.Gaussian(),
        pe.lattices.Ising(6),
        pe.lattices.Ising(6, coupling=0.3, field=0.2),
        pe.lattices.Potts(4, q=3),
    ],
    ids=repr,
)
def test_paths_of_families_pass(target):
    check_path(target.annealing_setup("auto").path)
