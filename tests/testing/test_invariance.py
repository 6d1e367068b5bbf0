"""The checks that anybody can run on a new kernel, on kernels in plain NumPy: right and wrong."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import ndtri

from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import uniform
from pm_evidence.testing.checks import check_invariance, check_reversal, standard_functions

N = 4000


@dataclass(frozen=True)
class Rows:
    """Points in the plane."""

    x: np.ndarray

    def __len__(self):
        return len(self.x)

    def take(self, index):
        return Rows(self.x[index])

    def join(self, others):
        return Rows(np.concatenate([self.x, *(other.x for other in others)]))

    def to_draws(self):
        return self.x


class Path:
    """A standard normal density at beta 0, and twice as narrow a one in each direction at 1."""

    def energy(self, state, beta):
        return 1.5 * (state.x**2).sum(axis=1)

    def sd(self, beta):
        return (1.0 + 3.0 * beta) ** -0.5


@dataclass(frozen=True)
class Renewal:
    """An exact autoregression of one coordinate after the other.

    The second coordinate follows the first one's new sign, so that the order counts: it keeps or
    changes its sign with it.
    """

    keep: float = 0.5
    factor: float = 1.0  # of the noise; 1 is right
    backwards: bool = False

    def advance(self, path, state, beta, streams):
        x, sd = state.x.copy(), path.sd(beta)
        noise = ndtri([[uniform(stream), uniform(stream)] for stream in streams])
        fresh = self.factor * np.sqrt(1.0 - self.keep**2) * sd * noise[:, 0]
        for step in ("flip", "move") if self.backwards else ("move", "flip"):
            if step == "move":
                x[:, 0] = self.keep * x[:, 0] + fresh
            else:
                x[:, 1] = np.where(x[:, 0] > 0.0, -x[:, 1], x[:, 1])
        return Rows(x), MoveInfo(1.0, len(x))

    def reversed(self):
        return replace(self, backwards=not self.backwards)


@dataclass(frozen=True)
class NotReversed(Renewal):
    """The same, that takes itself for its own reversal."""

    def reversed(self):
        return self


def population(beta, n=N, seed=1):
    return Rows(np.random.default_rng(seed).normal(0.0, Path().sd(beta), (n, 2)))


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_a_right_kernel_passes(beta):
    report = check_invariance(Renewal(), Path(), population(beta), beta)
    assert report.passed and report.moved == 1.0
    assert set(report.names) == {"x0", "x1", "x0^2", "x1^2", "x0 x1", "energy"}
    assert report.worst[1] == report.z[np.argmax(np.abs(report.z))]
    # six statistics at a false-alarm rate of 1e-6, two-sided
    assert report.limit == pytest.approx(-ndtri(0.5e-6 / 6))


@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_too_little_and_too_much_noise_is_caught(factor):
    with pytest.raises(AssertionError, match=r"does not leave the density at beta=0.4 invariant"):
        check_invariance(Renewal(factor=factor), Path(), population(0.4), 0.4)


def test_draws_from_another_density_are_caught():
    """Moves take them towards the right one, and their means with them."""
    with pytest.raises(AssertionError, match=r"the mean of (energy|x0\^2) went from"):
        check_invariance(Renewal(), Path(), population(0.1), 0.4)


def test_a_reversal_has_the_steps_in_the_opposite_order():
    """The move forgets the sign of the first coordinate, which decides on the second one's."""

    def signs(draws):
        return {"x1": draws[:, 1], "both": np.sign(draws[:, 0]) * draws[:, 1]}

    path, start = Path(), population(0.4, 20_000)
    kernel, wrong = Renewal(keep=0.0), NotReversed(keep=0.0)
    assert check_reversal(kernel, path, start, 0.4, functions=signs).passed
    with pytest.raises(AssertionError, match=r"reversed\(\) is not the kernel's reversal"):
        check_reversal(wrong, path, start, 0.4, functions=signs)


def test_kernel_that_moves_nobody_is_invariant():
    """True, and why a check has to look at ``moved``."""

    class Nothing(Renewal):
        def advance(self, path, state, beta, streams):
            return state, None

    report = check_invariance(Nothing(), Path(), population(0.4), 0.4)
    assert report.passed and report.moved == 0.0 and report.worst[1] == 0.0


def test_what_cannot_be_checked_is_refused():
    few, path = population(0.4, 99), Path()
    for check in (check_invariance, check_reversal):
        with pytest.raises(ValueError, match=r"population must have at least 100 members .* 99"):
            check(Renewal(), path, few, 0.4)
        with pytest.raises(ValueError, match="false_alarm"):
            check(Renewal(), path, population(0.4), 0.4, false_alarm=0.0)
        with pytest.raises(ValueError, match="functions must be numbers, got NaN of odd at"):
            check(
                Renewal(),
                path,
                population(0.4),
                0.4,
                functions=lambda draws: {"odd": np.full(len(draws), np.nan)},
            )
    with pytest.raises(ValueError, match="n_moves"):
        check_invariance(Renewal(), path, population(0.4), 0.4, n_moves=0)


def test_standard_functions_hold_for_any_tail():
    """Coordinates are centred and scaled by quartiles, and cut: their means have finite errors."""
    draws = np.random.default_rng(2).standard_cauchy((N, 9)) * 1e6 + 3.0
    draws[:, 8] = 3.0  # a constant has no quartiles
    values = standard_functions(draws)(draws)
    assert len(values) == 9 + 9 + 8  # beyond eight coordinates only neighbours are multiplied
    assert max(np.abs(values[f"x{j}"]).max() for j in range(9)) == 10.0
    assert np.median(values["x0"]) == pytest.approx(0.0, abs=1e-12)
    low, high = np.quantile(values["x0"], (0.25, 0.75))
    assert high - low == pytest.approx(1.349)
    assert all(np.isfinite(value).all() for value in values.values())
