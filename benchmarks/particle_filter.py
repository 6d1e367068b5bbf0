"""A particle filter for any PyMC model, against one written by hand and the package `particles`.

Stochastic volatility, 945 times, 500 particles, on one core. All three run in this process, in
turns, so that the ratios of their medians hold whatever else the machine does.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import subprocess
import sys
import tempfile
import time
import warnings

import numba as nb
import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pm_evidence.targets.estimated.state_space import StateSpace
from pm_evidence.targets.estimated.variable import estimators_of

T, N = 945, 500
MU, PHI, SIGMA = -0.5, 0.97, 0.2
REPEATS, REPEATS_PEER = 60, 12


def data():
    rng = np.random.default_rng(1)
    y, h = np.empty(T), MU + SIGMA / np.sqrt(1 - PHI**2) * rng.normal()
    for t in range(T):
        y[t] = np.exp(h / 2) * rng.normal()
        h = MU + PHI * (h - MU) + SIGMA * rng.normal()
    return y


def build(y):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        phi = pm.Uniform("phi", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        StateSpace(
            "returns",
            init=lambda: pm.Normal.dist(mu, sigma / pt.sqrt(1 - phi**2)),
            transition=lambda h, t: pm.Normal.dist(mu + phi * (h - mu), sigma),
            emission=lambda h, t: pm.Normal.dist(0, pt.exp(h / 2)),
            observed=y,
            n_particles=N,
        )
    return model


X = np.array([[MU, np.log(PHI / (1 - PHI)), np.log(SIGMA)]])


@nb.njit
def by_hand(rng, y, mu, phi, sigma, n):
    h = mu + sigma / np.sqrt(1 - phi * phi) * rng.standard_normal(n)
    other, weight, w = np.empty(n), np.full(n, 1.0 / n), np.empty(n)
    log_weight, index, total = np.empty(n), np.empty(n, np.int64), 0.0
    for t in range(y.size):
        if t > 0:
            for i in range(n):
                h[i] = mu + phi * (h[i] - mu) + sigma * rng.standard_normal()
        top = -np.inf
        for i in range(n):
            log_weight[i] = -0.5 * (1.8378770664093453 + h[i] + y[t] * y[t] * np.exp(-h[i]))
            top = max(top, log_weight[i])
        s = 0.0
        for i in range(n):
            w[i] = weight[i] * np.exp(log_weight[i] - top)
            s += w[i]
        total += top + np.log(s)
        squares = 0.0
        for i in range(n):
            weight[i] = w[i] / s
            squares += weight[i] * weight[i]
        if 1.0 / squares < 0.5 * n:
            shift, c, j = rng.random(), weight[0], 0
            for i in range(n):
                while c < (i + shift) / n and j < n - 1:
                    j += 1
                    c += weight[j]
                index[i] = j
            for i in range(n):
                other[i] = h[index[i]]
            h, other = other, h
            weight[:] = 1.0 / n
    return total


def peer(y):
    """Return one run of the package `particles`, or None where it is not installed."""
    try:
        import particles
        from particles import distributions as dists
        from particles import state_space_models as ssm
    except ImportError:
        return None

    class Volatility(ssm.StateSpaceModel):
        def PX0(self):
            return dists.Normal(loc=MU, scale=SIGMA / np.sqrt(1 - PHI**2))

        def PX(self, t, xp):
            return dists.Normal(loc=MU + PHI * (xp - MU), scale=SIGMA)

        def PY(self, t, xp, x):
            return dists.Normal(loc=0, scale=np.exp(x / 2))

    def run(seed):
        np.random.seed(seed)  # noqa: NPY002  the package draws from NumPy's global generator
        smc = particles.SMC(
            fk=ssm.Bootstrap(ssm=Volatility(), data=y), N=N, resampling="systematic", ESSrmin=0.5
        )
        smc.run()
        return smc.logLt

    return run


def compile_seconds():
    """Time the build of the estimator in new processes, with an empty cache and a full one."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ",".join(
            filter(None, [os.environ.get("PYTENSOR_FLAGS"), f"base_compiledir={folder}"])
        )
        environment = {**os.environ, "PYTENSOR_FLAGS": flags}
        command = [sys.executable, __file__, "--compile"]
        for state in ("cold", "warm"):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            print(f"compile, {state} cache: {float(done.stdout.split()[-1]):6.2f} s")


def compile_once():
    model = build(data())
    start = time.perf_counter()
    (one,) = estimators_of(model)
    one.estimate(X, np.array([[1]], np.uint64))
    print(time.perf_counter() - start)


def main():
    warnings.filterwarnings("ignore", message="PyTensor could not link")
    if "--compile" in sys.argv:
        return compile_once()
    compile_seconds()
    y = data()
    (one,) = estimators_of(build(y))
    candidates = {
        "pm_evidence": lambda k: one.estimate(X, np.array([[k]], np.uint64))[0],
        "numba, by hand": lambda k: by_hand(np.random.default_rng(k), y, MU, PHI, SIGMA, N),
        "particles": peer(y),
    }
    candidates = {name: run for name, run in candidates.items() if run is not None}
    seconds = {name: [] for name in candidates}
    values = {name: [] for name in candidates}
    for run in candidates.values():
        run(0)
    for k in range(REPEATS):
        for name, run in candidates.items():
            if name == "particles" and k >= REPEATS_PEER:
                continue
            start = time.perf_counter()
            values[name].append(run(k))
            seconds[name].append(time.perf_counter() - start)
    ours = np.median(seconds["pm_evidence"])
    for name, taken in seconds.items():
        print(
            f"{name:15s} median {1e3 * np.median(taken):7.2f} ms, {np.median(taken) / ours:5.2f} "
            f"of ours; log likelihood {np.mean(values[name]):9.2f}, sd {np.std(values[name]):.2f}"
        )
    by_hand_seconds = np.median(seconds["numba, by hand"])
    print(f"ours takes {ours / by_hand_seconds:.2f} of the time of the filter written by hand")


if __name__ == "__main__":
    main()
