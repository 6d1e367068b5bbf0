"""The bridge estimator: Bennett's ratio, per block."""

import numpy as np
import pytest
from pymbar.other_estimators import bar as pymbar_bar

from pm_evidence.estimators import bridge, recommend
from pm_evidence.estimators.bar import bar_log_evidence
from pm_evidence.estimators.bridge import fit_share
from pm_evidence.estimators.jarzynski import jarzynski

LOG_Z = -7.3


def gaussian_works(rng, n_forward, n_reverse, sd=1.0):
    """Work of a Gaussian ratio: Crooks' theorem fixes the reverse mean from the forward one."""
    forward = rng.normal(-LOG_Z + 0.5 * sd**2, sd, n_forward)
    reverse = rng.normal(-LOG_Z - 0.5 * sd**2, sd, n_reverse)
    return forward, reverse


@pytest.mark.parametrize(("n_forward", "n_reverse"), [(500, 500), (100, 2000), (3000, 50)])
def test_agrees_with_pymbar(n_forward, n_reverse):
    """Another implementation of the same equation has the same root, also for unequal numbers."""
    forward, reverse = gaussian_works(np.random.default_rng(1), n_forward, n_reverse, 2.0)
    theirs = pymbar_bar(forward, -reverse, relative_tolerance=1e-14)["Delta_f"]
    assert bar_log_evidence(forward, reverse) == pytest.approx(-theirs, abs=1e-8)


def test_weight_zero_is_legal_and_counts():
    """Draws outside the target's support lower Z by their share."""
    forward, reverse = gaussian_works(np.random.default_rng(2), 20_000, 20_000)
    outside = np.concatenate([forward, np.full(20_000, np.inf)])
    shifted = bar_log_evidence(outside, reverse)
    assert shifted == pytest.approx(LOG_Z - np.log(2), abs=0.03)


def test_intervals_cover():
    """200 repetitions; a true coverage of 95 % passes with probability 0.999."""
    rng = np.random.default_rng(3)
    covered = []
    for _ in range(200):
        evidence = bridge([gaussian_works(rng, 100, 100, 1.5) for _ in range(16)])
        assert evidence.status == "ok"
        covered.append(evidence.lower <= LOG_Z <= evidence.upper)
    assert 0.90 <= np.mean(covered) <= 0.995


def test_a_shift_of_the_reverse_work_is_noticed():
    """Planted error: with the sign of the reverse work wrong the interval misses the truth."""
    rng = np.random.default_rng(4)
    works = [gaussian_works(rng, 200, 200) for _ in range(16)]
    wrong = bridge([(forward, reverse + 1.0) for forward, reverse in works])
    assert not wrong.lower <= LOG_Z <= wrong.upper


def test_no_overlap_is_a_status_and_not_a_number():
    far = bridge([(np.full(10, np.inf), np.zeros(10)) for _ in range(4)])
    assert np.isnan(far.value)
    assert far.status == "no_overlap"


def test_a_poor_fit_has_no_error():
    """Where a few draws of the fitted density carry all the weight, no error is stated."""
    rng = np.random.default_rng(5)
    evidence = bridge([gaussian_works(rng, 200, 200, 4.0) for _ in range(8)])
    assert evidence.status == "low_overlap"
    assert np.isnan(evidence.mcse)


def test_nan_work_is_refused():
    with pytest.raises(ValueError, match="work_forward must be a number or inf, got nan"):
        bridge([(np.array([np.nan, 1.0]), np.zeros(2))] * 2)


def make_pair(sd, shift=0.0):
    rng = np.random.default_rng(6)
    works = [gaussian_works(rng, 500, 500, sd) for _ in range(16)]
    smc = jarzynski(rng.normal(-LOG_Z + shift, 0.05, 16), name="smc")
    return smc, bridge(works), works


def test_a_good_fit_recommends_the_bridge():
    smc, of_bridge, works = make_pair(0.5)
    assert fit_share(works) > 0.05
    assert [e.estimator for e in recommend(smc, of_bridge, works)] == ["bridge", "smc"]


def test_a_poor_fit_recommends_annealing():
    smc, of_bridge, works = make_pair(2.0)
    assert fit_share(works) < 0.05
    assert [e.estimator for e in recommend(smc, of_bridge, works)] == ["smc", "bridge"]


def test_disagreement_is_a_status_of_both():
    smc, of_bridge, works = make_pair(0.5, shift=1.0)
    first, second = recommend(smc, of_bridge, works)
    assert first.status == second.status == "inconsistent"
    assert "combined errors apart" in first.message
