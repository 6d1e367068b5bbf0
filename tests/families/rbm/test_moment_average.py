"""Moment-averaged paths: exact whatever their knots are, and knots with the right moments."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.families.rbm.moment_average import (
    MomentAveragedPath,
    SegmentGibbs,
    averaged_machines,
)
from pm_evidence.testing import check_kernel, check_path, exact_moments, sine_rbm
from tests.families.rbm.machines import bits, log_z, sine


@pytest.fixture(scope="module")
def path():
    """Knots at multiples of a seventh, which no check of a derivative meets."""
    return MomentAveragedPath(sine(base=np.linspace(0.3, 0.7, 16)), n_knots=6, n_updates=50)


def test_it_is_a_path_with_a_kernel(path):
    check_path(path)
    check_kernel(SegmentGibbs(n_sweeps=2), path)


def test_both_ends_are_those_of_the_geometric_path(path):
    geometric = sine(base=np.linspace(0.3, 0.7, 16)).annealing_setup("auto").path
    draws = bits(6, 28)
    expected = geometric.log_ratio(geometric.at(draws), 0.0, 1.0)
    np.testing.assert_allclose(path.log_ratio(path.at(draws), 0.0, 1.0), expected, rtol=1e-10)
    from_other_segment = path.log_ratio(path.at(draws, segment=4), 0.0, 1.0)
    np.testing.assert_allclose(from_other_segment, expected, rtol=1e-10)


def test_moments_of_the_knots_lie_evenly_between_those_of_the_ends():
    """Exact moments by enumeration; those of the end are known from 1,024 states only."""
    W, visible_bias, hidden_bias = sine_rbm(10, 6)
    machine = pe.rbm.RBM(W, visible_bias - 2.0, hidden_bias - 1.0, base="uniform")
    machines = averaged_machines(machine, 3, 300)
    exact = [exact_moments(m.W, m.visible_bias, m.hidden_bias) for m in machines]
    first, last = exact[0], exact[-1]
    for k, found in enumerate(exact):
        for layer in ("visible", "hidden"):
            wanted = (1 - k / 4) * getattr(first, layer) + k / 4 * getattr(last, layer)
            np.testing.assert_allclose(getattr(found, layer), wanted, atol=0.05)
    geometric = machines[0].between(machines[-1], 0.5)
    middle = exact_moments(geometric.W, geometric.visible_bias, geometric.hidden_bias)
    wanted = 0.5 * (first.visible + last.visible)
    assert abs(exact[2].visible - wanted).mean() < 0.2 * abs(middle.visible - wanted).mean()


@pytest.mark.slow
@pytest.mark.parametrize("n_updates", [5, None])
def test_a_run_along_it_finds_log_z(n_updates):
    """Whatever the knots are: they are fitted by few updates here, and by default."""
    machine, path = sine(data=bits(40, 16)), "moment_average"
    if n_updates:
        path = pe.paths.MomentAveragedPath(machine, n_knots=2, n_updates=n_updates)
    dt = pe.sample_evidence(
        machine,
        path=path,
        method=pe.methods.AIS(n_stages=200),
        draws=512,
        target_mcse=None,
        random_seed=1,
        progressbar=False,
    )
    found = pe.log_evidence(dt)
    assert found.status == "ok" and found.mcse < 0.03
    assert abs(found.value - log_z()) < 4 * found.mcse


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_knots": 0}, "n_knots must be a whole number of at least 1, got 0"),
        ({"n_updates": 1.5}, "n_updates must be a whole number of at least 1, got 1.5"),
    ],
)
def test_options_that_cannot_be_used(options, message):
    with pytest.raises(ValueError, match=message):
        MomentAveragedPath(sine(), **options)
