"""Are the intervals of each route right? 100 runs each of ten systems or more for either route.

Default runs are made, of which those count that end on the first route, and runs of
``pe.methods.SMC()``, which is what the second route does. Of these at least 90 % have to be "ok".
Of those that are

- nominal 95 % intervals cover the exact value in 90 % at least, or as far below as chance allows
  where fewer than 90 runs count;
- errors divided by ``mcse`` have a standard deviation of at least 0.7. Nothing else bounds how wide
  the intervals are: at 0.7 they cover 99.5 %. The error of the first route includes what its few
  posterior draws may miss (``unseen_share``);
- at most 3 % are more than three of their errors off, and 1 % more than five;
- the mean of Z agrees with the exact value within 4 of its standard errors.

Half of the systems have several modes, a funnel or a bent ridge. Seeds are fixed, and a right
program that passed once passes again. All runs take about 20 minutes of one core.
"""

import pytest

import pm_evidence as pe
from tests.repeated_runs import Rules, repeat_system

N_SEEDS, LEAST_RUNS = 100, 30
RULES = Rules(N_SEEDS, highest=1.0, least_spread=0.7, most_distant=0.03, most_far=0.011)

OPTIONS = {"importance": {"route": "importance"}, "annealing": {"method": pe.methods.SMC()}}
BOTH = [
    "normal_inverse_gamma",
    "student_t_groups",
    "eight_schools_half_normal_noncentred",
    "half_cauchy_scale",
    "label_switching",
    "bimodal_10",
    "funnel",
]
LOG_CONCAVE = ["gamma_poisson", "mvnormal_mean", "random_walk"]
SYSTEMS = {
    "importance": [
        *BOTH,
        "lkj_covariance",
        "two_widths_6",
        "three_widths_8",
        *LOG_CONCAVE,
        "one_way_noncentred",
    ],
    "annealing": [*BOTH, "banana", "gaussian_shells", "one_way_noncentred"],
}
CASES = [(route, name) for route, names in SYSTEMS.items() for name in names]


@pytest.mark.slow
@pytest.mark.parametrize(("route", "name"), CASES)
def test_coverage(route, name):
    repeated = repeat_system(name, range(N_SEEDS), cores=1, **OPTIONS[route])
    assert len(repeated.ok) >= LEAST_RUNS
    RULES.check(repeated, f"{name}, {route}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal_inverse_gamma", "eight_schools_half_cauchy_centred"])
def test_coverage_of_small_errors(name):
    """A run that ended as soon as its error seems small enough would state too small an error."""
    options = {"route": "importance", "target_mcse": 0.004, "cores": 1}
    repeated = repeat_system(name, range(N_SEEDS), **options)
    RULES.check(repeated, f"{name}, 0.004")
    assert len(repeated.ok) > 0.9 * N_SEEDS and repeated.z.std() < 1.2
