"""Every rule of ``check_kernel`` is broken once, and noticed."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.contracts import StageBatch
from pm_evidence.extending import MoveInfo, Points, uniforms
from pm_evidence.families.lattice.cluster_kernels import SwendsenWang, Wolff
from pm_evidence.families.lattice.ising import SpinMetropolis
from pm_evidence.testing import check_kernel
from tests.kernels.exact import SYSTEMS
from tests.testing.page import objects

page = objects(0)
RNG = np.random.default_rng(0)
RING = page.RingPath(page.Ring(n_dim=6))


class HeatBath(page.HeatBath):
    """The page's kernel, with one planted error."""


class FromElsewhere(HeatBath):
    def advance(self, path, state, beta, streams):
        uniforms(streams, 1)
        own = RNG.integers(2**63, size=(len(state), 4), dtype=np.uint64)
        return super().advance(path, state, beta, own)


class CopiesStreams(HeatBath):
    def advance(self, path, state, beta, streams):
        return super().advance(path, state, beta, streams.copy())


class InPlace(HeatBath):
    def advance(self, path, state, beta, streams):
        moved, info = super().advance(path, state, beta, streams)
        state.x[:] = moved.x
        return state, info


class OneStream(HeatBath):
    def advance(self, path, state, beta, streams):
        turned = np.roll(streams, 1, axis=0)
        found = super().advance(path, state, beta, turned)
        streams[:] = np.roll(turned, -1, axis=0)
        return found


class LooksAtTheOthers(HeatBath):
    def advance(self, path, state, beta, streams):
        return super().advance(path, state, beta * path.energy(state, beta).std(), streams)


class HalfTheField(HeatBath):
    def advance(self, path, state, beta, streams):
        return super().advance(path, state, 0.5 * beta, streams)


class NotReversed(HeatBath):
    def reversed(self):
        return self


class ReversedOnce(HeatBath):
    def reversed(self):
        return type(self)((1, 0))


class Still(HeatBath):
    def advance(self, path, state, beta, streams):
        _, info = super().advance(path, state, beta, streams)
        return state, info


class TextSettings(HeatBath):
    def settings(self):
        return {"order": "even"}


class OtherSettings(HeatBath):
    def settings(self):
        return {"even": 1.0} if self.parities[0] else {"odd": 1.0}


class AcceptsTwice(HeatBath):
    def advance(self, path, state, beta, streams):
        return super().advance(path, state, beta, streams)[0], MoveInfo(2.0, 1)


class LearnsNothing(HeatBath):
    def learn(self, path, state):
        return self

    def adjust(self, info):
        return None

    def without_exploration(self):
        return self


class LosesAMember(HeatBath):
    def advance(self, path, state, beta, streams):
        moved, info = super().advance(path, state, beta, streams)
        return moved.take(np.arange(len(moved) - 1)), info


class WrongBatches(HeatBath):
    def advance_many(self, path, state, beta, streams):
        state, info = self.advance(path, state, float(beta[0]), streams)
        return StageBatch(state, None, None, np.ones(len(beta)), info.n_evaluations)


class OneTemperature(HeatBath):
    def advance_each(self, path, state, beta, streams):
        return self.advance(path, state, float(beta.mean()), streams)


class FromTheStart(HeatBath):
    """Moves the given states each time instead of those of the move before."""

    def advance_repeatedly(self, path, state, beta, n_moves, streams):
        moved = [self.advance(path, state, beta, streams) for _ in range(n_moves)]
        return state.join([each for each, _ in moved]), moved[0][1]


class PartlyTunable(HeatBath):
    def learn(self, path, state):
        return self


PLANTED = [
    (FromElsewhere, "must repeat with its streams"),
    (CopiesStreams, "must advance the streams"),
    (InPlace, "leave the population"),
    (OneStream, r"must move member i with streams\[i\] only"),
    (LooksAtTheOthers, r"must move member i with streams\[i\] only"),
    (HalfTheField, "does not leave the density"),
    (NotReversed, "is not the kernel's reversal"),
    (ReversedOnce, r"reversed\(\).reversed\(\) must move as the kernel"),
    (Still, "must move members"),
    (TextSettings, "must return finite floats"),
    (OtherSettings, "by the same names"),
    (AcceptsTwice, "acceptance from 0 to 1"),
    (LearnsNothing, "adjust must return a kernel"),
    (LosesAMember, "must return as many members"),
    (WrongBatches, "advance_many must give"),
    (OneTemperature, "advance_each must move member i"),
    (FromTheStart, "advance_repeatedly must return"),
    (PartlyTunable, "without adjust, without_exploration"),
]


@pytest.mark.parametrize(("kernel", "message"), PLANTED)
def test_planted_errors_are_caught(kernel, message):
    """The statistical ones have z far beyond their limits at this seed and size."""
    with pytest.raises(AssertionError, match=message):
        check_kernel(kernel(), RING)


@dataclass(frozen=True)
class Carrying(Points):
    """Points with their energies."""

    energy: np.ndarray = None

    def take(self, index):
        return type(self)(self.x[index], self.energy[index])

    def join(self, others):
        parts = [self, *others]
        return type(self)(
            *(np.concatenate([getattr(p, k) for p in parts]) for k in ("x", "energy"))
        )


class CarryingPath(page.RingPath):
    def at(self, draws):
        return Carrying(draws, super().energy(Points(draws), 0.0))

    def energy(self, state, beta):
        return state.energy


class ForgetsEnergies(HeatBath):
    def advance(self, path, state, beta, streams):
        moved, info = super().advance(path, state, beta, streams)
        return replace(state, x=moved.x), info


class KeepsEnergies(HeatBath):
    def advance(self, path, state, beta, streams):
        moved, info = super().advance(path, state, beta, streams)
        return path.at(moved.x), info


def test_stale_densities_are_caught():
    path = CarryingPath(page.Ring(n_dim=6))
    with pytest.raises(AssertionError, match="carries the densities of its draws"):
        check_kernel(ForgetsEnergies(), path)
    check_kernel(KeepsEnergies(), path)


def test_population_and_beta_belong_together():
    with pytest.raises(ValueError, match="given together"):
        check_kernel(HeatBath(), RING, beta=0.5)


def test_checks_are_made_where_an_error_shows():
    """At beta 0 every sweep of the ring is its own reversal."""
    invariance, reversal = check_kernel(HeatBath(), RING)
    assert invariance.moved > 0.5
    assert reversal.passed
    exact = RING.draw(4000, np.random.SeedSequence(1))
    check_kernel(NotReversed(), RING, exact, 0.0)


@pytest.mark.parametrize(
    ("target", "kernel"),
    [
        (pe.mixtures.Gaussian(), "auto"),
        (pe.lattices.Ising(6), "auto"),
        (pe.lattices.Ising(6, coupling=0.3, field=0.2), SpinMetropolis()),
        (pe.lattices.Ising(6), SwendsenWang()),
        (pe.lattices.Potts(4, q=3), "auto"),
        (pe.lattices.Potts(4, q=3), Wolff()),
    ],
)
def test_kernels_of_families_pass(target, kernel):
    setup = target.annealing_setup(kernel)
    check_kernel(setup.kernel, setup.path)


@pytest.mark.parametrize(
    "kernel", [pe.kernels.HMC(exploring=True), pe.kernels.RandomWalk()], ids=["hmc", "walk"]
)
def test_kernels_of_models_pass(kernel):
    exact = SYSTEMS["gaussian"]()
    check_kernel(kernel, exact.path, exact.population(0.5, 4000, seed=1), 0.5)
    check_kernel(kernel, exact.path)
