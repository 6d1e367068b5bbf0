"""Peaks of the hyperparameters are found, narrow ones as well, or it is known that some are not."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import logsumexp

from pm_evidence.core.shape import learn_shape
from pm_evidence.paths.geometric import Posterior
from pm_evidence.samplers.conditional import ConditionalFits
from pm_evidence.samplers.nested_laplace import HyperparameterGrid, Predictions, Regions
from pm_evidence.targets.model.cache import target_of

Y = np.random.default_rng(1).normal(size=6)


def model_with(log_density, k):
    """Effects whose mean moves with the hyperparameters, which have a density of their own."""
    with pm.Model() as model:
        t, effect = pm.Normal("t", 0, 1, shape=k), pm.Normal("effect", 0, 1, shape=Y.size)
        pm.Normal("y", effect + 0.3 * t[0], 0.5, observed=Y)
        pm.Potential("density", log_density(t))
    return model


def squares(t, at, width):
    return (((t - at) / width) ** 2).sum()


def narrow_peak(at, width, log_mass=1.0):
    """A broad peak, and a narrow one of more mass."""

    def log_density(t):
        height = log_mass - t.type.shape[0] * np.log(width)
        narrow = height - 0.5 * squares(t, at, width)
        return pm.math.logaddexp(-0.5 * squares(t, 0.0, 0.5), narrow)

    return log_density


def of(model, n, seed=1):
    """Return approximations, prior draws and ``n`` prior draws of the hyperparameters."""
    target = target_of(model, backend="numpy")
    posterior = Posterior(target)
    given = target.layout.positions_of([target.layout.variables[0]])
    rng = np.random.default_rng(seed)
    prior = posterior.draw_prior(20, rng)
    shape = learn_shape(prior, dense=False)
    conditional = ConditionalFits(posterior, given, shape)
    return conditional, prior[:5], posterior.draw_prior(n, rng)[:, given]


def mass(regions):
    return logsumexp(
        [
            fit.log_mass + lattice.log_volume
            for lattice in regions.lattices
            for fit in lattice.known.values()
        ]
    )


def exact_mass(at, width, k, log_mass=1.0):
    """Log evidence, as the sum over two peaks of products of normal densities."""
    total = []
    for height, mean, scale in ((0.0, 0.0, 0.5), (log_mass - k * np.log(width), at, width)):
        grid = mean + scale * np.linspace(-9, 9, 4001)
        each = stats.norm.logpdf(grid) - 0.5 * ((grid - mean) / scale) ** 2
        each += np.log(grid[1] - grid[0])
        first = each + stats.norm.logpdf(Y[:, None], 0.3 * grid, np.sqrt(1.25)).sum(axis=0)
        total.append(height + logsumexp(first) + (k - 1) * logsumexp(each))
    return logsumexp(total)


@pytest.mark.parametrize(
    ("k", "at", "width"),
    [
        (1, 0.3, 0.01),
        pytest.param(1, 2.0, 0.01, marks=pytest.mark.slow),
        pytest.param(2, 0.5, 0.05, marks=pytest.mark.slow),
        pytest.param(3, 0.5, 0.2, marks=pytest.mark.slow),
    ],
)
def test_narrow_peaks_are_found(k, at, width):
    """Also one within the lattice of the broad peak, between the points of which it lies."""
    model = model_with(narrow_peak(at, width), k)
    for seed in range(3):
        conditional, draws, values = of(model, 3000, seed)
        regions = Regions(conditional)
        regions.climb(draws)
        assert regions.search(values, np.random.default_rng(seed))
        places = np.array([lattice.highest.values for lattice in regions.lattices])
        assert np.abs(places - at).max(axis=1).min() < 2.0 * width
        assert conditional.n_evaluations < 20_000
        assert mass(regions) == pytest.approx(exact_mass(at, width, k), abs=0.1)


def test_a_low_plateau_is_not_overlooked():
    """It has a tenth of the mass, and is nearly seven nats lower than the peak."""

    def log_density(t):
        return pm.math.logaddexp(np.log(0.1), np.log(100) - 0.5 * squares(t, 0.0, 0.01))

    conditional, draws, values = of(model_with(log_density, 1), 3000)
    draws[:, conditional.given] *= 1e-3
    regions = Regions(conditional)
    regions.add(conditional.first(draws[0]), 0.01 * conditional.scale)
    assert not regions.search(values, np.random.default_rng(1))


def test_a_smooth_density_needs_few_approximations():
    conditional, draws, values = of(model_with(lambda t: -0.5 * squares(t, 1.0, 0.3), 2), 2000)
    regions = Regions(conditional)
    regions.climb(draws)
    before = conditional.n_evaluations
    assert regions.search(values, np.random.default_rng(1)) and len(regions.lattices) == 1
    assert conditional.n_evaluations - before < 8000


@pytest.mark.slow
def test_a_density_with_kinks_is_given_up():
    """Steps from one approximation to the next fail there, at a cost of thousands of gradients."""
    rng = np.random.default_rng(37)
    group, effects = np.repeat(np.arange(7), 4), rng.laplace(0.0, 1.0, 7)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 2.0)
        effect = pm.Laplace("effect", 0.0, 1.0, shape=7)
        pm.Normal("y", scale * effect[group], 0.8, observed=rng.normal(effects[group], 0.8))
    conditional, draws, values = of(model, 3000)
    regions = Regions(conditional)
    regions.climb(draws)
    assert not regions.lattices or not regions.search(values, np.random.default_rng(1))
    assert conditional.n_evaluations < 60_000


def test_predictions_are_wrong_at_a_narrow_peak():
    at, width = 1.5, 0.02
    conditional, draws, _ = of(model_with(narrow_peak(at, width), 1), 0)
    values = np.linspace(-3.0, 3.0, 601)[:, None]
    lattice = HyperparameterGrid(conditional, conditional.first(draws[0]), 0.25 * conditional.scale)
    assert lattice.fill(-np.inf)
    predictions = Predictions(conditional, values, len(values))
    predictions.add_lattice(lattice)
    found = []
    while chosen := predictions.wrong(lattice.highest.log_mass):
        found.extend(values[chosen, 0])
        assert len(predictions.fitted(chosen)) == len(chosen)
    assert any(abs(each - at) < 3.0 * width for each in found)
    assert len(found) < 60 and predictions.share_unknown == 0.0


def test_steps_from_several_points_lead_to_several_maxima():
    """Those of two peaks, and of one peak once."""
    peaks = {-1.2: [], 1.2: []}

    def log_density(t):
        return pm.math.logaddexp(*(-0.5 * squares(t, at, 0.1) for at in peaks))

    conditional, draws, _ = of(model_with(log_density, 1), 0)
    lattice = HyperparameterGrid(conditional, conditional.first(draws[0]), np.array([0.05]))
    starts = [lattice.nearest(np.array([at])) for at in (-1.5, -1.0, 1.0, 1.4)]
    for top in lattice.tops(starts):
        value = lattice.found[top].values[0]
        peaks[min(peaks, key=lambda at: abs(at - value))].append(value)
    for at, tops in peaks.items():
        assert len(tops) == 1 and abs(tops[0] - at) < 0.06


def test_mass_outside_of_a_lattice_is_estimated():
    """Two equal peaks, of which the lattice holds one."""

    def log_density(t):
        return pm.math.logaddexp(-0.5 * squares(t, -1.2, 0.1), -0.5 * squares(t, 1.2, 0.1))

    conditional, draws, values = of(model_with(log_density, 1), 3000)
    start = draws[0].copy()
    start[conditional.given] = -1.2
    lattice = HyperparameterGrid(conditional, conditional.first(start), np.array([0.1]))
    assert lattice.fill(-np.inf)
    predictions = Predictions(conditional, values, len(values))
    predictions.add_lattice(lattice)
    while chosen := predictions.wrong(lattice.highest.log_mass):
        predictions.fitted(chosen)
    share, (i,) = predictions.outside()
    # the likelihood of the mean of the data makes the other peak larger or smaller
    ratio = np.exp(2.4 * 0.3 * Y.sum() / 1.25)
    assert share == pytest.approx(ratio, rel=0.2) and abs(values[i, 0] - 1.2) < 0.4
