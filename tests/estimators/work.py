"""Work of forward and reverse paths that obeys Crooks' theorem, with its exact log Z.

``p_reverse(W) = p_forward(W) exp(-W) / Z`` everywhere, so every estimator has a known answer.
"""

import numpy as np

from pm_evidence.estimators import (
    bar,
    cumulant,
    cumulant_forward,
    cumulant_reverse,
    histogram,
    jarzynski,
    jarzynski_reverse,
    lower_bound,
    upper_bound,
)

LOG_Z = -7.3


def gaussian_pair(rng, sd, n_forward, n_reverse=None):
    """Normal work: the theorem fixes the reverse mean from the forward one."""
    forward = rng.normal(-LOG_Z + 0.5 * sd**2, sd, n_forward)
    return forward, rng.normal(-LOG_Z - 0.5 * sd**2, sd, n_reverse or n_forward)


def gamma_pair(rng, shape, rate, n_forward, n_reverse=None):
    """Skew work: exp(-W) times a gamma density is one of a rate larger by one."""
    forward = rng.gamma(shape, 1.0 / rate, n_forward)
    return forward, rng.gamma(shape, 1.0 / (rate + 1.0), n_reverse or n_forward)


def gamma_log_z(shape, rate):
    return shape * np.log(rate / (rate + 1.0))


def clustered_pair(rng, n_blocks, size, between=0.4, within=0.3):
    """Normal work whose paths share a shift within a block; with the blocks, and the full sd."""
    sd = float(np.hypot(between, within))
    works = [
        mean
        + np.repeat(rng.normal(0.0, between, n_blocks), size)
        + rng.normal(0.0, within, n_blocks * size)
        for mean in (-LOG_Z + 0.5 * sd**2, -LOG_Z - 0.5 * sd**2)
    ]
    return works, np.repeat(np.arange(n_blocks), size), sd


ANNEALED_LOG_Z = -np.log(10.0)


def annealed_pair(rng, n, *, start=(0.0, 1.0), keep=0.5, reverse_order=True):
    """Paths of a real annealing run, from N(20, 10) to N(0, 1): Habeck (2017), section 4.

    ``start`` is mean and sd of what reverse paths start from (the target has 0 and 1), and
    ``reverse_order`` says whether they take the kernels in the opposite order, as they must.
    """
    beta = np.linspace(0.0, 1.0, 11)
    precision = (1.0 - beta) / 100.0 + beta
    mean, sd = (1.0 - beta) / 100.0 * 20.0 / precision, precision**-0.5

    def energy(k, x):
        return (1.0 - beta[k]) * ((x - 20.0) / 10.0) ** 2 / 2.0 + beta[k] * x**2 / 2.0

    def move(k, x):
        noise = np.sqrt(1.0 - keep**2) * sd[k] * rng.standard_normal(n)
        return mean[k] + keep * (x - mean[k]) + noise

    last = len(beta) - 1
    x, forward = rng.normal(20.0, 10.0, n), np.zeros(n)
    for k in range(last):
        forward += energy(k + 1, x) - energy(k, x)
        x = move(k + 1, x)
    x, reverse = rng.normal(*start, n), np.zeros(n)
    for k in reversed(range(last)):
        reverse += energy(k + 1, x) - energy(k, x)
        x = move(k if reverse_order else last - k, x)
    return forward, reverse


# Every estimator of work as a function of both directions, and the work that it looks at.
def _of_forward(estimate):
    def found(forward, reverse, *, forward_blocks=None, reverse_blocks=None):
        return estimate(forward, blocks=forward_blocks)

    return found


def _of_reverse(estimate):
    def found(forward, reverse, *, forward_blocks=None, reverse_blocks=None):
        return estimate(reverse, blocks=reverse_blocks)

    return found


BOTH = {"bar": bar, "histogram": histogram, "cumulant": cumulant}
FORWARD = {"jarzynski": jarzynski, "cumulant_forward": cumulant_forward, "lower_bound": lower_bound}
REVERSE = {
    "jarzynski_reverse": jarzynski_reverse,
    "cumulant_reverse": cumulant_reverse,
    "upper_bound": upper_bound,
}
ESTIMATORS = (
    BOTH
    | {name: _of_forward(estimate) for name, estimate in FORWARD.items()}
    | {name: _of_reverse(estimate) for name, estimate in REVERSE.items()}
)


def truth_of(name, sd, log_z=LOG_Z):
    """Exact value of an estimate, or of a bound, for normal work."""
    return log_z + {"lower_bound": -0.5, "upper_bound": 0.5}.get(name, 0.0) * sd**2


def covers(estimate, truth):
    return estimate.lower <= truth <= estimate.upper
