"""A density fitted to a population: as many components as it has parts, and never light tails."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.references.mixture import fit_population

WIDE = 1  # every fit has a wide component besides


def population(centres, n, d, seed=1):
    rng = np.random.default_rng(seed)
    return rng.choice(centres, n)[:, None] + rng.normal(size=(n, d))


@pytest.mark.parametrize(("centres", "components"), [((0.0,), 1), ((-5.0, 5.0), 2)])
def test_number_of_components(centres, components):
    """One component over two modes would put its draws between them."""
    fit = fit_population(population(centres, 1000, 2), np.random.default_rng(2))
    assert len(fit.components) == components + WIDE


def test_weights_are_those_of_the_parts():
    """A mode with too little weight would have few draws."""
    rng = np.random.default_rng(3)
    x = np.where(rng.uniform(size=2000) < 0.2, -6.0, 6.0)[:, None] + rng.normal(size=(2000, 1))
    fit = fit_population(x, rng)
    grid = np.linspace(-60.0, 0.0, 20_001)
    share = np.exp(fit.log_density(grid[:, None])).sum() * (grid[1] - grid[0])
    assert abs(share - 0.2) < 0.05


def test_importance_weights_are_bounded():
    """With lighter tails than the target, the weights of rare draws would have no variance."""
    fit = fit_population(population((0.0,), 500, 1), np.random.default_rng(4))
    far = np.array([[-30.0], [30.0]])
    assert (fit.log_density(far) > stats.norm.logpdf(far[:, 0])).all()


def test_heavy_tails_are_stretched():
    """A Student-t density over a Cauchy population would miss its tails or its centre."""
    x = stats.cauchy.rvs(size=(2000, 1), random_state=5)
    fit = fit_population(x, np.random.default_rng(6))
    x = fit.draw(20_000, np.random.default_rng(7))
    log_weight = stats.cauchy.logpdf(x[:, 0]) - fit.log_density(x)
    assert np.exp(log_weight).mean() == pytest.approx(1.0, abs=0.05)


def test_few_draws_in_many_dimensions_get_one_component():
    """Covariances of components cannot be learnt from a few draws."""
    fit = fit_population(population((-5.0, 5.0), 60, 20), np.random.default_rng(8))
    assert len(fit.components) == 1 + WIDE
    assert np.isfinite(fit.draw(10, np.random.default_rng(9))).all()
