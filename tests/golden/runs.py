"""The runs whose numbers are stored: every method, each family, and models of all kinds."""

import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

import pm_evidence as pe
from pm_evidence.results.compare import BayesFactor
from pm_evidence.testing import sine_rbm
from tests.models import DESIGN, NOISE, PRIOR_SD, X, Y, shared
from tests.posteriors import posterior_tree
from tests.systems.exact import exact_systems

QUIET = {"random_seed": 11, "progressbar": False, "cores": 1}
ONCE = {"draws": 400, "target_mcse": None}

Run = Callable[[], Any]
RUNS: dict[str, Run] = {}


def add(name: str, target: Callable[[], Any], **options: Any) -> None:
    """Add a call of ``sample_evidence``; the target is made when the run begins."""
    RUNS[name] = lambda: pe.sample_evidence(target(), **QUIET | options)


def model(name: str) -> Callable[[], pm.Model]:
    """Return what makes one of the models that tests share."""
    return lambda: shared(name).model


def system(name: str) -> Callable[[], pm.Model]:
    """Return what makes one of the exact systems."""
    return lambda: exact_systems()[name].build()


# --- default runs, and runs until the error is small enough, of models of all kinds ---

for kind in ("normal", "schools", "line", "positive", "modes", "mixed", "support", "no variable"):
    add(f"default {kind}", model(kind))
add("default small error", model("line"), target_mcse=0.002)
add("default circle", system("von_mises"))
add("default spread of groups", system("student_t_groups"), target_mcse=0.05)
add("default states", model("states"), target_mcse=0.05)
add("default groups", model("groups"), target_mcse=0.05)

for kind in ("schools", "modes", "line"):
    add(f"compiled {kind}", model(kind), backend="numba")

# --- methods, schedules, kernels, references ---

add("smc", model("schools"), method="smc", **ONCE)
add("smc discrete", model("discrete"), method="smc", **ONCE)
add(
    "smc without chains",
    model("positive"),
    method=pe.methods.SMC(chain_length=1, resample_below=0.6, resampling="ssp"),
    **ONCE,
)
add("smc random walk", model("several"), kernel="random_walk", **ONCE)
add("smc named schedule", model("normal"), method="smc", schedule="sm08", **ONCE)
add("smc potential in the prior", model("potential"), potentials="prior", **ONCE)
add("smc from a fit", model("line"), method="smc", reference="fit", **ONCE)
add("ais both ways", model("normal"), method="ais", **ONCE)
add("ais forward", model("positive"), method=pe.methods.AIS(direction="forward"), **ONCE)
add("ais learnt schedule", model("normal"), method="ais", schedule=pe.schedules.VarOpt(), **ONCE)
add("aisel paths", model("groups"), method=pe.methods.AISEL(resampling=None), **ONCE)
add("resample-move", model("line"), method="resample_move", **ONCE)
add("adaptive resample-move", model("line"), method=pe.methods.ARM(), **ONCE)
add("parallel tempering", model("normal"), method="parallel_tempering", **ONCE)
add("simulated tempering", model("normal"), method="simulated_tempering", **ONCE)


# --- posterior draws of the user's, pairs, tables ---


def drawn(n_chains: int = 4, n_draws: int = 500) -> xr.DataTree:
    """Exact posterior draws of the straight line, as pm.sample returns them."""
    covariance = np.linalg.inv(DESIGN.T @ DESIGN / NOISE**2 + np.diag(PRIOR_SD**-2.0))
    mean = covariance @ DESIGN.T @ Y / NOISE**2
    rng = np.random.default_rng(5)
    draws = rng.multivariate_normal(mean, covariance, (n_chains, n_draws))
    return posterior_tree(shared("line").model, {"coefficient": draws})


def wider() -> pm.Model:
    """The straight line with wider priors."""
    with pm.Model() as other:
        coefficient = pm.Normal("coefficient", 0, 2.0 * PRIOR_SD, shape=2)
        pm.Normal("y", coefficient[0] + coefficient[1] * X, NOISE, observed=Y)
    return other


def two_lines() -> dict[str, pm.Model]:
    """Two models of the same data."""
    return {"line": shared("line").model, "wider": wider()}


RUNS["ais from draws"] = lambda: pe.sample_evidence(
    shared("line").model, method=pe.methods.AIS(reverse_start=drawn()), **QUIET | ONCE
)
RUNS["bridge sampling"] = lambda: pe.bridge_sampling(drawn(), shared("line").model, **QUIET)
RUNS["pair of models"] = lambda: pe.bayes_factor(*two_lines().values(), **QUIET)
RUNS["compare models"] = lambda: pe.compare_models(two_lines(), **QUIET).table
RUNS["prior sensitivity"] = lambda: pe.prior_sensitivity(
    shared("normal").model,
    {shared("normal").model.free_RVs[0].name: [0.5, 2.0]},
    random_seed=11,
    progressbar=False,
)
RUNS["calibrate"] = lambda: pe.calibrate(two_lines(), 20, **QUIET).runs
RUNS["certify"] = lambda: pe.simulate_and_certify(shared("normal").model, draws=200, **QUIET)
RUNS["latent states"] = lambda: pe.gp.sample_latent(
    pe.sample_evidence(shared("states").model, **QUIET | ONCE),
    shared("states").model,
    draws=50,
    random_seed=11,
)

# --- native families ---

add("gaussian", pe.mixtures.Gaussian, **ONCE)
add("gaussian averaged moments", pe.mixtures.Gaussian, path="moment_average", **ONCE)
add("gaussian ladders", pe.mixtures.Gaussian, method="parallel_tempering", **ONCE)
add("ising", lambda: pe.lattices.Ising((6, 6), 0.4), **ONCE)
add("ising clusters", lambda: pe.lattices.Ising((6, 6), 0.4), kernel="swendsen_wang", **ONCE)
add("ising in a field", lambda: pe.lattices.Ising((4, 4), 0.3, field=0.1), **ONCE)
add("potts", lambda: pe.lattices.Potts((6, 6), 3, 0.9), **ONCE)
add("machine", lambda: pe.rbm.RBM(*sine_rbm(8, 6)), **ONCE)
add("machine of one layer", lambda: pe.rbm.RBM(*sine_rbm(8, 6), latent="marginal"), **ONCE)


def trained() -> xr.Dataset:
    """A small machine after a few updates."""
    data = np.random.default_rng(3).integers(0, 2, size=(60, 8)).astype(np.uint8)
    machine = pe.rbm.train_rbm(data, 4, n_updates=40, random_seed=11, progressbar=False)
    return xr.Dataset({"W": (("visible", "hidden"), machine.W)})


RUNS["machine trained"] = trained
add(
    "mixture",
    lambda: pe.mixtures.GaussianMixture(
        np.random.default_rng(4).normal([-2.0, 2.0] * 10, 1.0),
        2,
        mean_mu=0.0,
        mean_sigma=3.0,
        variance_alpha=2.0,
        variance_beta=1.0,
    ),
    **ONCE,
)
add(
    "gp classification",
    lambda: pe.gp.GPClassification(
        np.random.default_rng(5).normal(size=(12, 2)), np.tile([-1, 1], 6), length_scale=1.0
    ),
    **ONCE,
)


# --- where and how blocks run ---


def resumed() -> Any:
    """A run whose blocks are read from the checkpoint of the same run before it."""
    options = {"method": "smc", "draws": 320, "target_mcse": None, **QUIET}
    with tempfile.TemporaryDirectory() as folder:
        pe.sample_evidence(shared("normal").model, checkpoint=folder, **options)
        return pe.sample_evidence(shared("normal").model, checkpoint=folder, **options)


def distributed() -> Any:
    """A run on a Dask cluster of this machine."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        where = {**QUIET, "executor": client.get_executor()}
        return pe.sample_evidence(shared("normal").model, method="smc", **where | ONCE)


RUNS["checkpoint"] = resumed
RUNS["dask"] = distributed


# --- what is stored of a result ---


def described(result: Any) -> dict[str, Any]:
    """Return the numbers of a result: they are equal if and only if all bits are."""
    if isinstance(result, xr.DataTree):
        found = {}
        if "log_evidence" in result.children:
            group = result["log_evidence"]
            for name in group["estimator"].values:
                found[str(name)] = one(pe.log_evidence(result, estimator=str(name)))
            found["evaluations"] = int(group.attrs.get("n_evaluations", 0))
        for name, node in result.children.items():
            if name in ("posterior", "work", "annealing"):
                found[name] = digest(node.to_dataset())
        return found
    if isinstance(result, xr.Dataset):
        return {"arrays": digest(result)}
    if isinstance(result, pd.DataFrame):
        timeless = [c for c in result if not any(w in str(c) for w in ("time", "second"))]
        return {
            str(c): [str(v) if isinstance(v, str) else float(v) for v in result[c]]
            for c in timeless
            if result[c].dtype.kind in "fiub"
        }
    return {"estimate": one(result)}


def one(estimate: Any) -> list[Any]:
    """Return value, error and status of an estimate, or of a Bayes factor."""
    value = estimate.log_bf if isinstance(estimate, BayesFactor) else estimate.value
    return [float(value), float(estimate.mcse), estimate.status]


def digest(dataset: xr.Dataset) -> str:
    """Return a hash of the numbers of a group, without those of the clock."""
    sha = hashlib.sha256()
    for name in sorted(map(str, dataset.variables)):
        values = dataset[name].values
        if values.dtype.kind in "biuf" and "time" not in name:
            sha.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return sha.hexdigest()[:16]


def main(names: Iterable[str]) -> None:
    """Run, and print a line of JSON for each run."""
    warnings.simplefilter("ignore")
    for name in names:
        print(json.dumps({name: described(RUNS[name]())}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or RUNS)
