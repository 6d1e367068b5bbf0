"""Weights on the way round a transition, against plain sums over colours."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pm_evidence.families.lattice.path import DetouredPath
from pm_evidence.families.lattice.target import Ising, Potts


def density(path, draws, beta):
    """Return the log density of some states by its definition."""
    rows = draws.reshape(len(draws), -1)
    colours = (-1, 1) if isinstance(path.target, Ising) else range(path.target.q)
    counts = np.stack([(rows == colour).sum(1) for colour in colours])
    favour = logsumexp(path.field(beta) * counts, axis=0) - np.log(len(colours))
    return -beta * path.target.energy(draws) + favour


@pytest.mark.parametrize("target", [Ising(16), Ising((3, 5), 0.3), Potts(16), Potts(4, q=2)])
@pytest.mark.parametrize("height", [0.01, 0.5, 5.0])
def test_log_ratios_are_those_of_the_density(target, height):
    """In order all but one colour are negligible, and in between and near the ends none is."""
    rng = np.random.default_rng(1)
    path = DetouredPath(target, height)
    draws = path.draw(70, np.random.SeedSequence(2)).to_draws()
    for k in range(len(draws)):  # from order to disorder
        some = rng.uniform(size=target.sizes) < k / len(draws)
        draws[k][some] = draws[k].flat[0]
    state = path.at(draws)
    for start, stop in ((0.0, 0.01), (0.3, 0.31), (0.99, 0.98), (0.4, 1.0)):
        expected = density(path, draws, stop) - density(path, draws, start)
        np.testing.assert_allclose(
            path.log_ratio(state, start, stop), expected, rtol=1e-11, atol=1e-10
        )
