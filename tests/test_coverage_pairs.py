"""Intervals of Bayes factors between models, over many seeds, on pairs with exact values.

Of those that are "ok" 90 to 99 % cover the exact log Bayes factor, errors are not too wide, and
hardly any is far off. Some minutes of one core for each pair.
"""

import math

import pytest

import pm_evidence as pe
from tests.repeated_runs import Rules, repeat
from tests.systems.pairs import model_pairs

N_SEEDS = 60
RULES = Rules(N_SEEDS, least_spread=0.7, most_far=0.0, largest_bias=math.inf)
PAIRS = [
    "regression_covariate",
    "regression_prior",
    "logistic_covariate",
    "count_likelihood",
    "groups_prior",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_coverage(name):
    pair = model_pairs()[name]
    models = pair.build()

    def run(seed):
        return pe.bayes_factor(*models, random_seed=seed, progressbar=False, cores=1)

    RULES.check(repeat(run, pair.log_bf, range(N_SEEDS)), name)
