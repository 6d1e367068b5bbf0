"""Islands are bridged with a density that was fitted to the other half of them."""

from dataclasses import replace

import numpy as np
import pytest

from pm_evidence.core.records import BlockRecord
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.samplers.bridging import Bridging
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.testing import deceptive, exact_systems
from tests.samplers.modes import draws_of_modes

CASE = deceptive._MODES["two_widths_4"]


def serially(tasks):
    return [task() for task in tasks]


@pytest.fixture(scope="module")
def path():
    return GeometricPath(PyMCTarget(CASE.build()))


def islands_of(n=6, first=0, seed=1):
    rng = np.random.default_rng([seed, first])
    work = np.array([-CASE.log_evidence()])
    return [
        BlockRecord(first + i, work, None, draws=draws_of_modes(CASE, 200, rng), n_evaluations=9000)
        for i in range(n)
    ]


def test_no_island_meets_a_density_that_was_fitted_to_it(path):
    """Other draws of the islands of even number change what the odd ones are bridged with alone."""
    blocks = islands_of()
    other = [
        replace(block, draws=np.asarray(block.draws) + 0.05) if block.block % 2 == 0 else block
        for block in blocks
    ]
    # the survey sees all draws, so that it must be the same
    one, two = Bridging(path, 5), Bridging(path, 5)
    first = one.extend(blocks, serially)
    two.found = one.found
    second = two.extend(other, serially)
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a.fit_draws, b.fit_draws) == (a.block % 2 == 0)


def test_a_further_round_leaves_the_bridges_of_earlier_ones(path):
    bridging = Bridging(path, 5)
    first = bridging.extend(islands_of(), serially)
    spent = bridging.n_evaluations
    second = bridging.extend([*first, *islands_of(first=6)], serially)
    for a, b in zip(first, second[:6], strict=True):
        assert a is b
    assert all(block.bridge is not None for block in second)
    assert bridging.n_evaluations - spent < 0.5 * spent  # fits, and no second survey


def test_work_of_both_sides(path):
    """The log ratio of the densities at the draws that are kept, of either sign as documented."""
    bridging = Bridging(path, 5)
    for block in bridging.extend(islands_of(), serially):
        forward, reverse = block.bridge
        assert len(forward) == len(block.fit_draws) == 900  # a tenth of the island's evaluations
        assert len(reverse) == len(block.draws)
        assert block.n_evaluations == 9000 + len(forward)
        # the mean weight is Z, and its inverse at draws of the posterior is 1 / Z
        value = np.log(np.mean(np.exp(-forward)))
        inverse = np.log(np.mean(np.exp(reverse)))
        assert value == pytest.approx(CASE.log_evidence(), abs=0.15)
        assert inverse == pytest.approx(-CASE.log_evidence(), abs=0.3)


def test_discrete_models_have_no_bridge():
    path = GeometricPath(PyMCTarget(exact_systems()["sprinkler"].build()))
    bridging = Bridging(path, 5)
    blocks = [BlockRecord(i, np.zeros(1), None, draws=np.zeros((10, 3))) for i in range(2)]
    assert not bridging.possible
    assert bridging.extend(blocks, serially) == tuple(blocks) and bridging.facts() == {}


def test_islands_that_died_have_no_bridge(path):
    blocks = islands_of()
    blocks[2] = replace(blocks[2], draws=None)
    assert all(block.bridge is None for block in Bridging(path, 5).extend(blocks, serially))
