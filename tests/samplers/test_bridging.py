"""Islands are bridged with a density that was fitted to the other half of them."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from pm_evidence.core.numerics import ess_share
from pm_evidence.core.records import BlockRecord
from pm_evidence.kernels.cycle import choose_kernel
from pm_evidence.paths.geometric import GeometricPath, ReferencedPath
from pm_evidence.references.mixture import StudentFit
from pm_evidence.references.target import ReferencedTarget
from pm_evidence.samplers.bridge import Bridging, Costs
from pm_evidence.samplers.peaks import Survey
from pm_evidence.samplers.planning import Pilot
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.model.cache import target_of
from tests.samplers.modes import draws_of_modes
from tests.systems import deceptive
from tests.systems.exact import exact_systems

CASE = deceptive._MODES["two_widths_4"]


def serially(tasks):
    return [task() for task in tasks]


@pytest.fixture(scope="module")
def path():
    return GeometricPath(target_of(CASE.build(), backend="numpy"))


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
    # and so must be the number of draws
    one, two = (Bridging(path, 5, Costs(draws=4000)) for _ in range(2))
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
        # a tenth of the island's evaluations, and of its share of the survey and the fits
        assert (
            len(forward) == len(block.fit_draws) == int(0.1 * (9000 + bridging.n_evaluations / 6))
        )
        assert len(reverse) == len(block.draws)
        assert block.n_evaluations == 9000 + len(forward) + len(reverse)
        # the mean weight is Z, and its inverse at draws of the posterior is 1 / Z
        value = np.log(np.mean(np.exp(-forward)))
        inverse = np.log(np.mean(np.exp(reverse)))
        assert value == pytest.approx(CASE.log_evidence(), abs=0.15)
        assert inverse == pytest.approx(-CASE.log_evidence(), abs=0.3)


def test_known_densities_of_draws_are_not_evaluated_again(path):
    """The bridge is the same, and costs one evaluation less for each draw of the island."""
    islands = islands_of()
    posterior = path.posterior()
    known = [replace(b, log_density=posterior.log_density(b.draws)) for b in islands]
    pairs = zip(
        Bridging(path, 5).extend(islands, serially),
        Bridging(path, 5).extend(known, serially),
        strict=True,
    )
    for usual, saved in pairs:
        assert all(np.array_equal(a, b) for a, b in zip(usual.bridge, saved.bridge, strict=True))
        assert usual.n_evaluations - saved.n_evaluations == len(usual.draws)


def test_islands_know_the_density_of_their_draws():
    """Of the posterior with the normalised prior, from the prior and from a reference."""
    target = target_of(exact_systems()["ordered_two"].build(), backend="numpy")
    reference = StudentFit.to(target.draw(200, np.random.SeedSequence(1)).x)
    for found in (GeometricPath(target), ReferencedPath(ReferencedTarget(target, reference))):
        plan = Pilot(200, 4, 0.5).run(found, choose_kernel(found.target), 3)
        block = SMC(chain_length=4).run_block(found, plan, 0, 40, 3)
        expected = found.posterior().log_density(block.draws)
        np.testing.assert_allclose(block.log_density, expected, rtol=1e-12)


def test_discrete_models_have_no_bridge():
    path = GeometricPath(target_of(exact_systems()["sprinkler"].build()))
    bridging = Bridging(path, 5)
    blocks = [BlockRecord(i, np.zeros(1), None, draws=np.zeros((10, 3))) for i in range(2)]
    assert bridging.posterior is None
    assert bridging.extend(blocks, serially) == tuple(blocks) and bridging.facts() == {}


def test_islands_that_died_have_no_bridge(path):
    blocks = islands_of()
    blocks[2] = replace(blocks[2], draws=None)
    assert all(block.bridge is None for block in Bridging(path, 5).extend(blocks, serially))


def test_further_draws_join_those_of_the_same_density(path):
    bridging = Bridging(path, 5)
    first = bridging.extend(islands_of(), serially)
    spent = bridging.n_evaluations
    second = bridging.drawn_further(first, 70, serially)
    for a, b in zip(first, second, strict=True):
        n = len(a.fit_draws)
        assert np.array_equal(b.fit_draws[:n], a.fit_draws) and len(b.fit_draws) == n + 70
        assert np.array_equal(b.bridge[0][:n], a.bridge[0]) and len(b.bridge[0]) == n + 70
        assert not np.isin(b.bridge[0][n:], a.bridge[0]).any()  # they are new draws
        assert np.array_equal(b.bridge[1], a.bridge[1]) and b.draws is a.draws
        assert b.n_evaluations == a.n_evaluations + 70
    assert bridging.n_evaluations == spent


def test_a_second_fit_learns_from_the_draws_of_the_first():
    """Few draws give standard deviations; those of the first density give correlations too."""
    d, rng, prior_sd = 6, np.random.default_rng(4), 10.0
    posterior = 0.8 + 0.2 * np.eye(d)
    design = np.linalg.cholesky(np.linalg.inv(posterior) - np.eye(d) / prior_sd**2).T
    with pm.Model() as model:
        x = pm.Normal("x", 0, np.full(d, prior_sd), shape=d)
        pm.Normal("y", pt.as_tensor(design) @ x, np.float64(1.0), observed=np.zeros(d))
    marginal = prior_sd**2 * design @ design.T + np.eye(d)
    log_z = stats.multivariate_normal.logpdf(np.zeros(d), cov=marginal)
    few = [
        BlockRecord(
            i, np.array([-log_z]), None, draws=rng.multivariate_normal(np.zeros(d), posterior, 6)
        )
        for i in range(6)
    ]
    costs = Costs(survey=0, share=0.0, trial=100, draws=400)
    bridging = Bridging(GeometricPath(target_of(model)), 5, costs)
    bridging.found = Survey()  # no peak is known
    first = bridging.extend(few, serially)
    second = bridging.refitted(first, 1.5, serially)
    log_weights = [
        -np.concatenate([block.bridge[0] for block in blocks]) for blocks in (first, second)
    ]
    assert ess_share(log_weights[1]) > 2.0 * ess_share(log_weights[0])
    assert np.log(np.mean(np.exp(log_weights[1]))) == pytest.approx(log_z, abs=0.05)
    for a, b in zip(first, second, strict=True):
        assert len(b.bridge[0]) == len(b.fit_draws) == 600
        assert np.array_equal(a.draws, b.draws)
        assert b.n_evaluations == a.n_evaluations + 600 + len(b.draws)


def test_a_small_budget_buys_a_small_survey():
    """Of one mode: several take the usual one."""
    with pm.Model() as model:
        # not log-concave, so that it is searched
        pm.Normal("y", pm.StudentT("x", nu=30, shape=4), 1, observed=np.zeros(4))
    path, rng = GeometricPath(target_of(model)), np.random.default_rng(2)
    blocks = [
        replace(block, work=np.zeros(1), draws=rng.normal(0, 0.7, (200, 4)))
        for block in islands_of()
    ]
    spent = []
    for budget in (30_000, 3_000, 300):
        bridging = Bridging(path, 5, Costs(survey=budget, share=0.0))
        bridging.extend(blocks, serially)
        spent.append(bridging.found.n_evaluations)
    assert spent[1] < 0.2 * spent[0] and 300 < spent[2] < 0.5 * spent[1], spent
