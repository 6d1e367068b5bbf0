"""Are the intervals of parallel and simulated tempering right? 100 runs each of eight systems.

What is checked are the estimates of the chains themselves, ``mbar`` of parallel and ``rts`` of
simulated tempering, also where a run recommends importance sampling from a fitted density, whose
error is smaller. Every system has the number of draws that it needs for a mean ``mcse`` of at most
0.05 nats. Of each system and method at least 90 % of the runs have to be "ok". Of these

- nominal 95 % intervals cover the exact value in 90 to 99 %;
- at most 3 % are more than three of their errors off;
- the mean ``mcse`` is at most 0.05;
- the mean of Z agrees with the exact value within 4 of its standard errors.

With a true coverage of 95 % the first rule fails by chance with a probability of 1.7 %, and with
one of 86 % it fails with a probability of 84 %. Seeds are fixed, and a right program that passed
once passes again. All runs take about 40 minutes of one core.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tests.repeated_runs import HEADER, Repeated, repeat_model
from tests.systems.exact import exact_systems

N_SEEDS = 100
LOWEST, HIGHEST = 0.90, 0.99
LEAST_OK = 0.90
DISTANT, MOST_DISTANT = 3.0, 0.03
LARGEST_MCSE = 0.05

OWN = {"parallel_tempering": "mbar", "simulated_tempering": "rts"}
# Draws of parallel and of simulated tempering.
DRAWS = {
    "normal_inverse_gamma": (3000, 3000),
    "eight_schools_pooled": (2000, 2000),
    "label_switching": (2000, 2000),
    "funnel": (2000, 2000),
    "change_point": (3000, 2000),
    "student_t_groups": (6000, 4000),
    "gaussian_shells": (5000, 4000),
    "bimodal_10": (14_000, 8000),
}


def repeat(name, method, n_seeds=N_SEEDS):
    """Run a system many times; its model is compiled once."""
    system = exact_systems()[name]
    draws = dict(zip(OWN, DRAWS[name], strict=True))[method]
    options = {"method": method, "draws": draws, "target_mcse": None, "cores": 1}
    seeds = range(n_seeds)
    return repeat_model(system.build(), system.log_evidence, seeds, OWN[method], **options)


def check(repeated):
    assert repeated.ok.mean() >= LEAST_OK
    assert LOWEST <= repeated.coverage <= HIGHEST
    assert repeated.beyond(DISTANT) <= MOST_DISTANT
    assert repeated.mcse[repeated.ok].mean() <= LARGEST_MCSE
    assert abs(repeated.z_of_mean) < 4.0


@pytest.mark.slow
@pytest.mark.parametrize("method", OWN)
@pytest.mark.parametrize("name", DRAWS)
def test_coverage(name, method):
    repeated = repeat(name, method)
    print(f"\n{HEADER}\n{repeated.row(f'{name}, {method.partition("_")[0]}')}")
    check(repeated)


def planted(width=1.0, bias=0.0, sd=0.04):
    """Runs of 32 ladders, with error bars of a wrong width, or with an estimate that is off."""
    ladders = np.random.default_rng(6).normal(0.0, sd * 32**0.5, size=(N_SEEDS, 32))
    error, mcse = ladders.mean(axis=1) + bias * sd, width * ladders.std(axis=1, ddof=1) / 32**0.5
    covered = np.abs(error) < stats.t(31).ppf(0.975) * mcse
    return Repeated(error, mcse, covered, np.ones(N_SEEDS, bool), np.zeros(N_SEEDS))


def test_the_rules_pass_right_runs():
    check(planted())


@pytest.mark.parametrize(
    ("width", "bias", "sd"),
    [(0.6, 0.0, 0.04), (1.6, 0.0, 0.03), (1.0, 0.6, 0.04), (1.0, 0.0, 0.06)],
)
def test_the_rules_catch_wrong_errors(width, bias, sd):
    """Error bars too narrow or too wide, estimates that are off, and errors above 0.05."""
    with pytest.raises(AssertionError):
        check(planted(width, bias, sd))


def test_the_rules_catch_runs_that_miss_a_mode():
    """Four runs of 100 that miss 40 % of Z, and say nothing, are too many; flagged they pass."""
    right, missed = planted(), np.arange(N_SEEDS) < 4
    error = np.where(missed, np.log(0.6), right.error)
    wrong = replace(right, error=error, covered=right.covered & ~missed)
    with pytest.raises(AssertionError):
        check(wrong)
    check(replace(wrong, ok=~missed))


def test_the_rules_catch_too_many_warnings():
    with pytest.raises(AssertionError):
        check(replace(planted(), ok=np.arange(N_SEEDS) % 9 > 0))


def test_list_of_systems():
    """Eight, of several kinds; the funnel, the shells and the two modes are asked for by name."""
    assert len(DRAWS) == 8 and {"funnel", "gaussian_shells", "bimodal_10"} <= DRAWS.keys()
