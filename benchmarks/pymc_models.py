"""Time to a given error of log Z: ``pm.sample_smc`` and ``pe.sample_evidence`` side by side.

Both run in one process, warm, on two cores, with fixed effort: 16,000 draws in one round for ours,
1,000 on each of 16 islands, and 2,000 draws in each of 4 chains for PyMC's. The error is the root
mean square error over repeated runs against a reference (exact, or one long run of ours, of 320,000
draws); the time to reach an error ``e`` is ``time * rmse**2 / e**2``, as both errors fall with the
square root of the draws. ``python benchmarks/pymc_models.py [model ...]``
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from common import logistic_regression, start

import pm_evidence as pe
from tests.systems.exact import exact_systems

TARGET_ERROR = 0.01
# In all, over the islands of a run.
DRAWS, DRAWS_OF_REFERENCE = 16_000, 320_000


def poisson_glmm() -> pm.Model:
    """100 counts in 20 groups with random intercepts."""
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(20), 5)
    x = rng.normal(size=100)
    y = rng.poisson(np.exp(0.5 + 0.4 * x + rng.normal(0, 0.6, size=20)[group]))
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 2)
        slope = pm.Normal("slope", 0, 1)
        spread = pm.HalfNormal("spread", 1)
        effect = pm.Normal("effect", 0, 1, shape=20)
        pm.Poisson("y", pt.exp(intercept + slope * x + spread * effect[group]), observed=y)
    return model


def models() -> dict[str, tuple[Callable[[], pm.Model], float | None]]:
    """Builders and exact log evidences (None: from a long run)."""
    exact = exact_systems()

    def known(name: str) -> tuple[Callable[[], pm.Model], float]:
        return exact[name].build, exact[name].log_evidence

    return {
        "eight schools": known("eight_schools_half_cauchy_noncentred"),
        "logistic regression": (logistic_regression, None),
        "correlated Gaussian, d=50": known("correlated_gaussian_50"),
        "bimodal, d=10": known("bimodal_10"),
        "Poisson GLMM": (poisson_glmm, None),
        "mixed discrete": known("change_point"),
        "spike and slab": known("spike_and_slab"),
        "potential and data": known("potential_and_data"),
    }


def ours(model: pm.Model, seed: int, draws: int = DRAWS) -> pe.LogEvidence:
    """Return the recommended log evidence after one round."""
    dt = pe.sample_evidence(
        model, draws=draws, target_mcse=None, cores=2, random_seed=seed, progressbar=False
    )
    return pe.log_evidence(dt)


def theirs(model: pm.Model, seed: int) -> float:
    """Return the log mean of Z over the chains of PyMC's sampler (default draws)."""
    idata = pm.sample_smc(
        draws=2000, chains=4, cores=2, random_seed=seed, progressbar=False, model=model
    )
    values = np.asarray(idata.sample_stats["log_marginal_likelihood"].values, dtype=object)
    last = np.array([np.ravel(np.asarray(chain[-1], dtype=float))[-1] for chain in values])
    return float(np.logaddexp.reduce(last) - np.log(len(last)))


def timed(call: Callable[[int], float], repeats: int) -> tuple[float, np.ndarray]:
    """Return the median time of a call and its results, for seeds 1 to ``repeats``."""
    times, results = [], []
    for seed in range(1, repeats + 1):
        started = time.perf_counter()
        results.append(call(seed))
        times.append(time.perf_counter() - started)
    return float(np.median(times)), np.array(results)


def compare(
    name: str, build: Callable[[], pm.Model], exact: float | None, repeats: int
) -> dict[str, float]:
    model = build()
    started = time.perf_counter()
    ours(model, 0)
    first = time.perf_counter() - started
    theirs(model, 0)
    reference = exact if exact is not None else ours(model, 0, draws=DRAWS_OF_REFERENCE).value
    row = {"reference": reference, "first": first}
    for label, call in (
        ("ours", lambda s: ours(model, s).value),
        ("pymc", lambda s: theirs(model, s)),
    ):
        seconds, values = timed(call, repeats)
        error = values - reference
        row |= {
            f"{label}_time": seconds,
            f"{label}_bias": float(error.mean()),
            f"{label}_rmse": float(np.sqrt(np.mean(error**2))),
        }
        row[f"{label}_to_error"] = seconds * (row[f"{label}_rmse"] / TARGET_ERROR) ** 2
    row["ratio"] = row["pymc_to_error"] / row["ours_to_error"]
    print(
        f"{name:26s} {reference:10.3f} | {row['ours_time']:6.2f} {row['ours_bias']:8.4f} "
        f"{row['ours_rmse']:7.4f} {row['ours_to_error']:9.2f} | {row['pymc_time']:6.2f} "
        f"{row['pymc_bias']:8.4f} {row['pymc_rmse']:7.4f} {row['pymc_to_error']:9.2f} | "
        f"{row['ratio']:8.1f} | {first:6.1f}",
        flush=True,
    )
    return row


def main() -> None:
    options = start(__doc__)
    print(f"numpy {np.__version__}, PyMC {pm.__version__}, {options.repeats} runs each, 2 cores")
    print(f"seconds to an error of {TARGET_ERROR} nats: time * (rmse / {TARGET_ERROR})**2")
    columns = f"{'s':>6s} {'bias':>8s} {'rmse':>7s} {'to error':>9s}"
    print(f"{'':26s} {'':>10s} | {'ours':^33s} | {'pm.sample_smc':^33s} |")
    print(f"{'model':26s} {'log Z':>10s} | {columns} | {columns} | {'ratio':>8s} | first s")
    for name, (build, exact) in models().items():
        if not options.names or any(part in name for part in options.names):
            compare(name, build, exact, options.repeats)


if __name__ == "__main__":
    sys.exit(main())
