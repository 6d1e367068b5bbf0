"""Are the intervals right where local variables are integrated? 50 runs each of ten models.

At least 90 % of the runs have to be "ok". Of those, nominal 95 % intervals cover the exact value in
90 % at least, at most one is more than five of its errors off, and the mean of Z agrees with the
exact value within 4 of its standard errors. Where elements have a spike that is a thousand times
narrower than their prior, most runs say that they missed it, and fewer may be "ok".

Errors may be too wide: where the weights of importance sampling have a heavy tail, as in the
mixture with labels, most of the stated error is what the tail beyond the draws may hold. Seeds are
fixed. All runs take about half an hour of one core.
"""

import pytest

from tests.repeated_runs import Rules, repeat_model
from tests.systems.plates import NAMES, plates

N_SEEDS = 50
RULES = Rules(N_SEEDS, highest=1.0, most_far=1 / N_SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_coverage(name):
    model, exact = plates(name)
    options = {"marginalise": True, "target_mcse": 0.05, "cores": 1}
    repeated = repeat_model(model, exact, range(N_SEEDS), **options)
    if name == "spikes":
        assert repeated.far <= RULES.most_far
    else:
        RULES.check(repeated, name)
