"""Draws that a user hands over: what they say against themselves."""

import numpy as np
import pytest
import xarray as xr

from pm_evidence.results.stored import doubt_of_draws, doubt_of_few, n_divergent
from tests.posteriors import autoregressive

NOTHING = xr.DataTree()


def tree(diverging):
    return xr.DataTree.from_dict(
        {"sample_stats": xr.Dataset({"diverging": (("chain", "draw"), np.asarray(diverging))})}
    )


def independent(seed, n_chains=2, n_draws=500, *shape):
    return np.random.default_rng(seed).normal(size=(n_chains, n_draws, *shape))


def test_good_draws_raise_no_alarm():
    """20 posteriors of 50 coordinates, two short chains each; seeds 0 to 19."""
    for seed in range(20):
        assert (
            doubt_of_draws(tree(np.zeros((2, 500), bool)), {"x": independent(seed, 2, 500, 50)})
            == ""
        )


def test_divergences_are_counted():
    diverging = np.zeros((2, 500), bool)
    diverging[1, :31] = True
    found = doubt_of_draws(tree(diverging), {"x": independent(1)})
    assert found == "31 of 1000 draws ended in a divergence"


def test_the_worst_variable_is_named():
    draws = {"good": independent(1), "bad": independent(2, 4, 500, 3), "worse": independent(3)}
    draws["bad"][0, :, 1] += 0.7
    draws["worse"][0] += 3.0
    found = doubt_of_draws(NOTHING, draws)
    assert found.startswith("R-hat of 'worse' is 1.")
    both = doubt_of_draws(tree([[True] * 500, [False] * 500]), draws)
    assert "500 of 1000 draws ended in a divergence, and R-hat of 'worse'" in both


def test_a_tolerated_share_of_divergences():
    diverging = np.zeros((2, 500), bool)
    diverging[0, :5] = True
    assert n_divergent(tree(diverging)) == (5, 1000)
    assert doubt_of_draws(tree(diverging), {"x": independent(1)}, 0.005) == ""
    assert "5 of 1000" in doubt_of_draws(tree(diverging), {"x": independent(1)}, 0.004)


@pytest.mark.parametrize("name", ["tune", "tuning"])
def test_flags_of_the_warm_up(name):
    """PyMC and nutpie have a name each."""
    flags = xr.Dataset({name: (("chain", "draw"), np.arange(500) < np.full((2, 1), 30))})
    found = doubt_of_draws(xr.DataTree.from_dict({"sample_stats": flags}), {"x": independent(1)})
    assert found == "60 draws belong to the warm-up"


def test_few_effective_draws():
    """Few draws, chains that are slow in one coordinate, and chains of three draws."""
    assert "effective number of draws of 'x' is" in doubt_of_few({"x": independent(1, 4, 40)})
    slow = independent(1, 4, 1000, 30)
    slow[:, :, 17] = autoregressive(np.random.default_rng(1), 4, 1000, 0.97)[:, :, 0]
    found = doubt_of_few({"good": independent(2, 4, 1000), "slow": slow})
    assert "effective number of draws of 'slow'" in found and found.endswith("below 400")
    assert "of 'x' is 12, below 400" in doubt_of_few({"x": independent(1, 4, 3)})


def test_a_single_chain():
    assert doubt_of_few({"x": independent(1, 1, 2000)}).startswith("a single chain does not show")
