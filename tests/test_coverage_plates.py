"""Are the intervals right where local variables are integrated? 50 runs each of ten models.

At least 90 % of the runs have to be "ok". Of those, nominal 95 % intervals cover the exact value in
90 % at least, at most one is more than five of its errors off, and the mean of Z agrees with the
exact value within 4 of its standard errors. Where elements have a spike that is a thousand times
narrower than their prior, most runs say that they missed it, and fewer may be "ok".

Errors may be too wide: where the weights of importance sampling have a heavy tail, as in the
mixture with labels, most of the stated error is what the tail beyond the draws may hold. Seeds are
fixed. All runs take about half an hour of one core.
"""

import numpy as np
import pytest

from tests.repeated_runs import HEADER, Repeated, repeat_model
from tests.systems.plates import NAMES, plates

N_SEEDS = 50
LEAST_OK, LOWEST = 0.90, 0.90


def check(repeated: Repeated, least_ok: float = LEAST_OK) -> None:
    assert repeated.ok.mean() >= least_ok
    assert repeated.far * N_SEEDS <= 1
    if least_ok == 0.0:
        return
    assert repeated.coverage >= LOWEST
    assert abs(repeated.z_of_mean) < 4.0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_coverage(name: str) -> None:
    model, exact = plates(name)
    options = {"marginalise": True, "target_mcse": 0.05, "cores": 1}
    repeated = repeat_model(model, exact, range(N_SEEDS), **options)
    print(f"\n{HEADER}\n{repeated.row(name)}")
    check(repeated, 0.0 if name == "spikes" else LEAST_OK)


@pytest.mark.parametrize(("width", "bias", "right"), [(1, 0, True), (0.6, 0, False), (1, 1, False)])
def test_the_rules(width: float, bias: float, right: bool) -> None:
    """Errors that are too small, and estimates that are off by one of them, are found."""
    error = np.random.default_rng(6).normal(0.02 * bias, 0.02, N_SEEDS)
    mcse = np.full(N_SEEDS, 0.02 * width)
    covered = np.abs(error) < 1.96 * mcse
    repeated = Repeated(error, mcse, covered, np.ones(N_SEEDS, bool), np.zeros(N_SEEDS))
    if right:
        check(repeated)
    else:
        with pytest.raises(AssertionError):
            check(repeated)
