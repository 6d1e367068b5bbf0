"""Models whose local variables are integrated one element at a time, beside independent references.

References of groups are quadratures over both hyperparameters, with Gauss and Hermite's rule for
each distinct element; that of the item-response model is importance sampling from a normal
approximation of its 40 item parameters, with 61 nodes for each person. No code of the package has a
part in them. ``python benchmarks/plates.py``
"""

import resource
import sys
import time
from collections.abc import Callable

import numpy as np
import pymc as pm
from common import start
from scipy import optimize, special, stats

import pm_evidence as pe

PERSONS, ITEMS = 200, 20


def answers() -> np.ndarray:
    """Answers of persons with normal abilities to items that differ in both parameters."""
    rng = np.random.default_rng(1)
    ability, a = rng.normal(size=PERSONS), np.exp(rng.normal(0, 0.3, ITEMS))
    logit = a * ability[:, None] - rng.normal(0, 1, ITEMS)
    return (rng.random((PERSONS, ITEMS)) < special.expit(logit)).astype(int)


def two_parameters() -> pm.Model:
    """Discriminations times abilities, minus difficulties: 240 dimensions, 40 of them global."""
    with pm.Model() as model:
        a = pm.LogNormal("a", 0, 0.5, shape=ITEMS)
        b = pm.Normal("b", 0, 2, shape=ITEMS)
        ability = pm.Normal("ability", 0, 1, shape=PERSONS)
        pm.Bernoulli("y", logit_p=a * ability[:, None] - b, observed=answers())
    return model


def log_z_of_two_parameters(n: int = 100_000) -> tuple[float, float]:
    """Return the log evidence and its error, by importance sampling of the item parameters."""
    y, rng = answers(), np.random.default_rng(7)
    node, weight = np.polynomial.hermite_e.hermegauss(61)
    log_weight = np.log(weight) - 0.5 * np.log(2 * np.pi)

    def log_density(x: np.ndarray) -> float:
        log_a, b = x[:ITEMS], x[ITEMS:]
        logit = np.exp(log_a) * node[:, None] - b
        by_node = y @ (-np.logaddexp(0, -logit)).T + (1 - y) @ (-np.logaddexp(0, logit)).T
        prior = stats.norm.logpdf(log_a, 0, 0.5).sum() + stats.norm.logpdf(b, 0, 2).sum()
        return float(special.logsumexp(by_node + log_weight, axis=1).sum() + prior)

    peak = optimize.minimize(lambda x: -log_density(x), np.zeros(2 * ITEMS), method="BFGS").x
    step, unit = 1e-3, np.eye(2 * ITEMS)
    ends = np.array([[log_density(peak + s * step * e) for e in unit] for s in (-1, 1)])
    curvature, at = np.empty((2 * ITEMS, 2 * ITEMS)), log_density(peak)
    for i in range(2 * ITEMS):
        for j in range(i + 1):
            both = sum(log_density(peak + s * step * (unit[i] + unit[j])) for s in (-1, 1))
            second = both - ends[:, i].sum() - ends[:, j].sum() + 2 * at
            curvature[i, j] = curvature[j, i] = -second / (2 * step**2)
    proposal = stats.multivariate_t(peak, 1.1 * np.linalg.inv(curvature), df=20, seed=rng)
    draws = proposal.rvs(n)
    log_w = np.array([log_density(x) for x in draws]) - proposal.logpdf(draws)
    log_z = special.logsumexp(log_w) - np.log(n)
    return float(log_z), float(np.exp(log_w - log_z).std() / np.sqrt(n))


def counts(kind: str, n: int) -> np.ndarray:
    """Data of groups whose effects are normal."""
    rng = np.random.default_rng(3)
    effect = rng.normal(0.3, 0.7, n)
    if kind == "binomial":
        return rng.binomial(10, special.expit(effect))
    return rng.poisson(np.exp(effect)) if kind == "poisson" else rng.normal(effect, 1.0)


def groups(kind: str, n: int) -> pm.Model:
    """One effect for each of many groups, with an unknown mean and scale."""
    with pm.Model() as model:
        mu, s = pm.Normal("mu", 0, 1), pm.HalfNormal("s", 1)
        effect = pm.Normal("effect", mu, s, shape=n)
        if kind == "binomial":
            pm.Binomial("y", 10, logit_p=effect, observed=counts(kind, n))
        elif kind == "poisson":
            pm.Poisson("y", pm.math.exp(effect), observed=counts(kind, n))
        else:
            pm.Normal("y", effect, 1.0, observed=counts(kind, n))
    return model


def log_z_of_groups(kind: str, n: int) -> tuple[float, float]:
    """Return the log evidence by quadrature; its error is far below that of any run."""
    y, times = np.unique(counts(kind, n), return_counts=True)
    node, weight = np.polynomial.hermite_e.hermegauss(81)

    def log_density(mu: float, log_s: float) -> float:
        s = np.exp(log_s)
        prior = stats.norm.logpdf(mu) + stats.halfnorm.logpdf(s) + log_s
        if kind == "normal":
            return float(stats.norm.logpdf(y, mu, np.hypot(1.0, s)) @ times + prior)
        effect = mu + s * node[:, None]
        if kind == "binomial":
            log_f = stats.binom.logpmf(y, 10, special.expit(effect))
        else:
            log_f = stats.poisson.logpmf(y, np.exp(effect))
        each = special.logsumexp(log_f, axis=0, b=weight[:, None] / np.sqrt(2 * np.pi))
        return float(each @ times + prior)

    found = optimize.minimize(lambda x: -log_density(*x), [0.2, -0.4], method="Nelder-Mead")
    (mu, log_s), room = found.x, 10 / np.sqrt(n) + 0.01
    steps = np.linspace(-room, room, 81)
    grid = [[log_density(mu + u, log_s + v) for v in 2 * steps] for u in 2 * steps]
    width = 2 * (steps[1] - steps[0])
    return float(special.logsumexp(grid) + 2 * np.log(width)), 0.0


CASES: dict[str, tuple[Callable[[], pm.Model], Callable[[], tuple[float, float]]]] = {
    "two-parameter item response": (two_parameters, log_z_of_two_parameters),
    **{
        f"{n:,} {kind} groups": (
            lambda kind=kind, n=n: groups(kind, n),
            lambda kind=kind, n=n: log_z_of_groups(kind, n),
        )
        for n in (10_000, 100_000)
        for kind in ("normal", "binomial", "poisson")
    },
}


def main() -> None:
    options = start(__doc__, repeats=1)
    columns = ("error", "stated", "status", "evaluations", "CPU s", "GB")
    print(f"{'model':30s} {'log evidence':>14s} " + " ".join(f"{c:>11s}" for c in columns))
    for name, (build, reference) in CASES.items():
        if options.names and not any(part in name for part in options.names):
            continue
        exact, error = reference()
        for seed in range(options.repeats):
            model, began = build(), time.process_time()
            dt = pe.sample_evidence(model, random_seed=seed, progressbar=False)
            seconds, found = time.process_time() - began, pe.log_evidence(dt)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            print(
                f"{name:30s} {exact:14.3f} {found.value - exact:11.4f} "
                f"{np.hypot(found.mcse, error):11.4f} {found.status:>11s} "
                f"{dt['log_evidence'].attrs['n_evaluations']:11d} {seconds:11.1f} {memory:11.2f}",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
