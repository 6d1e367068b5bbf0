"""Paths round a transition, by plain sums over values, and how lattices are annealed by default."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pm_evidence.families.lattice.ising import SpinCounts, SpinHeatBath
from pm_evidence.families.lattice.lattice import DetouredPath, LatticePath
from pm_evidence.families.lattice.potts import ColourCounts, ColourHeatBath
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
    assert path.field(0.0) == path.field(1.0) == 0.0  # ends are the reference and the target
    assert path.field(0.5) == pytest.approx(height)
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


# --- what a field in favour of every value adds ---


def expected_of(counts, fields, slope):
    """Energies and log ratios of ``log(sum_k exp(h n_k))``; counts have shape (m, q, n)."""
    before, after = (np.asarray(h)[:, None, None] * counts for h in fields)
    share = np.exp(before - logsumexp(before, axis=1, keepdims=True))
    energy = -slope[:, None] * (share * counts).sum(axis=1)
    return energy, logsumexp(after, axis=1) - logsumexp(before, axis=1)


def some_fields(rng, m):
    """From none to so strong a one that a single value is left."""
    return rng.uniform(0.0, 1.0, (2, m)) * 10.0 ** rng.uniform(-4, 1, m)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("q", [2, 3, 10])
def test_colours(seed, q):
    rng = np.random.default_rng(seed)
    m, n, n_sites = 4, 7, 60
    counts = np.moveaxis(rng.multinomial(n_sites, rng.dirichlet(np.full(q, 0.3)), (m, n)), 2, 1)
    fields, slope = some_fields(rng, m), rng.normal(size=m)
    energy, ratio = np.zeros((m, n)), np.zeros((m, n))
    state = ColourCounts(counts[:, 0], np.ascontiguousarray(counts, np.int32))
    state.favour(Potts((6, 10), q), fields, slope, energy, ratio)
    for found, exact in zip((energy, ratio), expected_of(counts, fields, slope), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_spins(seed):
    """Two values: and what is there already is kept."""
    rng = np.random.default_rng(seed)
    m, n, n_sites = 4, 7, 60
    up = rng.integers(0, n_sites + 1, (m, n)).astype(np.int32)
    fields, slope = some_fields(rng, m), rng.normal(size=m)
    start = rng.normal(size=(2, m, n))
    energy, ratio = start.copy()
    SpinCounts(up, up).favour(Ising((6, 10)), fields, slope, energy, ratio)
    exact = expected_of(np.stack([n_sites - up, up], axis=1), fields, slope)
    np.testing.assert_allclose(energy - start[0], exact[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ratio - start[1], exact[1], rtol=1e-9, atol=1e-9)


# --- the setup ---


def test_only_attraction_without_a_field_has_a_transition_to_go_round():
    assert Ising(4).annealing_setup("auto").path == DetouredPath(Ising(4), 0.5)
    assert Potts(4).annealing_setup("auto").path == DetouredPath(Potts(4), 0.8)
    for target in (Ising(4, field=0.1), Ising(4, coupling=-1.0), Ising(4, coupling=0.0)):
        assert target.annealing_setup("auto").path == LatticePath(target)
    assert type(Ising(4).annealing_setup("wolff").path) is LatticePath


def test_stages_grow_with_the_sites_as_far_as_they_are_affordable():
    """64 for each site, a thousand at the least, and 67 million moves of sites at the most."""
    found = [Ising(size).annealing_setup("auto").n_stages for size in (2, 4, 16, 64)]
    assert found == [1000, 1024, 16_384, 16_357]


def test_odd_periodic_lattices_are_swept_site_after_site():
    """A checkerboard has two neighbours of one colour at their seam."""
    targets = Ising((4, 6)), Ising((5, 6)), Ising((5, 6), periodic=False)
    orders = [target.annealing_setup("auto").kernel.order for target in targets]
    assert orders == ["checkerboard", "sequential", "checkerboard"]


def test_kernels_of_the_user():
    kernel = SpinHeatBath(n_sweeps=3)
    assert Ising(4).annealing_setup(kernel).kernel is kernel
    assert isinstance(Potts(4, 3).annealing_setup("auto").kernel, ColourHeatBath)
    for wrong, message in (
        ("wolf", "kernel must be one of 'auto', 'heat_bath'"),
        (ColourHeatBath(), "kernel must be one of auto, heat_bath, .* or such a kernel object"),
        (SpinHeatBath(), "order must not be 'checkerboard'"),
    ):
        with pytest.raises(ValueError, match=message):
            Ising(5).annealing_setup(wrong)
