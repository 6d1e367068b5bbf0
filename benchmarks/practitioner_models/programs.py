"""Likelihoods that are programs: an ordinary differential equation, and a black box."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pm_evidence.testing.systems import log_normal

from .case import Case, Reference
from .importance import evidence_at_mode

__all__ = ["CASES"]

Floats = NDArray[np.float64]

# An epidemic, by 60 steps of the fourth-order rule of Runge and Kutta; every fourth is observed.
_STEPS, _DAYS, _EVERY = 60, 0.75, 4


def _rates(s, i, infection, recovery):
    """Changes of susceptible and infected people, in shares of all."""
    return -infection * s * i, infection * s * i - recovery * i


def epidemic_step(s, i, infection, recovery):
    """Return the state after one step; works on arrays and on symbolic variables."""
    h = _DAYS
    s1, i1 = _rates(s, i, infection, recovery)
    s2, i2 = _rates(s + h / 2 * s1, i + h / 2 * i1, infection, recovery)
    s3, i3 = _rates(s + h / 2 * s2, i + h / 2 * i2, infection, recovery)
    s4, i4 = _rates(s + h * s3, i + h * i3, infection, recovery)
    return s + h / 6 * (s1 + 2 * s2 + 2 * s3 + s4), i + h / 6 * (i1 + 2 * i2 + 2 * i3 + i4)


def log_infected(log_infection: Floats, log_recovery: Floats, log_first: Floats) -> Floats:
    """Return the log share of infected people at the times that are observed, times first."""
    i = np.exp(log_first)
    s, found = 1 - i, []
    for k in range(_STEPS):
        s, i = epidemic_step(s, i, np.exp(log_infection), np.exp(log_recovery))
        if (k + 1) % _EVERY == 0:
            found.append(np.log(i))
    return np.stack(found)


@cache
def epidemic() -> Floats:
    """Return the logs of 15 noisy shares of infected people."""
    truth = log_infected(np.log(0.5), np.log(0.15), np.log(0.005))
    return truth + 0.2 * np.random.default_rng(15).standard_normal(truth.size)


def build_ode() -> pm.Model:
    """Rates, first share and noise of an epidemic that is solved by a scan."""
    with pm.Model() as model:
        infection = pm.LogNormal("infection", -1, 0.5)
        recovery = pm.LogNormal("recovery", -2, 0.5)
        first = pm.LogNormal("first", -5, 1)
        noise = pm.HalfNormal("noise", 0.5)
        _, infected = pytensor.scan(
            epidemic_step,
            outputs_info=[1 - first, first],
            non_sequences=[infection, recovery],
            n_steps=_STEPS,
            return_updates=False,
        )
        observed = pt.log(infected[_EVERY - 1 :: _EVERY])
        pm.Normal("y", observed, noise, observed=epidemic())
    return model


def log_ode() -> Reference:
    """Importance sampling, with the equation solved in NumPy."""
    y = epidemic()

    def log_density(points: Floats) -> Floats:
        log_noise = points[:, 3]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            expected = log_infected(*points[:, :3].T)
            total = log_normal(y[:, None], expected, np.exp(log_noise)).sum(axis=0)
        total = np.where(np.isfinite(total), total, -np.inf)
        for x, mean, sd in zip(points.T, (-1.0, -2.0, -5.0), (0.5, 0.5, 1.0), strict=False):
            total = total + log_normal(x, mean, sd)
        return total + np.log(2) + log_normal(np.exp(log_noise), 0.0, 0.5) + log_noise

    start = np.array([-1.0, -2.0, -5.0, -1.0])
    return evidence_at_mode(log_density, start, draws=100_000, dof=5.0, adapt=True)


# Hours at which a concentration is measured after a dose that is swallowed.
_HOURS = np.array([0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0])


def log_concentration(log_rates: Floats) -> Floats:
    """Return log concentrations of one compartment, shape ``(..., 12)``.

    The last axis of ``log_rates`` holds the logs of absorption, of elimination and of the volume.
    """
    absorption, elimination, volume = np.moveaxis(np.exp(log_rates), -1, 0)[..., None]
    # expm1 stays accurate where both rates are nearly equal
    gap = absorption - elimination
    gap = np.where(np.abs(gap) < 1e-9, 1e-9, gap)
    left = -elimination * _HOURS + np.log(-np.expm1(-np.abs(gap) * _HOURS) / np.abs(gap))
    left = left + np.where(gap < 0, np.abs(gap) * _HOURS, 0.0)
    return np.log(10.0) + np.log(absorption) - np.log(volume) + left


@cache
def concentrations() -> Floats:
    """Return the logs of 12 noisy concentrations."""
    truth = log_concentration(np.log([1.2, 0.12, 3.0]))
    return truth + 0.15 * np.random.default_rng(12).standard_normal(_HOURS.size)


def log_likelihood(log_rates: Floats, noise: Floats) -> Floats:
    """Return the log likelihood of the concentrations, whose logs are normal."""
    expected = log_concentration(log_rates)
    return log_normal(concentrations(), expected, np.asarray(noise)[..., None]).sum(axis=-1)


class LogLikelihood(Op):
    """The log likelihood as a black box: PyTensor sees neither its formula nor a gradient."""

    def make_node(self, log_rates, noise):
        """Take the three log rates and the noise, and give a number."""
        inputs = [pt.as_tensor(log_rates), pt.as_tensor(noise)]
        return Apply(self, inputs, [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        """Call the program."""
        outputs[0][0] = np.array(log_likelihood(*inputs), dtype=np.float64)


def build_black_box() -> pm.Model:
    """Absorption and elimination of a drug, whose likelihood is a program in NumPy."""
    with pm.Model() as model:
        log_rates = pm.Normal("log_rates", [0.0, -2.0, 1.0], [1.0, 1.0, 0.7], shape=3)
        noise = pm.HalfNormal("noise", 0.5)
        pm.Potential("likelihood", LogLikelihood()(log_rates, noise))
    return model


def log_black_box() -> Reference:
    """Importance sampling of the same program."""

    def log_density(points: Floats) -> Floats:
        log_rates, log_noise = points[:, :3], points[:, 3]
        noise = np.exp(log_noise)
        total = log_likelihood(log_rates, noise) + np.log(2) + log_normal(noise, 0.0, 0.5)
        log_prior = log_normal(log_rates, np.array([0.0, -2.0, 1.0]), np.array([1.0, 1.0, 0.7]))
        return total + log_prior.sum(axis=1) + log_noise

    start = np.array([0.0, -2.0, 1.0, -1.0])
    return evidence_at_mode(log_density, start, draws=100_000, dof=5.0, adapt=True)


_METHOD = "importance sampling from a Student-t density, likelihood in NumPy"

CASES = (
    Case("ode", build_ode, log_ode, "simulated, 15 values", _METHOD),
    Case("black_box", build_black_box, log_black_box, "simulated, 12 values", _METHOD, nuts=None),
)
