"""Small systems that can be drawn exactly at every inverse temperature."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product

import numba as nb
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import stats
from scipy.special import logsumexp

from pm_evidence.core.codegen.numba import density_signature
from pm_evidence.core.contracts import Tunable
from pm_evidence.kernels.cycle import Cycle
from pm_evidence.kernels.discrete import DiscreteGibbs, IntegerWalk
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.random_walk import RandomWalk
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.targets.compile.jax_density import jax_density
from pm_evidence.targets.compile.numba_density import CompiledDensity
from pm_evidence.targets.compile.numpy_density import NumpyDensity
from pm_evidence.targets.layout import Particles
from pm_evidence.targets.model.target import PyMCTarget


@dataclass(frozen=True)
class System:
    """A path, and what draws ``n`` points exactly at ``beta``, shape ``(n, n_dim)``.

    ``log_evidence`` is that at ``beta = 1``, where it is known.
    """

    path: GeometricPath
    draw: Callable[[float, int, np.random.Generator], np.ndarray]
    log_evidence: float = np.nan

    def population(self, beta, n, seed):
        return self.path.target.evaluate(self.draw(beta, n, np.random.default_rng(seed)))


class NativeTarget:
    """What kernels need of a target, around a C function: no model is compiled."""

    def __init__(self, c_function, n_continuous, lower=(), upper=()):
        data = np.zeros(1, np.int64)
        self.density = CompiledDensity(c_function.address, data, False, (), (c_function,))
        self.differentiable = replace(self.density, has_gradient=True) if n_continuous else None
        self.n_dim = n_continuous + len(lower)
        self.continuous = np.arange(n_continuous)
        self.discrete = np.arange(n_continuous, self.n_dim)
        self.lower, self.upper = np.array(lower, dtype=float), np.array(upper, dtype=float)
        self.period = np.zeros(self.n_dim)

    def wrap(self, x):
        return x

    def evaluate(self, x):
        return Particles(x, *self.density.evaluate(x))


def native(function, n_continuous, lower=(), upper=()):
    """The target of a density ``function(x, out, gradient)`` that returns a status."""
    compiled = nb.njit(function, error_model="numpy")
    n_dim = n_continuous + len(lower)

    def density(x_, out_, gradient_, data_):
        x, out = nb.carray(x_, (n_dim,)), nb.carray(out_, (2,))
        return compiled(x, out, nb.carray(gradient_, (2, n_dim)))

    return NativeTarget(nb.cfunc(density_signature())(density), n_continuous, lower, upper)


# --- continuous ---

PRIOR_SD = np.array([1.0, 2.0, 0.5])
DESIGN = np.array([[1.0, 0.8, -0.3], [0.2, 1.1, 0.5], [-0.7, -0.6, 1.5], [0.9, 1.0, 0.0]])
NOISE, Y = 0.9, np.array([1.5, 0.3, -1.1, 2.0])


@cache
def gaussian(backend="numba"):
    """Three correlated normal coordinates, as a PyMC model."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, PRIOR_SD, shape=3)
        pm.Normal("y", pt.as_tensor(DESIGN) @ x, np.float64(NOISE), observed=Y)

    def draw(beta, n, rng):
        precision = np.diag(PRIOR_SD**-2) + beta * DESIGN.T @ DESIGN / NOISE**2
        covariance = np.linalg.inv(precision)
        mean = covariance @ (beta * DESIGN.T @ Y / NOISE**2)
        return rng.multivariate_normal(mean, covariance, size=n, method="cholesky")

    marginal = DESIGN @ np.diag(PRIOR_SD**2) @ DESIGN.T + NOISE**2 * np.eye(len(Y))
    log_evidence = float(stats.multivariate_normal.logpdf(Y, cov=marginal))
    return System(GeometricPath(PyMCTarget(model, backend=backend)), draw, log_evidence)


ANGLE, CONCENTRATION, OBSERVED_ANGLE, PULL = 3.0, 1.5, 2.2, 2.0


@cache
def circle(backend="numba"):
    """An angle whose mode is near the cut at pi, and a normal coordinate, as a PyMC model."""
    with pm.Model() as model:
        angle = pm.VonMises("angle", mu=ANGLE, kappa=CONCENTRATION)
        mu = pm.Normal("mu", 0, 1)
        pm.Potential("pull", PULL * pm.math.cos(angle - OBSERVED_ANGLE))
        pm.Normal("y", mu, 1, observed=1.2)

    def draw(beta, n, rng):
        both = CONCENTRATION * np.exp(1j * ANGLE) + beta * PULL * np.exp(1j * OBSERVED_ANGLE)
        angle = rng.vonmises(np.angle(both), np.abs(both), size=n)
        mu = rng.normal(beta * 1.2 / (1 + beta), (1 + beta) ** -0.5, size=n)
        return np.column_stack([angle, mu])

    return System(GeometricPath(PyMCTarget(model, backend=backend)), draw)


def circle_functions(x):
    """Test functions that know that an angle is one."""
    angle, mu = x.T
    return {
        "cos": np.cos(angle),
        "sin": np.sin(angle),
        "cos 2": np.cos(2 * angle),
        "mu": mu,
        "mu^2": mu**2,
        "mu cos": mu * np.cos(angle),
    }


def _wall(x, out, gradient):
    # written out in full: nothing may depend on what the kernels do with -inf
    out[0] = -0.5 * (x[0] * x[0] + x[1] * x[1])
    gradient[0, 0], gradient[0, 1] = -x[0], -x[1]
    gradient[1, 0], gradient[1, 1] = -x[0], 0.0
    out[1] = -0.5 * x[0] * x[0] if x[0] >= 0.0 else -np.inf
    return 0


@cache
def wall():
    """A likelihood that is zero on one side."""

    def draw(beta, n, rng):
        x = rng.normal(size=(n, 2))
        if beta > 0:
            x[:, 0] = np.abs(x[:, 0]) * (1 + beta) ** -0.5
        return x

    return System(GeometricPath(native(_wall, 2)), draw)


def _holes(x, out, gradient):
    out[0] = -0.5 * x[0] * x[0]
    gradient[0, 0] = -x[0]
    if x[0] < 0.0:
        out[1] = np.nan
        gradient[1, 0] = np.nan
        return 1 if x[0] < -0.5 else 0  # a status, as where a linear solver gives up
    out[1] = 2.0 * np.log(x[0])
    gradient[1, 0] = 2.0 / x[0]
    return 0


@cache
def holes():
    """A likelihood that is NaN, or fails, on one side: the density is what is defined."""

    return System(GeometricPath(native(_holes, 1)), _draw_beside_holes)


def _draw_beside_holes(beta, n, rng):
    return np.sqrt(2.0 * rng.gamma(beta + 0.5, size=(n, 1)))


def _holes_by_jax(x, arrays):
    import jax.numpy as jnp

    log = jnp.where(x[0] < 0.0, jnp.nan, jnp.log(jnp.abs(x[0])))
    slope = jnp.where(x[0] < 0.0, jnp.nan, 2.0 / x[0])
    return jnp.stack([-0.5 * x[0] ** 2, 2.0 * log]), jnp.stack([-x, slope[None]])


@cache
def holes_by_jax():
    """The same density, where JAX evaluates it."""
    target = native(_holes, 1)
    target.differentiable = jax_density(_holes_by_jax, 1, [], has_gradient=True)
    return System(GeometricPath(target), _draw_beside_holes)


def _holes_by_numpy(x, arrays, with_gradient):
    with np.errstate(all="ignore"):
        values = np.column_stack([-0.5 * x[:, 0] ** 2, 2.0 * np.log(x[:, 0])])
        slope = np.where(x < 0.0, np.nan, 2.0 / x)
    return values, np.stack([-x, slope], axis=1) if with_gradient else None


@cache
def holes_by_numpy():
    """The same density, where NumPy evaluates it, in blocks that are smaller than a population."""
    target = native(_holes, 1)
    target.differentiable = NumpyDensity(_holes_by_numpy, 1, [], has_gradient=True, n_rows=16)
    return System(GeometricPath(target), _draw_beside_holes)


def _tails(x, out, gradient):
    inside = 1.0 + x[0] * x[0] / 2.0
    out[0] = -1.5 * np.log(inside)
    out[1] = -1.0 * np.log(inside)
    gradient[0, 0] = -1.5 * x[0] / inside
    gradient[1, 0] = -1.0 * x[0] / inside
    return 0


@cache
def tails():
    """Student-t with 2 degrees of freedom that become 4."""

    def draw(beta, n, rng):
        nu = 2.0 + 2.0 * beta
        return rng.standard_t(nu, size=(n, 1)) * np.sqrt(2.0 / nu)

    return System(GeometricPath(native(_tails, 1)), draw)


# --- discrete ---

_SIDE = 4
_TABLE = np.random.default_rng(64).normal(size=(2, _SIDE, _SIDE, _SIDE)) * 1.5
_TABLE[1, 0, 1, 2] = _TABLE[1, 3, 3, 0] = -np.inf


def _table(x, out, gradient):
    i, j, k = int(x[0]), int(x[1]), int(x[2])
    if min(i, j, k) < 0 or max(i, j, k) >= _SIDE:
        out[0], out[1] = -np.inf, 0.0
        return 0
    out[0], out[1] = _TABLE[0, i, j, k], _TABLE[1, i, j, k]
    return 0


@cache
def table():
    """Three coordinates of four values each, with random densities and two impossible states."""
    target = native(_table, 0, lower=[0] * 3, upper=[_SIDE - 1] * 3)
    states = np.array(list(product(range(_SIDE), repeat=3)), dtype=float)

    def draw(beta, n, rng):
        log_f = _TABLE[0].ravel() + (beta * _TABLE[1].ravel() if beta > 0 else 0.0)
        return states[rng.choice(len(states), size=n, p=np.exp(log_f - logsumexp(log_f)))]

    return System(GeometricPath(target), draw)


def table_functions(x):
    """One indicator for every value of every coordinate: the values have no order."""
    return {f"x{j}={v}": (x[:, j] == v).astype(float) for j in range(3) for v in range(_SIDE)}


# --- mixed ---

_P, _OFFSET = np.array([0.5, 0.3, 0.2]), np.array([-2.0, 0.0, 1.5])
_RATE, _PER_COUNT, _MU_SD = 3.0, 0.5, 2.0
_MIXED_Y = np.array([1.9, 3.0, 2.4])


@cache
def mixed():
    """A normal mean with a categorical and a Poisson part, as a PyMC model: (label, count, mu)."""
    with pm.Model() as model:
        label = pm.Categorical("label", p=_P)
        count = pm.Poisson("count", np.float64(_RATE))
        mu = pm.Normal("mu", 0, np.float64(_MU_SD))
        mean = mu + pt.as_tensor(_OFFSET)[label] + np.float64(_PER_COUNT) * count
        pm.Normal("y", mean, 1, observed=_MIXED_Y)

    counts = np.arange(60)
    log_p = np.log(_P)[:, None] + stats.poisson.logpmf(counts, _RATE)
    residual = _MIXED_Y[:, None, None] - _OFFSET[:, None] - _PER_COUNT * counts

    def given_discrete(beta):
        """Integrate the normal mean out of every pair of label and count."""
        precision = _MU_SD**-2 + beta * len(_MIXED_Y)
        linear = beta * residual.sum(axis=0)
        log_f = log_p - 0.5 * beta * (residual**2).sum(axis=0) + 0.5 * linear**2 / precision
        log_f -= 0.5 * np.log(precision * _MU_SD**2) + 0.5 * beta * len(_MIXED_Y) * np.log(
            2 * np.pi
        )
        return log_f, linear / precision, precision**-0.5

    def draw(beta, n, rng):
        log_f, mean, sd = given_discrete(beta)
        chosen = rng.choice(log_f.size, size=n, p=np.exp(log_f - logsumexp(log_f)).ravel())
        label, count = np.unravel_index(chosen, log_f.shape)
        return np.column_stack([label, count, rng.normal(mean[label, count], sd)])

    log_evidence = float(logsumexp(given_discrete(1.0)[0]))
    return System(GeometricPath(PyMCTarget(model)), draw, log_evidence)


# --- kernels ---

MOVERS = {
    "hmc-dense": HMC(dense=True),
    "hmc-diagonal": HMC(dense=False),
    "hmc-exploring": HMC(exploring=True),
    "hmc-exploring-diagonal": HMC(exploring=True, dense=False, step_size=0.9, path_length=2.0),
    "random-walk": RandomWalk(dense=True),
    "random-walk-diagonal": RandomWalk(dense=False, n_steps=3),
}
ALL = np.arange(3)
SWEEPS = {
    "gibbs": DiscreteGibbs(ALL, np.zeros(3), np.full(3, _SIDE - 1.0)),
    "integer-walk": IntegerWalk(ALL, np.array([1.0, 2.0, 1.5])),
    "gibbs-and-walk": Cycle(
        (
            DiscreteGibbs(ALL[:2], np.zeros(2), np.full(2, _SIDE - 1.0)),
            IntegerWalk(ALL[2:], np.ones(1)),
        )
    ),
}


def _mixture(mover):
    label, count = np.array([0]), np.array([1])
    walk = IntegerWalk(count, np.array([2.0]))
    return Cycle((mover, DiscreteGibbs(label, np.zeros(1), np.full(1, 2.0)), walk))


SYSTEMS = {
    "gaussian": gaussian,
    "circle": circle,
    "wall": wall,
    "holes": holes,
    "tails": tails,
    "table": table,
    "mixed": mixed,
    "gaussian by jax": partial(gaussian, "jax"),
    "circle by jax": partial(circle, "jax"),
    "holes by jax": holes_by_jax,
    "gaussian by numpy": partial(gaussian, "numpy"),
    "circle by numpy": partial(circle, "numpy"),
    "holes by numpy": holes_by_numpy,
}
# Systems whose whole populations are moved at once, by JAX or by NumPy.
TOGETHER = tuple(name for name in SYSTEMS if " by " in name)
FUNCTIONS = {
    **{name: circle_functions for name in SYSTEMS if name.startswith("circle")},
    "table": table_functions,
}
KERNELS = {
    **dict.fromkeys(["gaussian", "circle", "wall", "holes", "tails"], MOVERS),
    "table": SWEEPS,
    "mixed": {f"{name}-and-discrete": _mixture(mover) for name, mover in MOVERS.items()},
}
# There those two that share no setting: `test_the_same_move_as_numba` has others.
KERNELS |= {
    system: {name: MOVERS[name] for name in ("hmc-dense", "hmc-exploring-diagonal")}
    for system in TOGETHER
}
CASES = [(system, kernel) for system in SYSTEMS for kernel in KERNELS[system]]
BETA = 0.7  # of the fast tier, and of the planted errors that it must find


def n_members(system):
    """A wrong beta hardly changes heavy tails: more members show it."""
    return 20_000 if system == "tails" else 5000


def n_pairs(system):
    """Sweeps that are not reversed show in the table by ten errors with so many pairs only."""
    return 200_000 if system == "table" else n_members(system)


@cache
def fitted(system, name, beta, n=2000):
    """The kernel with its shape learnt from draws that no check uses again."""
    kernel = KERNELS[system][name]
    exact = SYSTEMS[system]()
    return learnt(kernel, exact.path, exact.population(beta, n, seed=99))


def learnt(kernel, path, state):
    """A kernel with its shape learnt from a population, if it has one."""
    return kernel.learn(path, state) if isinstance(kernel, Tunable) else kernel
