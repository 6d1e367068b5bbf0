"""What a noisy likelihood costs: the comparison that Tran et al. make in section 3.3.

Four ways to a posterior mean, each with the same number of likelihood estimates:

    is2      importance sampling squared: draws from a Student-t density fitted to the posterior
    pmmh     particle marginal Metropolis-Hastings: a random walk with a learnt covariance
    paths    AISEL without resampling: independent annealed paths, as in Theorem 1
    islands  AISEL with resampling

The likelihood is estimated with a variance sigma^2 of its log. The efficiency of a way is one over
its mean squared error, relative to that of the same way with the likelihood known. Theory says
exp(-sigma^2) for the first two and exp(-tau sigma^2) for paths whose moves are perfect. On a normal
posterior the noise is exactly normal, and ``perfect`` are paths with such moves. On the Nile data
(local level model, bootstrap filter) the noise is what a number of particles leaves.

All ways share one pilot, made with the likelihood known, so that they differ by the noise alone.
Run it with ``python examples/papers/tran_aisel/efficiency.py``; it prints tables and writes
``tran_efficiency.png`` and ``tran_efficiency.csv``, which are stored in ``docs/figures``. Intervals
are from the bootstrap over repetitions. ``--quick`` makes few repetitions.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pymc as pm
from scipy.special import ndtri

import pm_evidence as pe
from pm_evidence.core.contracts import MoveInfo, Plan
from pm_evidence.core.numerics import normalised
from pm_evidence.core.random import streams
from pm_evidence.paths.geometric import EstimatedPath
from pm_evidence.samplers.aisel import measure, tau_of
from pm_evidence.samplers.planning import Pilot
from pm_evidence.targets.estimated.target import SEED_BITS, EstimatedTarget
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.testing.systems import gauss_legendre

sys.path.append(str(Path(__file__).parents[2]))
from real_data import load_csv

SEED = 20121218
RESULTS = Path(__file__).parent / "results"
WAYS = {
    "is2": "IS²",
    "pmmh": "PMMH",
    "paths": "AISEL, independent paths",
    "islands": "AISEL, resampled",
    "perfect": "AISEL paths, perfect moves",
}
COLORS = dict(zip(WAYS, ("#e31a1c", "#ff7f00", "#1f78b4", "#33a02c", "#a6cee3"), strict=True))
VARIANCES = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
PARTICLES = (113, 57, 28, 16, 10)  # of the Nile: variances of about 1 to 30
_PILOT, _BURN_IN = 2000, 0.1


# --- estimators of a likelihood ---


@dataclass(frozen=True)
class NormalNoise:
    """Normal noise of the log likelihood: its variance is the same at all parameters."""

    variance: float
    n_particles: int = 1
    n_seeds: int = 1

    def estimate(self, x, seeds):
        normal = ndtri((seeds[:, 0].astype(float) + 0.5) / 2.0**SEED_BITS)
        return np.sqrt(self.variance) * normal - 0.5 * self.variance


@dataclass(frozen=True)
class Kalman:
    """The likelihood of the local level model, known."""

    y: Any
    n_particles: int = 1
    n_seeds: int = 1

    def estimate(self, x, seeds):
        return kalman(self.y, *np.exp(x.T))


def kalman(y, sigma_eps, sigma_eta):
    """Return the log likelihood of a local level model; parameters of any shape."""
    mean, variance, total = 1000.0, 500.0**2, 0.0
    for t, value in enumerate(y):
        variance = variance + sigma_eta**2 * (t > 0)
        s = variance + sigma_eps**2
        total = total - 0.5 * ((value - mean) ** 2 / s + np.log(2.0 * np.pi * s))
        mean = mean + variance / s * (value - mean)
        variance = variance * sigma_eps**2 / s
    return total


def estimated_by(target, estimator):
    """Return the path of a model whose likelihood an estimator makes, or multiplies."""
    return EstimatedPath(EstimatedTarget(target, (estimator,)))


# --- problems ---


@dataclass(frozen=True)
class Problem:
    """A posterior with its exact moments, and paths to it by the noise of the likelihood.

    Parameters
    ----------
    known : EstimatedPath
        With the likelihood known.
    noisy : callable
        From a level of noise to a path.
    levels : tuple of float
        What ``noisy`` takes.
    mean, sd : ndarray, shape (n_dim,)
        Of the posterior, on the scale of the path.
    exact : callable, optional
        Draws ``n`` states at ``beta`` from a path exactly.
    """

    name: str
    known: EstimatedPath
    noisy: Callable[[float], EstimatedPath]
    levels: tuple[float, ...]
    mean: np.ndarray
    sd: np.ndarray
    exact: Callable[..., Any] | None = None


def normal_problem():
    """Three normal means whose posterior is ten times narrower than the prior."""
    y, noise = np.array([0.5, -0.3, 0.8]), 0.1
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=3)
        pm.Normal("y", mu, noise, observed=y)
    target = PyMCTarget(model)

    def exact(path, beta, n, rng):
        variance = 1.0 / (1.0 + beta / noise**2)
        x = rng.normal(beta * y / noise**2 * variance, np.sqrt(variance), size=(n, 3))
        state = path.target.estimated(x, path.target.draw_seeds(n, rng))
        sigma2 = path.target.estimators[0].variance
        # the words' density tilted by beta: a shift of the noise
        shift = np.array([0.0, beta * sigma2])
        return replace(state, log_density=state.log_density + shift)

    precision = 1.0 + noise**-2
    return Problem(
        "normal",
        estimated_by(target, NormalNoise(0.0)),
        lambda variance: estimated_by(target, NormalNoise(variance)),
        VARIANCES,
        y / noise**2 / precision,
        np.full(3, precision**-0.5),
        exact,
    )


def nile_problem(folder=None):
    """The local level model of the Nile, on the log scale of both standard deviations."""
    y = load_csv("nile", folder).iloc[:, -1].to_numpy(float)
    with pm.Model() as model:
        sigma_eps = pm.HalfNormal("sigma_eps", 200)
        sigma_eta = pm.HalfNormal("sigma_eta", 100)
        pe.StateSpace(
            "flow",
            init=lambda: pm.Normal.dist(1000, 500),
            transition=lambda h, t: pm.Normal.dist(h, sigma_eta),
            emission=lambda h, t: pm.Normal.dist(h, sigma_eps),
            observed=y,
        )
    target = target_of(model)
    mean, sd = _nile_moments(y)
    return Problem(
        "nile",
        estimated_by(target.evaluated, Kalman(y)),
        lambda n: EstimatedPath(target.with_settings([(int(n), 1)])),
        PARTICLES,
        mean,
        sd,
    )


def _nile_moments(y):
    """Return mean and standard deviation of both log parameters, by quadrature."""
    (a, log_wa), (b, log_wb) = gauss_legendre(3.5, 6.0, 12), gauss_legendre(-8.0, 6.0, 24)
    eps, eta = np.exp(a)[:, None], np.exp(b)
    log_prior = -0.5 * (eps / 200) ** 2 - 0.5 * (eta / 100) ** 2 + a[:, None] + b
    log_p = log_prior + kalman(y, eps, eta) + log_wa[:, None] + log_wb
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    grid = np.stack(np.broadcast_arrays(a[:, None], b))
    mean = (p * grid).sum(axis=(1, 2))
    return mean, np.sqrt((p * grid**2).sum(axis=(1, 2)) - mean**2)


# --- the ways: each returns posterior means, shape (n_repeats, n_dim) ---


@dataclass(frozen=True)
class Setting:
    """A problem, its pilot, and how much is spent.

    Parameters
    ----------
    plan : Plan
        Schedule, kernels and fitted density of the pilot.
    n_estimates : int
        Likelihood estimates of one repetition of any way.
    n_stages : int
        Stages of independent paths.
    n_repeats : int
        Repetitions.
    """

    problem: Problem
    plan: Plan
    n_estimates: int
    n_stages: int
    n_repeats: int

    @property
    def fine(self):
        """The plan of independent paths."""
        return pe.methods.AIS(n_stages=self.n_stages).follow(self.plan)

    @property
    def n_paths(self):
        return self.n_estimates // (self.fine.n_stages + 1)


def weighted_means(x, log_weight):
    """Return the mean of each repetition, ``x`` of shape (n_repeats, n, n_dim)."""
    weight = np.stack([normalised(row) for row in log_weight])
    return np.einsum("rn,rnd->rd", weight, x)


def is2(setting, path, seed):
    fit, rng = setting.plan.fit, np.random.default_rng([seed, 1])
    means = []
    for _ in range(setting.n_repeats):
        x = fit.draw(setting.n_estimates, rng)
        log_weight = path.log_target(x, rng) - fit.log_density(x)
        log_weight[np.isnan(log_weight)] = -np.inf
        means.append(weighted_means(x[None], log_weight[None])[0])
    return np.array(means)


def pmmh(setting, path, seed):
    """Every repetition is one chain; it starts from a posterior draw, and a tenth is burn-in."""
    rng, n = np.random.default_rng([seed, 2]), setting.n_repeats
    x = setting.plan.population.x
    x = x[rng.choice(len(x), n, replace=False)]
    state = path.target.estimated(x, path.target.draw_seeds(n, rng))
    kernel, chains = setting.plan.kernels[-1], streams(np.random.SeedSequence([seed, 3]), n)
    total, burn_in = np.zeros_like(x), int(_BURN_IN * setting.n_estimates)
    for step in range(1, setting.n_estimates):
        state, _ = kernel.advance(path, state, 1.0, chains)
        if step >= burn_in:
            total += state.x
    return total / (setting.n_estimates - burn_in)


def paths(setting, path, seed, plan=None):
    plan, n = plan or setting.fine, setting.n_paths
    record = pe.methods.AIS().run_block(path, plan, 0, n * setting.n_repeats, seed)
    x = record.draws[:, : path.target.n_dim].reshape(setting.n_repeats, n, -1)
    return weighted_means(x, record.log_weight.reshape(setting.n_repeats, n))


def islands(setting, path, seed):
    sampler = pe.methods.AISEL().annealer
    length, plan = sampler.chain_length, replace(setting.plan, fit=None)
    n = setting.n_estimates // (length + plan.n_stages * (length - 1)) * length
    blocks = [sampler.run_block(path, plan, i, n, seed) for i in range(setting.n_repeats)]
    return np.array([block.draws[:, : path.target.n_dim].mean(axis=0) for block in blocks])


@dataclass(frozen=True)
class Perfect:
    """A kernel that draws every state anew: the moves that Theorem 1 supposes."""

    exact: Callable[..., Any]

    def advance(self, path, state, beta, chains):
        rng = np.random.default_rng([int(chains[0, 0]), int(1e9 * beta)])
        return self.exact(path, beta, len(state), rng), MoveInfo(1.0, len(state))


def perfect(setting, path, seed):
    kernels = (Perfect(setting.problem.exact),) * setting.fine.n_stages
    return paths(setting, path, seed, Plan(setting.fine.beta, kernels))


FUNCTIONS = {"is2": is2, "pmmh": pmmh, "paths": paths, "islands": islands, "perfect": perfect}


# --- measurement ---


def squared_errors(setting, way, path, seed=SEED):
    """Return the squared error of each repetition, in units of the posterior's variance."""
    problem = setting.problem
    means = FUNCTIONS[way](setting, path, seed)
    return (((means - problem.mean) / problem.sd) ** 2).mean(axis=1)


def interval_of_ratio(above, below, n=4000):
    """Return the 95 % interval of a ratio of means by the bootstrap over repetitions."""
    rng = np.random.default_rng(SEED)
    one, two = (x[rng.integers(len(x), size=(n, len(x)))].mean(axis=1) for x in (above, below))
    return np.quantile(one / two, (0.025, 0.975))


def prepared(problem, n_estimates, n_stages, n_repeats):
    """Return the setting of a problem, after its pilot."""
    plan = Pilot(_PILOT, 5).run(problem.known, pe.kernels.PseudoMarginal(), SEED)
    return Setting(problem, plan, n_estimates, n_stages, n_repeats)


def measured(setting, levels=None, ways=None):
    """Return a row for every level of noise and way, the known likelihood first."""
    problem, rows = setting.problem, []
    ways = ways or [way for way in WAYS if way != "perfect" or problem.exact is not None]
    known = {way: squared_errors(setting, way, problem.known) for way in ways}
    for level in (None, *(levels or problem.levels)):
        path = problem.known if level is None else problem.noisy(level)
        variance = 0.0
        if level is not None:
            variance = measure(path.target, setting.plan.population.x, SEED).variance
            variance = getattr(path.target.estimators[0], "variance", variance)
        for way in ways:
            errors = known[way] if level is None else squared_errors(setting, way, path)
            low, high = (1.0, 1.0) if level is None else interval_of_ratio(known[way], errors)
            error, n_particles = errors.mean(), path.target.estimators[0].n_particles
            relative = known[way].mean() / error
            rows.append((variance, n_particles, way, 1.0 / error, relative, low, high))
    columns = ["sigma2", "n_particles", "way", "effective", "relative", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


# --- all of it ---


def markdown(stored, name):
    """Return the table of a problem in Markdown: relative efficiencies, and effective numbers."""
    found = stored[stored["problem"] == name]
    ways = [way for way in WAYS if way in set(found["way"])]
    lines = [["σ²", *(WAYS[way] for way in ways)], ["---"] * (1 + len(ways))]
    for sigma2, group in found.groupby("sigma2"):
        rows = group.set_index("way").loc[ways]
        cells = [
            f"{row.relative:.2g}, {row.low:.2g} to {row.high:.2g} ({row.effective:,.0f})"
            if sigma2 > 0.0
            else f"1 ({row.effective:,.0f})"
            for row in rows.itertuples()
        ]
        lines.append([f"{sigma2:.3g}", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figure(tables, settings, path):
    """Draw relative efficiencies above, effective numbers of draws below."""
    from matplotlib import pyplot as plt

    titles = {"normal": "normal posterior, normal noise", "nile": "Nile, bootstrap filter"}
    size = 4.6 * len(tables), 7.0
    figure, axes = plt.subplots(
        2,
        len(tables),
        figsize=size,
        sharex="col",
        sharey="row",
        layout="constrained",
        squeeze=False,
    )
    for (name, table), (above, below) in zip(tables.items(), axes.T, strict=True):
        noisy = table[table["sigma2"] > 0.0]
        grid = np.geomspace(noisy["sigma2"].min(), noisy["sigma2"].max(), 200)
        tau = tau_of(settings[name].fine.beta)
        above.plot(grid, np.exp(-grid), "k--", lw=1.0, label=r"$\exp(-\sigma^2)$")
        label = r"$\exp(-\tau\sigma^2)$, $\tau$ = " + f"{tau:.3f}"
        above.plot(grid, np.exp(-tau * grid), "k:", lw=1.2, label=label)
        for way, rows in noisy.groupby("way", sort=False):
            style = {"color": COLORS[way], "marker": "o", "ms": 4.0, "label": WAYS[way]}
            above.plot(rows["sigma2"], rows["relative"], **style)
            below.plot(rows["sigma2"], rows["effective"], **style)
        below.axhline(1.0, color="0.6", lw=0.8)  # a single draw: there is no less
        above.set(title=titles[name], xscale="log", yscale="log", ylim=(3e-4, 2.0))
        cost = f"{settings[name].n_estimates:,} estimates"
        below.set(xscale="log", yscale="log", xlabel=r"variance $\sigma^2$ of the log likelihood")
        below.set_title(f"cost: {cost}", fontsize="medium")
        above.legend(frameon=False, fontsize="small", loc="lower left")
    axes[0, 0].set_ylabel("efficiency, relative to a known likelihood")
    axes[1, 0].set_ylabel("effective number of draws")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main(out=RESULTS, *, quick=False, problems=("normal", "nile"), folder=None):
    """Measure, print the tables, draw the figure; return the tables."""
    mpl.use("Agg")
    started = time.perf_counter()
    tables, settings = {}, {}
    for name in problems:
        problem = normal_problem() if name == "normal" else nile_problem(folder)
        size = {"normal": (100_000, 50, 60), "nile": (4000, 25, 20)}[name]
        setting = prepared(problem, *((1000, 20, 30) if quick else size))
        levels = problem.levels[-3:] if quick else None
        tables[name], settings[name] = measured(setting, levels), setting
        wide = tables[name].pivot(index="sigma2", columns="way", values=["relative", "effective"])
        wide = wide.reindex(
            columns=[way for way in WAYS if way in set(tables[name]["way"])], level=1
        )
        print(
            f"{name}: {setting.n_estimates} estimates, {setting.fine.n_stages} stages of "
            f"{setting.n_paths} paths, tau = {tau_of(setting.fine.beta):.3f}; "
            f"{setting.n_repeats} repetitions\n"
        )
        print(wide.to_string(float_format="{:.3g}".format), "\n", flush=True)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    figure(tables, settings, out / "tran_efficiency.png")
    stored = pd.concat([table.assign(problem=name) for name, table in tables.items()])
    stored.to_csv(out / "tran_efficiency.csv", index=False, float_format="%.4g")
    print(f"The figure is in {out}. All took {time.perf_counter() - started:.0f} s.")
    return tables


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the figure")
    parser.add_argument("--quick", action="store_true", help="few repetitions")
    parser.add_argument("--only", choices=["normal", "nile"], help="one problem, not both")
    arguments = parser.parse_args()
    both = ("normal", "nile") if arguments.only is None else (arguments.only,)
    main(arguments.out, quick=arguments.quick, problems=both)
