"""Coverage of evidences under other priors, on models whose evidence is exact under each of them.

Errors that are too small, of reweighted draws or of new runs, would make conclusions about priors
too bold; errors that are too large would hide what can be seen. The three systems take about ten
minutes of one core.
"""

from functools import cache

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.special import gammaln
from scipy.stats import multivariate_normal

import pm_evidence as pe
from pm_evidence.testing.systems import log_poisson_gamma
from tests.systems.closed_forms import log_bernoulli_beta

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning"),
]
N_SEEDS = 60
# Share of 95 % intervals, of all systems together, that hold the exact value. Rows of one seed
# share a run; 180 independent ones lie between these with a probability of 99.8 %.
LEAST, MOST = 0.89, 0.995
LEAST_OK = 0.95

Y = np.array([[1.2, 0.4, 2.1], [0.3, -0.5, 1.4]])
COUNTS = np.array([3, 1, 4, 2, 6, 3])
TRIALS, SUCCESSES = np.array([10, 12, 8, 15]), np.array([7, 5, 6, 11])
TIMES = "\N{MULTIPLICATION SIGN}"


def normal_means():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, np.float64(2.0), shape=3)
        pm.Normal("y", mu, 1, observed=Y)

    def exact(factor):
        cov = np.eye(2) + (2.0 * factor) ** 2
        return sum(multivariate_normal(np.zeros(2), cov).logpdf(column) for column in Y.T)

    factors = [0.5, 0.8, 2.0]
    values = {f"{TIMES} {f:g}": exact(f) for f in factors} | {"as written": exact(1.0)}
    return model, {"mu": factors}, values


def gamma_poisson():
    with pm.Model() as model:
        rate = pm.Gamma("rate", alpha=np.float64(2.0), beta=np.float64(0.5))
        pm.Poisson("y", rate, observed=COUNTS)
    factors = [0.5, 2.0, 4.0]
    values = {f"{TIMES} {f:g}": log_poisson_gamma(COUNTS, 2.0, 0.5 / f) for f in factors}
    return model, {"rate": factors}, values | {"as written": log_poisson_gamma(COUNTS, 2.0, 0.5)}


def beta_binomial():
    with pm.Model() as model:
        p = pm.Beta("p", alpha=np.float64(2.0), beta=np.float64(2.0))
        pm.Binomial("y", n=TRIALS, p=p, observed=SUCCESSES)
    failures = TRIALS - SUCCESSES
    choose = (gammaln(TRIALS + 1) - gammaln(SUCCESSES + 1) - gammaln(failures + 1)).sum()

    def exact(a, b):
        return float(choose + log_bernoulli_beta(SUCCESSES.sum(), failures.sum(), a, b))

    shapes = {"flat": (1.0, 1.0), "narrow": (5.0, 5.0), "high": (6.0, 2.0)}
    priors = {name: pm.Beta.dist(np.float64(a), np.float64(b)) for name, (a, b) in shapes.items()}
    values = {name: exact(*ab) for name, ab in shapes.items()} | {"as written": exact(2.0, 2.0)}
    return model, {"p": priors}, values


SYSTEMS = {
    "normal_means": normal_means,
    "gamma_poisson": gamma_poisson,
    "beta_binomial": beta_binomial,
}


@cache
def rows(name):
    """All rows of all seeds, with exact values, and whether the intervals hold them."""
    model, priors, exact = SYSTEMS[name]()
    tables = [
        pe.prior_sensitivity(
            model, priors, random_seed=seed, progressbar=False, sample_kwargs={"cores": 1}
        )
        for seed in range(N_SEEDS)
    ]
    found = pd.concat([pd.DataFrame(table).reset_index() for table in tables])
    found["exact"] = [exact[prior] for prior in found["prior"]]
    found["exact_bf"] = found["exact"] - exact["as written"]
    from scipy.stats import t

    reach = {k: t.ppf(0.975, found[f"{k}dof"].astype(float)) for k in ("", "log_bf_")}
    found["held"] = np.abs(found["log_evidence"] - found["exact"]) <= reach[""] * found["mcse"]
    found["held_bf"] = (
        np.abs(found["log_bf"] - found["exact_bf"]) <= reach["log_bf_"] * found["log_bf_mcse"]
    )
    return found


def report(found):
    print(
        found.groupby(["prior", "how"])
        .agg(
            n=("held", "size"),
            ok=("status", lambda s: (s == "ok").mean()),
            held=("held", "mean"),
            held_bf=("held_bf", "mean"),
            mcse=("mcse", "mean"),
            bf_mcse=("log_bf_mcse", "mean"),
            error=("log_evidence", "mean"),
            sd=("log_evidence", "std"),
            bf_sd=("log_bf", "std"),
            exact=("exact", "mean"),
        )
        .to_string()
    )


@pytest.mark.parametrize("how", ["reweighted", "new run"])
def test_intervals_hold_the_exact_evidence(how):
    found = pd.concat([rows(name) for name in SYSTEMS])
    found = found[found["how"] == how]
    report(found)
    assert (found["status"] == "ok").mean() >= LEAST_OK
    found = found[found["status"] == "ok"]
    assert LEAST <= found["held"].mean() <= MOST
    assert LEAST <= found["held_bf"].mean() <= MOST


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_row_is_far_off(name):
    """A reweighting that passed its checks and missed a part of the evidence would be."""
    found = rows(name)
    distance = np.abs(found["log_evidence"] - found["exact"]) / found["mcse"]
    assert (distance < 6.0).all()
