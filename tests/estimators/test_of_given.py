"""The verdicts on given draws: what contradicts them, and which estimate is recommended."""

from dataclasses import replace

import numpy as np
import pytest

from pm_evidence.core.records import BlockRecord, Facts, Role, RunRecord, StageTrace
from pm_evidence.estimators.of_islands import of_given

NO_TRACE = StageTrace(*np.empty((4, 0)))
LOG_Z = -3.0
GOOD = {"doubt": "", "n_divergent": 0, "moment_distance": 1.0}


def record(annealed=LOG_Z, shift=0.0, spread=0.3, n=250, **facts):
    """Work of lognormal weights: of draws from a fit, of posterior draws, and of islands.

    ``shift`` in nats is what the bridge misses: the given draws see a smaller evidence.
    """
    rng = np.random.default_rng(1)
    blocks = [
        BlockRecord(
            i,
            np.array([-LOG_Z]),
            NO_TRACE,
            bridge=(
                rng.normal(-LOG_Z + 0.5 * spread**2, spread, n),
                rng.normal(-LOG_Z - 0.5 * spread**2, spread, n) + shift,
            ),
        )
        for i in range(16)
    ]
    islands = [
        BlockRecord(i, np.array([-annealed + 0.1 * rng.normal()]), NO_TRACE) for i in range(8)
    ]
    return RunRecord(
        "bridge_sampling",
        np.array([0.0, 1.0]),
        {Role.FORWARD: islands, Role.GIVEN: blocks},
        facts=Facts(**{**GOOD, **facts}),
    )


def test_good_draws():
    """The bridge comes first, and the annealing last."""
    found = of_given(record())
    assert [each.estimator for each in found] == ["bridge", "importance", "smc"]
    assert {each.status for each in found} == {"ok"}
    assert abs(found[0].value - LOG_Z) < 4.0 * found[0].mcse
    run = record()  # islands enter by their work alone
    islands = [replace(block, n_evaluations=7) for block in run.of(Role.FORWARD)]
    assert of_given(run.updated(Role.FORWARD, islands)) == found


def test_annealing_that_finds_more():
    """A mode that the chains missed. The annealing itself keeps its status."""
    found = of_given(record(annealed=LOG_Z + 1.5))
    assert [each.status for each in found] == ["missed_mass", "missed_mass", "ok"]
    assert "a small annealing from the prior gives -1." in found[0].message
    # one that finds less is coarse, and its own shortcomings are none of the draws
    assert of_given(record(annealed=LOG_Z - 2.0))[0].status == "ok"


def test_doubt_is_said_of_all_estimates():
    """Also of one that is right without the draws: the posterior is to be sampled again."""
    found = of_given(record(doubt="R-hat of 'x' is 1.20, above 1.05"))
    assert [each.status for each in found] == ["doubtful_draws", "doubtful_draws", "ok"]
    assert "R-hat of 'x' is 1.20" in found[0].message and "target_accept" in found[0].message


def test_moments_that_differ():
    """Modes with wrong shares."""
    assert of_given(record(moment_distance=6.0))[0].status == "inconsistent"
    assert of_given(record(moment_distance=4.0))[0].status == "ok"


def test_draws_of_another_posterior():
    """The two sides of the bridge contradict each other."""
    for shift in (-1.0, 1.0):
        assert of_given(record(shift=shift))[0].status in ("inconsistent", "missed_mass")


@pytest.mark.parametrize(("spread", "status"), [(0.3, "ok"), (3.0, "doubtful_draws")])
def test_a_few_divergences(spread, status):
    """They count where the weights of importance sampling have a heavy tail."""
    found = of_given(record(spread=spread, n_divergent=3))[0]
    assert found.status == status
    assert status == "ok" or "3 draws ended in a divergence" in found.message


def test_the_reason_of_an_estimate_is_kept():
    """Otherwise a poor fit would be hidden behind the doubt."""
    alone = of_given(record(spread=5.0))
    poor = next(each for each in alone if each.status != "ok")
    both = of_given(record(spread=5.0, doubt="a single chain"))
    found = next(each for each in both if each.estimator == poor.estimator)
    assert poor.message in found.message and "a single chain" in found.message
