"""Processor time of the first call's compilation, cold: ours, and that of ``pm.sample_smc``.

Every measurement has a process of its own, with an empty folder for PyTensor's compiled code. Our
kernels are compiled beforehand, because they are the same for all models. Ours are the prior
draws, the density with its gradient and what writes draws on their own scale; those of
``pm.sample_smc`` are the initial point, prior draws, log prior and log likelihood, none of them
with a gradient. Imports and the model itself are not counted. A second process then finds ours on
disk. ``python benchmarks/compile_time.py [model ...]``
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from common import logistic_regression

ALLOWED = 1.2


def eight_schools() -> pm.Model:
    """The first example of the README."""
    y = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]
    se = [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfNormal("tau", 5)
        theta = pm.Normal("theta", mu, tau, shape=8)
        pm.Normal("y", theta, se, observed=y)
    return model


def varying_intercepts() -> pm.Model:
    """919 observations in 85 groups, as in the radon data."""
    rng = np.random.default_rng(1)
    group = rng.integers(85, size=919)
    floor = rng.integers(2, size=919).astype(float)
    y = 1.3 + 0.3 * rng.normal(size=85)[group] - 0.7 * floor + 0.7 * rng.normal(size=919)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        between = pm.HalfNormal("between", 1)
        intercept = pm.Normal("intercept", mu, between, shape=85)
        slope = pm.Normal("slope", 0, 2)
        within = pm.HalfNormal("within", 2)
        pm.Normal("y", intercept[group] + slope * floor, within, observed=y)
    return model


def change_point() -> pm.Model:
    """A level that follows its past, by another rate after a change, written with a scan."""
    rng = np.random.default_rng(2)
    y = np.cumsum(rng.normal(size=60) * np.repeat([0.2, 1.0], 30))
    with pm.Model() as model:
        when = pm.Uniform("when", 0, 60)
        early, late = pm.Beta("early", 2, 2), pm.Beta("late", 2, 2)
        noise = pm.HalfNormal("noise", 1)

        def follow(t, seen, level, when, early, late):
            rate = pt.switch(t < when, early, late)
            return level + rate * (seen - level)

        levels = pytensor.scan(
            follow,
            sequences=[pt.arange(60), pt.as_tensor(y)],
            outputs_info=[pt.constant(0.0, dtype="float64")],
            non_sequences=[when, early, late],
            return_updates=False,
        )
        pm.Normal("y", levels[:-1], noise, observed=y[1:])
    return model


def gaussian_process() -> pm.Model:
    """A marginal Gaussian process of 40 points."""
    x = np.linspace(0, 1, 40)[:, None]
    y = np.sin(6 * x[:, 0]) + 0.1 * np.random.default_rng(3).normal(size=40)
    with pm.Model() as model:
        length = pm.InverseGamma("length", 5, 1)
        scale = pm.HalfNormal("scale", 2)
        noise = pm.HalfNormal("noise", 0.5)
        process = pm.gp.Marginal(cov_func=scale**2 * pm.gp.cov.ExpQuad(1, length))
        process.marginal_likelihood("y", X=x, y=y, sigma=noise)
    return model


def correlated_effects() -> pm.Model:
    """Pairs with a covariance of their own, by LKJCholeskyCov."""
    y = np.random.default_rng(4).normal(size=(30, 2)) @ [[1.0, 0.5], [0.0, 0.8]]
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        mu = pm.Normal("mu", 0, 2, shape=2)
        pm.MvNormal("y", mu, chol=chol, observed=y)
    return model


def wishart_prior() -> pm.Model:
    """A covariance with a Wishart prior, by Bartlett's decomposition."""
    y = np.random.default_rng(5).normal(size=(30, 3))
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spread = pm.HalfNormal("spread", 1, shape=3)
        diagonal = pm.ChiSquared("diagonal", nu=np.array([6.0, 5.0, 4.0]))
        below = pm.Normal("below", 0, 1, shape=3)
        factor = pt.diag(pt.sqrt(diagonal))
        factor = pt.set_subtensor(factor[np.tril_indices(3, -1)], below)
        covariance = spread[:, None] * (factor @ factor.T) * spread[None, :] + 1e-6 * np.eye(3)
        pm.MvNormal("y", np.zeros(3), cov=covariance, observed=y)
    return model


def mixture() -> pm.Model:
    """Three normal components with ordered means."""
    rng = np.random.default_rng(6)
    y = np.concatenate([rng.normal(m, 1, 40) for m in (-3, 0, 4)])
    with pm.Model() as model:
        weight = pm.Dirichlet("weight", np.ones(3))
        mean = pm.Normal(
            "mean", 0, 5, shape=3, transform=pm.distributions.transforms.ordered,
            initval=[-1.0, 0.0, 1.0],
        )  # fmt: skip
        spread = pm.HalfNormal("spread", 2, shape=3)
        pm.NormalMixture("y", w=weight, mu=mean, sigma=spread, observed=y)
    return model


MODELS: dict[str, Callable[[], pm.Model]] = {
    build.__name__: build
    for build in (
        eight_schools,
        varying_intercepts,
        logistic_regression,
        change_point,
        gaussian_process,
        correlated_effects,
        wishart_prior,
        mixture,
    )
}


def seconds() -> float:
    """Processor time of this process and its children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def ours(model: pm.Model) -> None:
    """Compile, by calling it, what a first run of ``pe.sample_evidence`` calls of the model."""
    from pm_evidence.runs.defaults import annealing_setup
    from pm_evidence.targets.model.cache import target_of

    target = target_of(model)
    line = annealing_setup(target, "auto")
    state = line.path.draw(2, np.random.SeedSequence(1))
    if target.differentiable is not None:
        target.differentiable.evaluate(state.x)
    target.posterior(state.x)


def theirs(model: pm.Model) -> None:
    """Compile, by calling it, what a first run of ``pm.sample_smc`` calls of the model."""
    from pymc.smc.kernels import IMH

    kernel = IMH(draws=2, model=model, random_seed=1)
    kernel._initialize_kernel()


def measure(side: str, name: str) -> None:
    """Print the seconds that one side takes, without imports and the model."""
    import pm_evidence  # noqa: F401

    warnings.simplefilter("ignore")
    model = MODELS[name]()
    started = seconds()
    {"ours": ours, "theirs": theirs}[side](model)
    print(json.dumps(seconds() - started))


def in_process(side: str, name: str, folder: str) -> float:
    """Return the seconds of one side in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--measure", side, name],
        env=os.environ | {"PYTENSOR_FLAGS": f"base_compiledir={folder}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


def main(names: list[str]) -> None:
    """Print a table with a row for each model."""
    with tempfile.TemporaryDirectory() as folder:
        in_process("ours", "eight_schools", folder)  # our kernels
    print(f"{'seconds of processor':22} {'ours':>7} {'theirs':>7} {'ratio':>6} {'on disk':>8}")
    for name in names or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            found = [in_process("ours", name, folder) for _ in range(2)]
        with tempfile.TemporaryDirectory() as folder:
            other = in_process("theirs", name, folder)
        ratio = found[0] / other
        mark = "" if ratio <= ALLOWED else f"  above {ALLOWED}"
        print(
            f"{name:22} {found[0]:7.1f} {other:7.1f} {ratio:6.2f} {found[1]:8.1f}{mark}", flush=True
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=["ours", "theirs"])
    parser.add_argument("names", nargs="*", choices=[*MODELS, []], metavar="model")
    chosen = parser.parse_args()
    if chosen.measure:
        measure(chosen.measure, chosen.names[0])
    else:
        main(chosen.names)
