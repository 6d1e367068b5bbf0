"""Posteriors on which a run can be wrong without a sign: funnels, ridges, spikes, unequal modes."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pm_evidence.testing.systems import (
    LOG_2PI,
    ExactSystem,
    gauss_legendre,
    log_integral,
    log_normal,
    log_normal_group,
)

Floats = NDArray[np.float64]

# Six groups of five values with real scatter between the groups.
_GROUPS, _MEMBERS = 6, 5
_MU_SD, _SCALE = np.float64(10.0), np.float64(2.0)

_MEANS_N, _MEANS_SD = 1000, np.float64(1.0)

# A parabola that is fifty times narrower than it is long.
_RIDGE_Y, _RIDGE_SD = np.array([1.0, 1.02]), np.float64(0.05)

_SEPARATED_SCALE, _SEPARATED_X = 2.5, np.array([0.5, 1.0, 2.0])
_HORSESHOE_Y, _HORSESHOE_SD = np.array([0.05, -0.1, 3.0]), np.float64(0.2)


@dataclass(frozen=True)
class Spike:
    """A narrow normal spike in a broad normal slab on the cube [-0.5, 0.5]^d (Skilling, 2006)."""

    dims: int  # number of dimensions
    weight: float  # evidence of the spike over that of the slab
    spike_sd: float  # standard deviation of the spike in every coordinate; that of the slab is 0.1
    slab_sd: float = 0.1
    centre: float = 0.031

    def build(self) -> pm.Model:
        """Return the model: a uniform prior and a potential."""
        with pm.Model() as model:
            x = pm.Uniform("x", -0.5, 0.5, shape=self.dims)
            slab = pm.logp(pm.Normal.dist(0, self.slab_sd), x).sum()
            spike = pm.logp(pm.Normal.dist(self.centre, self.spike_sd), x).sum()
            pm.Potential("likelihood", pm.math.logaddexp(slab, np.log(self.weight) + spike))
        return model

    def log_evidence(self) -> float:
        """Return the exact log evidence: the cube cuts off what lies outside."""
        from scipy.special import ndtr

        parts = [
            np.log(weight) + self.dims * np.log(ndtr((0.5 - m) / sd) - ndtr((-0.5 - m) / sd))
            for weight, m, sd in (
                (1.0, 0.0, self.slab_sd),
                (self.weight, self.centre, self.spike_sd),
            )
        ]
        return float(np.logaddexp(*parts))


@dataclass(frozen=True)
class Modes:
    """Normal modes of unequal width and weight on a wide normal prior, as a potential."""

    dims: int  # number of dimensions
    centres: tuple[float, ...]  # centre of each mode, in every coordinate
    sds: tuple[float, ...]  # standard deviation of each mode
    weights: tuple[float, ...]  # integral of each mode
    prior_sd: float = 5.0  # standard deviation of the prior

    def build(self) -> pm.Model:
        """Return the model."""
        with pm.Model() as model:
            x = pm.Normal("x", 0, self.prior_sd, shape=self.dims)
            parts = [
                np.log(weight) + pm.logp(pm.Normal.dist(centre, sd), x).sum()
                for centre, sd, weight in zip(self.centres, self.sds, self.weights, strict=True)
            ]
            total = parts[0]
            for part in parts[1:]:
                total = pm.math.logaddexp(total, part)
            pm.Potential("likelihood", total)
        return model

    def log_evidence(self) -> float:
        """Return the exact log evidence: the overlap of each mode with the prior."""
        overlap = log_normal(np.array(self.centres), 0.0, np.hypot(self.sds, self.prior_sd))
        return float(np.logaddexp.reduce(np.log(self.weights) + self.dims * overlap))


_SPIKES = {"spike_20": Spike(20, 100.0, 0.01), "spike_5": Spike(5, 3.0, 0.002)}
_MODES = {
    "two_widths_4": Modes(4, (-3.0, 3.0), (0.3, 0.9), (0.5, 0.5)),
    "two_widths_6": Modes(6, (-3.0, 3.0), (0.3, 0.9), (0.25, 0.75)),
    "two_widths_10": Modes(10, (-3.0, 3.0), (0.4, 0.8), (0.5, 0.5)),
    "three_widths_5": Modes(5, (-4.0, 0.5, 4.0), (0.3, 1.0, 0.5), (0.2, 0.5, 0.3)),
    "three_widths_8": Modes(8, (-4.0, 0.0, 4.0), (0.6, 0.9, 0.45), (0.3, 0.4, 0.3)),
    "near_widths_8": Modes(8, (0.0, 1.5), (1.0, 0.4), (0.5, 0.5)),
    "far_widths_10": Modes(10, (-3.0, 3.0), (0.3, 0.9), (0.5, 0.5), prior_sd=10.0),
}


def funnel_data() -> tuple[NDArray[np.int64], Floats]:
    """Return group and value of the data of the funnels, 30 each."""
    rng = np.random.default_rng(8)
    group = np.repeat(np.arange(_GROUPS), _MEMBERS)
    effect = rng.standard_normal(_GROUPS)
    return group, 1.5 + 0.8 * effect[group] + 1.1 * rng.standard_normal(group.size)


def build_one_way(centred: bool) -> pm.Model:
    """Group effects with a free scale: centred they make a funnel."""
    group, y = funnel_data()
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, _MU_SD)
        tau = pm.HalfCauchy("tau", _SCALE)
        sigma = pm.HalfCauchy("sigma", _SCALE)
        if centred:
            a = pm.Normal("a", 0, tau, shape=_GROUPS)
        else:
            a = tau * pm.Normal("z", 0, 1, shape=_GROUPS)
        pm.Normal("y", mu + a[group], sigma, observed=y)
    return model


def _log_one_way() -> float:
    _, y = funnel_data()
    table = y.reshape(_GROUPS, _MEMBERS)
    means, within = table.mean(axis=1), float(((table - table.mean(axis=1)[:, None]) ** 2).sum())

    def log_density(log_tau: Floats, log_sigma: Floats) -> Floats:
        log_tau, log_sigma = np.broadcast_arrays(log_tau, log_sigma)
        tau, variance = np.exp(log_tau), np.exp(2 * log_sigma)
        total = np.zeros(tau.shape)
        for scale in (tau, np.exp(log_sigma)):
            total = total + np.log(2 * scale / (np.pi * _SCALE)) - np.log1p((scale / _SCALE) ** 2)
        # what is known of a group's mean, and the scatter about it
        n_free = _GROUPS * (_MEMBERS - 1)
        total = total - 0.5 * (n_free * (LOG_2PI + np.log(variance)) + within / variance)
        total = total - 0.5 * _GROUPS * np.log(_MEMBERS)
        of_mean = (tau**2 + variance / _MEMBERS)[..., None] * np.ones(_GROUPS)
        return total + log_normal_group(means, of_mean, _MU_SD)

    return log_integral(log_density, (-25.0, 9.0), (-4.0, 4.0))


def means_data() -> Floats:
    """Return the data of the many means."""
    rng = np.random.default_rng(4)
    return 1.0 + rng.standard_normal(_MEANS_N) * np.hypot(0.7, _MEANS_SD)


def build_many_means() -> pm.Model:
    """A thousand means with one value each, non-centred."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfNormal("tau", 2)
        z = pm.Normal("z", 0, 1, shape=_MEANS_N)
        pm.Normal("y", mu + tau * z, _MEANS_SD, observed=means_data())
    return model


def _log_many_means() -> float:
    y = means_data()

    def log_density(log_tau: Floats) -> Floats:
        tau = np.exp(log_tau)
        variance = (_MEANS_SD**2 + tau**2)[..., None] * np.ones(_MEANS_N)
        prior = np.log(2) + log_normal(tau, 0.0, 2.0) + log_tau
        return log_normal_group(y, variance, np.float64(5.0)) + prior

    return log_integral(log_density, (-8.0, 2.5))


def build_banana() -> pm.Model:
    """A posterior along a narrow parabola, of which mixtures of Student's t miss the tails."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, 2)
        b = pm.Normal("b", 0, 5)
        pm.Normal("y", b - a**2, _RIDGE_SD, observed=_RIDGE_Y)
        pm.Normal("z", a, 3, observed=0.5)
    return model


def _log_banana() -> float:
    def log_density(a: Floats) -> Floats:
        along = log_normal(a, 0.0, 2.0) + log_normal(a, 0.5, 3.0)
        across = log_normal_group(_RIDGE_Y + a[..., None] ** 2, _RIDGE_SD**2, 5.0)
        return along + across

    return log_integral(log_density, (-15.0, 15.0))


def build_separated() -> pm.Model:
    """Coefficients of separated data: their posterior has the heavy tail of their prior."""
    with pm.Model() as model:
        b = pm.Cauchy("b", 0, _SEPARATED_SCALE, shape=3)
        pm.Bernoulli("y", logit_p=b[:, None] * _SEPARATED_X, observed=np.ones((3, 3), dtype=int))
    return model


def _log_separated() -> float:
    def log_density(angle: Floats) -> Floats:
        b = _SEPARATED_SCALE * np.tan(angle)
        return -np.logaddexp(0.0, -b[..., None] * _SEPARATED_X).sum(axis=-1) - np.log(np.pi)

    return 3 * log_integral(log_density, (-np.pi / 2, np.pi / 2), tolerance=1e-10)


def build_horseshoe() -> pm.Model:
    """A centred horseshoe prior: coefficients have a narrow neck for every local scale."""
    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 1)
        local = pm.HalfCauchy("local", 1, shape=3)
        beta = pm.Normal("beta", 0, tau * local, shape=3)
        pm.Normal("y", beta, _HORSESHOE_SD, observed=_HORSESHOE_Y)
    return model


def _log_horseshoe() -> float:
    nodes, log_weight = gauss_legendre(-30.0, 30.0, 40)  # of log tau, and of each log local scale
    log_prior = np.log(2 / np.pi) + nodes - np.logaddexp(0.0, 2 * nodes) + log_weight
    sd = np.hypot(_HORSESHOE_SD, np.exp(nodes[:, None] + nodes))
    total = log_prior.copy()
    for y in _HORSESHOE_Y:
        total += np.logaddexp.reduce(log_prior + log_normal(y, 0.0, sd), axis=1)
    return float(np.logaddexp.reduce(total))


def build_infinite() -> pm.Model:
    """Six equal values of a normal with free scale: the evidence is infinite."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        s = pm.HalfNormal("s", 1)
        pm.Normal("y", x, s, observed=np.full(6, 0.3))
    return model


def _ridges_and_tails() -> tuple[ExactSystem, ...]:
    return (
        ExactSystem("banana", build_banana, _log_banana()),
        ExactSystem("separated", build_separated, _log_separated()),
        ExactSystem("horseshoe", build_horseshoe, _log_horseshoe()),
    )


def systems() -> tuple[ExactSystem, ...]:
    """Return the deceptive systems."""
    one_way = _log_one_way()
    spikes = (
        ExactSystem(name, spike.build, spike.log_evidence()) for name, spike in _SPIKES.items()
    )
    modes = (ExactSystem(name, case.build, case.log_evidence()) for name, case in _MODES.items())
    return (
        ExactSystem("one_way_centred", partial(build_one_way, True), one_way),
        ExactSystem("one_way_noncentred", partial(build_one_way, False), one_way),
        *_ridges_and_tails(),
        *spikes,
        *modes,
        ExactSystem("many_means", build_many_means, _log_many_means()),
    )
