"""Every rule of the checks of paths, kernels, targets and samplers is broken once, and noticed.

The objects with planted errors are derived from those of docs/extending.md.
"""

from dataclasses import dataclass, replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.contracts import StageBatch
from pm_evidence.core.records import Role
from pm_evidence.extending import AnnealingSetup, MoveInfo, Points, uniforms
from pm_evidence.families.lattice.ising import SpinMetropolis
from pm_evidence.families.lattice.target import SwendsenWang, Wolff
from pm_evidence.testing import check_kernel, check_path, check_sampler, check_target
from tests.docs.test_docs import ROOT, blocks
from tests.kernels.exact import SYSTEMS

# --- paths ---


_page = {"__name__": "__main__"}
exec(blocks((ROOT / "docs" / "extending.md").read_text(encoding="utf-8"))[0].code, _page)
page = SimpleNamespace(**_page)
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


PATHS = [
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


@pytest.mark.parametrize(("path", "message"), PATHS)
def test_planted_errors_of_paths_are_caught(path, message):
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


# --- kernels ---


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


KERNELS = [
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


@pytest.mark.parametrize(("kernel", "message"), KERNELS)
def test_planted_errors_of_kernels_are_caught(kernel, message):
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


# --- targets and samplers ---


GAUSSIAN = pe.mixtures.Gaussian()
EXACT = GAUSSIAN.log_evidence


class Ring(page.Ring):
    """The page's target, with one planted error; small, as ``n_dim`` costs."""

    @property
    def log_evidence(self):
        n, coupling = self.n_dim, self.coupling
        return n * np.log(np.cosh(coupling)) + np.log1p(np.tanh(coupling) ** n)


class CountsWrong(Ring):
    @property
    def n_dim(self):
        return 7

    @n_dim.setter
    def n_dim(self, n):
        pass

    def annealing_setup(self, kernel):
        return Ring(6).annealing_setup(kernel)


class LosesDraws(Ring):
    def posterior(self, draws):
        return {"x": draws[1:]}


class TurnsStates(Ring):
    def check(self, draws, name="draws"):
        return draws[:, ::-1]


class StartsTooFew(Ring):
    def annealing_setup(self, kernel):
        setup = super().annealing_setup(kernel)
        return replace(setup, starts=lambda n, rng: np.ones((n - 1, self.n_dim)))


class ReturnsThePath(Ring):
    def annealing_setup(self, kernel):
        return page.RingPath(self)


class LacksOrder(Ring):
    def annealing_setup(self, kernel):
        return AnnealingSetup(SimpleNamespace(draw=1, at=1, log_ratio=1, energy=1), page.HeatBath())


class LacksKernel(Ring):
    def annealing_setup(self, kernel):
        return AnnealingSetup(page.RingPath(self), object())


class UpPath(page.RingPath):
    """Draws from another reference than the path starts from."""

    def draw(self, n, seed):
        rng = np.random.default_rng(seed)
        return self.at(np.where(rng.random((n, self.target.n_dim)) < 0.7, 1.0, -1.0))


class StartsElsewhere(Ring):
    def annealing_setup(self, kernel):
        return AnnealingSetup(UpPath(self), page.HeatBath())


TARGETS = [
    (CountsWrong, "n_dim must be the number of coordinates"),
    (LosesDraws, "posterior must return a value for each"),
    (TurnsStates, r"check\(posterior\(draws\)\['x'\]\) must"),
    (StartsTooFew, "must return n=7 states"),
    (ReturnsThePath, "ReturnsThePath.annealing_setup must be of type AnnealingSetup"),
    (LacksOrder, "without order"),
    (LacksKernel, "must be a kernel object"),
    (StartsElsewhere, "must find the exact log evidence|does not leave"),
]


@pytest.mark.parametrize(("target", "message"), TARGETS)
def test_planted_errors_of_targets_are_caught(target, message):
    with pytest.raises(AssertionError, match=message):
        check_target(target(6), log_evidence=Ring(6).log_evidence)


class Bare:
    """An object with one method only."""

    def annealing_setup(self, kernel):
        return Ring(6).annealing_setup(kernel)


def test_an_object_without_methods_is_refused_by_name():
    missing = "without n_dim, method, log_prior_mass, variables, with_path, check, posterior"
    with pytest.raises(TypeError, match=missing):
        pe.sample_evidence(Bare())
    with pytest.raises(AssertionError, match=missing):
        check_target(Bare())
    with pytest.raises(TypeError, match="annealing_setup"):
        pe.extending.NativeTarget()


class Duck(Bare):
    """All that a target needs, without the base class."""

    n_dim, method, log_prior_mass, variables = 6, "ais", 0.0, ("x",)
    check, with_path = Ring.check, Ring.with_path
    posterior, sample_stats = Ring.posterior, Ring.sample_stats
    observed_data, constant_data = Ring.observed_data, Ring.constant_data
    coords_and_dims = Ring.coords_and_dims


def test_methods_are_enough():
    found = pe.log_evidence(pe.sample_evidence(Duck(), random_seed=1, progressbar=False))
    assert abs(found.value - Ring(6).log_evidence) < 4 * found.mcse


@dataclass(frozen=True, kw_only=True)
class Forward(pe.methods.AIS):
    """Forward annealing, with one planted error."""

    direction: str = "forward"


class ForgetsTheLastStage(Forward):
    def run_block(self, path, plan, *args, **options):
        block = super().run_block(path, plan, *args, **options)
        last = path.log_ratio(path.at(block.draws), plan.beta[-2], 1.0)
        return replace(
            block, work=block.work + 5.0 * last, log_weight=block.log_weight - 5.0 * last
        )


class CountsRuns(Forward):
    counter = count()

    def run_block(self, path, plan, block, n, seed, *args, **options):
        return super().run_block(path, plan, block, n, seed + next(self.counter), *args, **options)


class AddsNothing(Forward):
    def extended(self, context, record, draws):
        return record if record.of(Role.FORWARD) else super().extended(context, record, draws)


SAMPLERS = [
    (ForgetsTheLastStage, "must find the exact log evidence"),
    (CountsRuns, "must repeat with its seed"),
    (AddsNothing, "must add blocks"),
]


@pytest.mark.parametrize(("sampler", "message"), SAMPLERS)
def test_planted_errors_of_samplers_are_caught(sampler, message):
    with pytest.raises(AssertionError, match=message):
        check_sampler(sampler(), GAUSSIAN, log_evidence=EXACT)


class Incomplete:
    name, default_draws, n_seeds, likelihood_moves = "incomplete", 100, None, None

    @property
    def annealer(self):
        return self


def test_a_sampler_without_methods_is_refused_by_name():
    with pytest.raises(TypeError, match=r"derive a sampler from pe.extending.Annealer"):
        pe.sample_evidence(GAUSSIAN, method=Incomplete())
    with pytest.raises(AssertionError, match=r"derive a sampler from pe.extending.Annealer"):
        check_sampler(Incomplete(), GAUSSIAN)
    with pytest.raises(TypeError, match=r"got 3\.5; derive"):
        pe.sample_evidence(GAUSSIAN, method=3.5)


@pytest.mark.parametrize("sampler", [pe.methods.SMC(), pe.methods.AIS(), Forward()])
def test_samplers_of_the_package_pass(sampler):
    check_sampler(sampler, GAUSSIAN, log_evidence=EXACT)


@pytest.mark.parametrize(
    ("target", "log_evidence"),
    [
        (GAUSSIAN, EXACT),
        (pe.lattices.Ising(4), None),
        pytest.param(pe.lattices.Potts(3, q=3), None, marks=pytest.mark.slow),
    ],
    ids=["gaussian", "ising", "potts"],
)
def test_families_pass(target, log_evidence):
    check_target(target, log_evidence=log_evidence)
