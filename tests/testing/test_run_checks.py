"""Every rule of ``check_target`` and ``check_sampler`` is broken once, and noticed."""

from dataclasses import dataclass, replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.records import Role
from pm_evidence.extending import AnnealingSetup
from pm_evidence.testing import check_sampler, check_target
from tests.testing.page import objects

page = objects(0)
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
