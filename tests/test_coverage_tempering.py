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

import pytest

from tests.repeated_runs import Rules, repeat_system

N_SEEDS = 100
RULES = Rules(N_SEEDS, distant=3.0, most_distant=0.03, most_far=0.03, largest_mcse=0.05)

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


@pytest.mark.slow
@pytest.mark.parametrize("method", OWN)
@pytest.mark.parametrize("name", DRAWS)
def test_coverage(name, method):
    draws = dict(zip(OWN, DRAWS[name], strict=True))[method]
    options = {"method": method, "draws": draws, "target_mcse": None, "cores": 1}
    repeated = repeat_system(name, range(N_SEEDS), OWN[method], **options)
    RULES.check(repeated, f"{name}, {method.partition('_')[0]}")
