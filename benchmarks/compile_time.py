"""Processor time of the first call's compilation, cold: ours, and that of ``pm.sample_smc``.

Every measurement has a process of its own, with an empty folder for PyTensor's compiled code. Our
kernels are compiled beforehand, because they are the same for all models. Ours are the prior
draws, the density with its gradient and what writes draws on their own scale; those of
``pm.sample_smc`` are the initial point, prior draws, log prior and log likelihood, none of them
with a gradient. Imports and the model itself are not counted. Further processes then find ours on
disk: for the same data, for other data of the same shapes, and for data of another shape, whose
code is new. ``python benchmarks/compile_time.py [model ...]``
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

ALLOWED, ON_DISK = 1.2, 2.0


# Every model is built from data with a seed, and with ``more`` observations than usual.
def eight_schools(seed: int, more: int) -> pm.Model:
    """The first example of the README, with simulated data."""
    rng = np.random.default_rng([1, seed])
    y, se = rng.normal(8, 10, size=8 + more), rng.uniform(9, 18, size=8 + more)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfNormal("tau", 5)
        theta = pm.Normal("theta", mu, tau, shape=8 + more)
        pm.Normal("y", theta, se, observed=y)
    return model


def varying_intercepts(seed: int, more: int) -> pm.Model:
    """919 observations in 85 groups, as in the radon data."""
    rng, n = np.random.default_rng([2, seed]), 919 + more
    group = rng.permutation(np.arange(n) % 85)
    floor = rng.integers(2, size=n).astype(float)
    y = 1.3 + 0.3 * rng.normal(size=85)[group] - 0.7 * floor + 0.7 * rng.normal(size=n)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        between = pm.HalfNormal("between", 1)
        intercept = pm.Normal("intercept", mu, between, shape=85)
        slope = pm.Normal("slope", 0, 2)
        within = pm.HalfNormal("within", 2)
        pm.Normal("y", intercept[group] + slope * floor, within, observed=y)
    return model


def credit(seed: int, more: int) -> pm.Model:
    """Logistic regression of the size of the German credit data."""
    rng, n = np.random.default_rng([3, seed]), 1000 + more
    x = rng.normal(size=(n, 25))
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ rng.normal(0, 0.3, size=25)))).astype(int)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1, shape=25)
        pm.Bernoulli("y", logit_p=x @ slope, observed=y)
    return model


def random_walk(seed: int, more: int) -> pm.Model:
    """A random walk that is observed with noise."""
    rng, n = np.random.default_rng([4, seed]), 100 + more
    y = np.cumsum(rng.normal(size=n)) + 0.5 * rng.normal(size=n)
    with pm.Model() as model:
        step = pm.HalfNormal("step", 1)
        start = pm.Normal.dist(0, 1)
        level = pm.GaussianRandomWalk("level", sigma=step, init_dist=start, shape=n)
        pm.Normal("y", level, 0.5, observed=y)
    return model


def ode(seed: int, more: int) -> pm.Model:
    """Logistic growth by a Runge-Kutta scheme, written with a scan."""
    rng, n = np.random.default_rng([5, seed]), 40 + more
    y = np.linspace(1, 3, n) * np.exp(0.1 * rng.normal(size=n))
    with pm.Model() as model:
        rate, capacity = pm.LogNormal("rate", -1, 0.5), pm.LogNormal("capacity", 1, 0.5)
        noise = pm.HalfNormal("noise", 0.5)

        def grow(x, rate, capacity):
            def slope(x):
                return rate * x * (1 - x / capacity)

            first = slope(x)
            second = slope(x + 0.05 * first)
            third = slope(x + 0.05 * second)
            fourth = slope(x + 0.1 * third)
            return x + 0.1 / 6 * (first + 2 * second + 2 * third + fourth)

        size = pytensor.scan(
            grow,
            outputs_info=[pt.constant(1.0, dtype="float64")],
            non_sequences=[rate, capacity],
            n_steps=n,
            return_updates=False,
        )
        pm.LogNormal("y", pt.log(size), noise, observed=y)
    return model


def change_point(seed: int, more: int) -> pm.Model:
    """A level that follows its past, by another rate after a change, written with a scan."""
    rng, n = np.random.default_rng([6, seed]), 60 + 2 * more
    y = np.cumsum(rng.normal(size=n) * np.repeat([0.2, 1.0], n // 2))
    with pm.Model() as model:
        when = pm.Uniform("when", 0, n)
        early, late = pm.Beta("early", 2, 2), pm.Beta("late", 2, 2)
        noise = pm.HalfNormal("noise", 1)

        def follow(t, seen, level, when, early, late):
            rate = pt.switch(t < when, early, late)
            return level + rate * (seen - level)

        levels = pytensor.scan(
            follow,
            sequences=[pt.arange(n), pt.as_tensor(y)],
            outputs_info=[pt.constant(0.0, dtype="float64")],
            non_sequences=[when, early, late],
            return_updates=False,
        )
        pm.Normal("y", levels[:-1], noise, observed=y[1:])
    return model


def gaussian_process(seed: int, more: int) -> pm.Model:
    """A marginal Gaussian process of 40 points."""
    x = np.linspace(0, 1, 40 + more)[:, None]
    y = np.sin(6 * x[:, 0]) + 0.1 * np.random.default_rng([7, seed]).normal(size=40 + more)
    with pm.Model() as model:
        length = pm.InverseGamma("length", 5, 1)
        scale = pm.HalfNormal("scale", 2)
        noise = pm.HalfNormal("noise", 0.5)
        process = pm.gp.Marginal(cov_func=scale**2 * pm.gp.cov.ExpQuad(1, length))
        process.marginal_likelihood("y", X=x, y=y, sigma=noise)
    return model


def correlated_effects(seed: int, more: int) -> pm.Model:
    """Pairs with a covariance of their own, by LKJCholeskyCov."""
    rng = np.random.default_rng([8, seed])
    y = rng.normal(size=(30 + more, 2)) @ [[1.0, 0.5], [0.0, 0.8]]
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        mu = pm.Normal("mu", 0, 2, shape=2)
        pm.MvNormal("y", mu, chol=chol, observed=y)
    return model


def wishart_prior(seed: int, more: int) -> pm.Model:
    """A covariance with a Wishart prior, by Bartlett's decomposition."""
    y = np.random.default_rng([9, seed]).normal(size=(30 + more, 3))
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


def mixture(seed: int, more: int) -> pm.Model:
    """Three normal components with ordered means."""
    rng = np.random.default_rng([10, seed])
    y = np.concatenate([rng.normal(m, 1, 40 + more) for m in (-3, 0, 4)])
    with pm.Model() as model:
        weight = pm.Dirichlet("weight", np.ones(3))
        mean = pm.Normal(
            "mean", 0, 5, shape=3, transform=pm.distributions.transforms.ordered,
            initval=[-1.0, 0.0, 1.0],
        )  # fmt: skip
        spread = pm.HalfNormal("spread", 2, shape=3)
        pm.NormalMixture("y", w=weight, mu=mean, sigma=spread, observed=y)
    return model


MODELS: dict[str, Callable[[int, int], pm.Model]] = {
    build.__name__: build
    for build in (
        eight_schools,
        credit,
        varying_intercepts,
        random_walk,
        correlated_effects,
        ode,
        change_point,
        gaussian_process,
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


def measure(side: str, name: str, seed: int, more: int) -> None:
    """Print the seconds that one side takes, without imports and the model."""
    import pm_evidence  # noqa: F401

    warnings.simplefilter("ignore")
    model = MODELS[name](seed, more)
    started = seconds()
    {"ours": ours, "theirs": theirs}[side](model)
    print(json.dumps(seconds() - started))


def in_process(side: str, name: str, folder: str, seed: int = 0, more: int = 0) -> float:
    """Return the seconds of one side in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--measure", side, "--data", str(seed), str(more), name],
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
    print("| seconds of processor | ours | theirs | ratio | same data | other data | other shape |")
    print("|---|---|---|---|---|---|---|")
    for name in names or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            cold, same, other, shape = (
                in_process("ours", name, folder, *data) for data in ((0, 0), (0, 0), (1, 0), (1, 5))
            )
        with tempfile.TemporaryDirectory() as folder:
            theirs = in_process("theirs", name, folder)
        marks = [f" above {ALLOWED}"] * (cold > ALLOWED * theirs)
        marks += [f" above {ON_DISK} s"] * (max(same, other) > ON_DISK)
        print(
            f"| {name} | {cold:.1f} | {theirs:.1f} | {cold / theirs:.2f} | {same:.1f} | "
            f"{other:.1f} | {shape:.1f} |{','.join(marks)}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=["ours", "theirs"])
    parser.add_argument("--data", nargs=2, type=int, default=[0, 0])
    parser.add_argument("names", nargs="*", choices=[*MODELS, []], metavar="model")
    chosen = parser.parse_args()
    if chosen.measure:
        measure(chosen.measure, chosen.names[0], *chosen.data)
    else:
        main(chosen.names)
