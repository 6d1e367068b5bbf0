"""Kernels that do not fit are refused: compiled loops would read and write memory not their own."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.shape import Shape
from pm_evidence.families.lattice.ising import SpinHeatBath
from pm_evidence.families.lattice.potts import ColourHeatBath
from pm_evidence.families.lattice.target import SwendsenWang
from pm_evidence.kernels.cycle import choose_kernel
from pm_evidence.kernels.suitability import (
    check_moves,
    checked_kernel,
)
from pm_evidence.runs.defaults import annealing_setup
from tests.kernels.exact import mixed

# two continuous coordinates, then one of bounds 0 to 3 and one of unknown bounds
MIXED = SimpleNamespace(
    n_dim=4,
    continuous=np.array([0, 1]),
    discrete=np.array([2, 3]),
    lower=np.array([0.0, -np.inf]),
    upper=np.array([3.0, np.inf]),
    differentiable=object(),
)
CONTINUOUS = SimpleNamespace(
    n_dim=2,
    continuous=np.array([0, 1]),
    discrete=np.empty(0, np.int64),
    lower=np.empty(0),
    upper=np.empty(0),
    differentiable=None,
)
GIBBS = {"coordinates": [2], "lower": [0], "upper": [3]}
WALK = {"coordinates": [3], "spread": [1.0]}

WRONG_FIELDS = [
    (
        pe.kernels.DiscreteGibbs,
        {**GIBBS, "coordinates": [-1]},
        r"coordinates must be distinct positions",
    ),
    (
        pe.kernels.DiscreteGibbs,
        {**GIBBS, "coordinates": [0, 0]},
        r"coordinates must be distinct positions",
    ),
    (
        pe.kernels.DiscreteGibbs,
        {**GIBBS, "coordinates": [0.5]},
        r"coordinates must hold whole numbers",
    ),
    (
        pe.kernels.DiscreteGibbs,
        {**GIBBS, "coordinates": []},
        r"coordinates must be a row of at least one",
    ),
    (pe.kernels.DiscreteGibbs, {**GIBBS, "coordinates": [[1]]}, r"coordinates must be a row"),
    (
        pe.kernels.DiscreteGibbs,
        {**GIBBS, "coordinates": None},
        r"coordinates must hold whole numbers",
    ),
    (pe.kernels.DiscreteGibbs, {**GIBBS, "upper": [np.inf]}, r"upper must be finite, got inf"),
    (pe.kernels.DiscreteGibbs, {**GIBBS, "lower": [np.nan]}, r"lower must be finite, got nan"),
    (
        pe.kernels.DiscreteGibbs,
        {**GIBBS, "lower": [0, 0]},
        r"lower must be a row of 1, one number for",
    ),
    (
        pe.kernels.DiscreteGibbs,
        {**GIBBS, "lower": [4]},
        r"lower must not exceed upper, got lower=4",
    ),
    (
        pe.kernels.DiscreteGibbs,
        {**GIBBS, "lower": [0.5]},
        r"lower must hold whole numbers, got 0\.5",
    ),
    (
        pe.kernels.DiscreteGibbs,
        {**GIBBS, "upper": [1e13]},
        r"lower and upper must leave at most 100,000",
    ),
    (pe.kernels.IntegerWalk, {**WALK, "spread": [0.5]}, r"spread must be at least 1"),
    (pe.kernels.IntegerWalk, {**WALK, "spread": [np.nan]}, r"spread must be finite, got nan"),
    (pe.kernels.IntegerWalk, {**WALK, "spread": [1, 1]}, r"spread must be a row of 1"),
    (pe.kernels.IntegerWalk, {**WALK, "scale": -1}, r"scale must be a finite number above 0"),
    (pe.kernels.HMC, {"shape": np.eye(2)}, r"shape must be of type Shape, got an array of shape"),
    (pe.kernels.HMC, {"dense": "yes"}, r"dense must be True or False"),
    (pe.kernels.HMC, {"exploring": None}, r"exploring must be True or False"),
    (pe.kernels.HMC, {"step_size": True}, r"step_size must be a finite number above 0, got True"),
    (pe.kernels.RandomWalk, {"n_steps": 10**13}, r"n_steps must be at most 1,000,000"),
    (pe.kernels.RandomWalk, {"scale": 1 + 0j}, r"scale must be a finite number above 0"),
    (pe.kernels.PseudoMarginal, {"spread": [0.0]}, r"spread must be from 1"),
    (pe.kernels.PseudoMarginal, {"renewal": np.ones(2)}, r"renewal must lie between 0 and 1"),
    (pe.kernels.PseudoMarginal, {"renewal": 0.0}, "renewal"),
    (pe.kernels.PseudoMarginal, {"scale": 0.0}, "scale"),
    (pe.kernels.PseudoMarginal, {"n_steps": 0}, "n_steps"),
    (
        pe.kernels.HMC,
        {"target_accept": 1.0},
        r"target_accept must lie between 0 and 1, got 1\.0; try 0\.85",
    ),
    (
        pe.kernels.RandomWalk,
        {"target_accept": 0},
        r"target_accept must lie between 0 and 1, got 0; try",
    ),
    (
        pe.kernels.PseudoMarginal,
        {"target_accept": "x"},
        r"target_accept must lie between 0 and 1, got 'x'",
    ),
    (
        pe.kernels.IntegerWalk,
        {**WALK, "target_accept": 2},
        r"target_accept must lie between 0 and 1",
    ),
    (pe.kernels.Cycle, {"parts": ()}, r"parts must be a tuple of at least one kernel, got \(\)"),
    (
        pe.kernels.Cycle,
        {"parts": pe.kernels.HMC()},
        r"parts must be a tuple of at least one kernel, got an object",
    ),
    (
        pe.kernels.Cycle,
        {"parts": (pe.kernels.HMC(), pe.kernels.HMC)},
        r"parts\[1\] must be a kernel object .*class HMC",
    ),
    (SpinHeatBath, {"n_sweeps": 10**13}, r"n_sweeps must be at most"),
    (SpinHeatBath, {"backwards": "yes"}, r"backwards must be True or False"),
]


def test_a_kernel_checks_its_own_fields():
    """What is wrong by itself is refused where it is written."""
    for kernel, fields, message in WRONG_FIELDS:
        with pytest.raises((ValueError, TypeError), match=message):
            kernel(**fields)


WRONG_TARGETS = [
    (pe.kernels.DiscreteGibbs([5], [0], [1]), MIXED, r"coordinates must be below 4, .*got 5"),
    (
        pe.kernels.DiscreteGibbs([0], [0], [1]),
        MIXED,
        r"coordinates must be those of discrete .*got 0",
    ),
    (
        pe.kernels.DiscreteGibbs([2], [0], [4]),
        MIXED,
        r"within the variable's own bounds, 0 to 3, got 0 to",
    ),
    (
        pe.kernels.DiscreteGibbs([2], [-1], [3]),
        MIXED,
        r"within the variable's own bounds, 0 to 3, got -1",
    ),
    (pe.kernels.IntegerWalk([4], [1.0]), MIXED, r"coordinates must be below 4"),
    (pe.kernels.IntegerWalk([1], [1.0]), MIXED, r"coordinates must be those of discrete"),
    (
        pe.kernels.HMC(shape=Shape(np.zeros(3), np.ones((3, 1)))),
        MIXED,
        r"shape\.mean must be an array",
    ),
    (
        pe.kernels.HMC(shape=Shape(np.zeros(2), np.ones((2, 3)))),
        MIXED,
        r"shape\.factor must be an array",
    ),
    (pe.kernels.HMC(shape=Shape([0.0, 0.0], np.eye(2))), MIXED, r"shape\.mean must be an array"),
    (
        pe.kernels.RandomWalk(shape=Shape(np.zeros(2), np.full((2, 1), np.nan))),
        MIXED,
        r"shape\.factor must be finite, got nan",
    ),
    (
        pe.kernels.RandomWalk(shape=Shape(np.zeros(2), np.zeros((2, 2)))),
        MIXED,
        r"shape\.factor must have standard deviations above 0",
    ),
    (
        pe.kernels.Cycle((pe.kernels.HMC(), pe.kernels.DiscreteGibbs([2, 7], [0, 0], [3, 1]))),
        MIXED,
        r"must be below 4",
    ),
    (
        pe.kernels.Cycle((pe.kernels.Cycle((pe.kernels.DiscreteGibbs([9], [0], [1]),)),)),
        MIXED,
        r"must be below 4",
    ),
    (
        pe.kernels.Cycle((pe.kernels.HMC(),)),
        MIXED,
        r"kernel must move all 4 .*does not move 2,.*tion 2",
    ),
    (pe.kernels.DiscreteGibbs([2], [0], [3]), MIXED, r"kernel must move all 4 coordinates"),
    (pe.kernels.Cycle((pe.kernels.HMC(),)), CONTINUOUS, r"kernel HMC needs a gradient"),
    (
        pe.kernels.PseudoMarginal(),
        MIXED,
        r"kernel PseudoMarginal needs a likelihood that is estimated",
    ),
    (
        SwendsenWang(),
        MIXED,
        r"kernel SwendsenWang must move a pe\.lattices\.Ising or pe\.lattices\.Potts",
    ),
    (SpinHeatBath(), CONTINUOUS, r"kernel SpinHeatBath must move a pe\.lattices\.Ising"),
    (
        pe.kernels.HMC,
        MIXED,
        r"kernel must be one of auto, hmc, random_walk or a kernel object.*class HMC",
    ),
    (SimpleNamespace(advance=print), MIXED, r"without reversed, settings"),
    (
        SimpleNamespace(advance=print, reversed=print, settings=print, learn=print),
        MIXED,
        r"without adjust, without_exploration",
    ),
]


def test_a_kernel_is_checked_against_its_target():
    """A position beyond the last coordinate would be written to, whatever lies there."""
    for kernel, target, message in WRONG_TARGETS:
        with pytest.raises(ValueError, match=message):
            choose_kernel(target, kernel)


def test_a_kernel_of_lattices_is_checked_when_it_is_chosen():
    """Refused before the first state is drawn."""
    for target, kernel, message in (
        (
            pe.lattices.Potts(4, q=3),
            SpinHeatBath(),
            r"kernel must be one of auto, .*got an object of type",
        ),
        (pe.lattices.Ising(4), ColourHeatBath(), r"kernel must be one of auto"),
        (pe.lattices.Ising(4, field=0.5), SwendsenWang(), r"must have no field for cluster moves"),
        (pe.lattices.Ising(4, field=0.5), "wolff", r"must have no field for cluster moves"),
        (pe.lattices.Potts(4, coupling=-1.0), "swendsen_wang", r"coupling must not be negative"),
        (pe.lattices.Ising(5), SpinHeatBath(), r"order must not be 'checkerboard'"),
        (pe.lattices.Ising(4), np.ones(2), r"kernel must be one of auto"),
        (pe.mixtures.Gaussian(), np.ones(2), r"kernel must be one of auto"),
    ):
        with pytest.raises(ValueError, match=message):
            annealing_setup(target, kernel)


def test_a_kernel_cannot_be_changed_once_checked():
    """Positions that change after the check would be as bad as unchecked ones."""
    given = np.array([2])
    kernel = pe.kernels.DiscreteGibbs(given, np.zeros(1), np.full(1, 3.0))
    given[0] = 99
    assert kernel.coordinates.tolist() == [2]
    with pytest.raises(ValueError, match="read-only"):
        kernel.coordinates[0] = 99
    again = pickle.loads(pickle.dumps(kernel.reversed()))
    assert again.coordinates.tolist() == [2] and again.upper.tolist() == [3.0]


def test_nested_cycles_move_everything():
    """A cycle of cycles is a cycle, and its settings and reversal are those of its parts."""
    inner = pe.kernels.Cycle(
        (pe.kernels.DiscreteGibbs([2], [0], [3]), pe.kernels.IntegerWalk([3], [1.0]))
    )
    kernel = choose_kernel(MIXED, pe.kernels.Cycle([pe.kernels.HMC(), inner]))
    assert isinstance(kernel.parts, tuple)
    assert kernel.settings().keys() == {"step_size", "path_length", "integer_scale"}
    assert isinstance(kernel.reversed().parts[0].parts[0], pe.kernels.IntegerWalk)


def test_gibbs_leaves_alone_what_lies_outside_its_bounds():
    """A value that is not among those it draws from must not be replaced by one of them.

    The probability of the return is not computed.
    """
    exact = mixed()
    state = exact.path.draw(200, np.random.SeedSequence(1))
    column = int(exact.path.target.discrete[0])
    kernel = pe.kernels.DiscreteGibbs([column], [1], [2])
    streams = np.random.default_rng(1).integers(1, 2**63, (200, 4), dtype=np.uint64)
    moved, _ = kernel.advance(exact.path, state, 1.0, streams)
    outside = (state.x[:, column] < 1) | (state.x[:, column] > 2)
    assert outside.any() and not outside.all()
    assert np.array_equal(moved.x[outside], state.x[outside])
    assert np.isin(moved.x[~outside, column], [1, 2]).all()


def test_extreme_paths_are_cut():
    """A path of infinitely many steps is one of the most that are allowed."""
    assert pe.kernels.HMC(step_size=1e-300, path_length=1e300)._n_leapfrogs(2).tolist() == [64, 64]


def test_what_is_a_kernel():
    class Some:
        def advance(self):
            pass

    kernel = pe.kernels.HMC()
    assert checked_kernel("kernel", kernel) is kernel
    with pytest.raises(ValueError, match=r"one of a, b or a kernel object .*got.*HMC"):
        checked_kernel("kernel", pe.kernels.HMC, ["a", "b"])
    with pytest.raises(ValueError, match=r"without reversed, settings; pas"):
        checked_kernel("kernel", Some())


def test_a_kernel_without_a_check_answers_for_itself():
    assert check_moves(object(), CONTINUOUS) is None
    moving_one = SimpleNamespace(check=lambda target: np.array([0]))
    check_moves(moving_one, CONTINUOUS, all_of=np.array([0]))
    with pytest.raises(ValueError, match="does not move 1, the first at position 1; combine it"):
        check_moves(moving_one, CONTINUOUS)
