"""Discrete free variables, alone or beside continuous ones: the evidence is a sum."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from scipy import stats
from scipy.special import gammaln, logsumexp

from pm_evidence.testing.systems import ExactSystem, log_mvnormal, log_normal, log_poisson_gamma
from tests.systems.closed_forms import exact

Floats = NDArray[np.float64]

_RAIN = 0.2
_SPRINKLER = np.array([0.4, 0.01])
_WET = np.array([[0.0, 0.8], [0.9, 0.99]])


_SPINS, _COUPLING, _FIELD = 10, np.float64(0.8), np.float64(0.15)

_START = np.array([0.5, 0.3, 0.2])
_STEP = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.3, 0.1, 0.6]])
_STATE_MEANS = np.array([-2.0, 0.0, 2.5])
_STATE_Y = np.array([-1.7, -0.4, 0.6, 2.9, 1.8, -0.1])


_POISSON_MEAN, _CAPTURE_P, _CAPTURES = 6.0, 0.4, np.array([4, 2, 3])


def build_sprinkler() -> pm.Model:
    """Wet grass, explained by rain, by the sprinkler or by both; impossible without either."""
    with pm.Model() as model:
        # initval: with neither rain nor sprinkler, where PyMC would start, the density is zero.
        rain = pm.Bernoulli("rain", p=_RAIN, initval=1)
        sprinkler = pm.Bernoulli("sprinkler", p=pm.math.switch(rain, _SPRINKLER[1], _SPRINKLER[0]))
        dry_ground = pm.math.switch(sprinkler, _WET[0, 1], _WET[0, 0])
        wet_ground = pm.math.switch(sprinkler, _WET[1, 1], _WET[1, 0])
        pm.Bernoulli("wet", p=pm.math.switch(rain, wet_ground, dry_ground), observed=1)
    return model


def build_ising_chain() -> pm.Model:
    """An open chain of ten Ising spins in a field, relative to independent fair spins."""
    with pm.Model() as model:
        up = pm.Bernoulli("up", p=0.5, shape=_SPINS)
        spin = 2 * up - 1
        energy = _COUPLING * (spin[1:] * spin[:-1]).sum() + _FIELD * spin.sum()
        pm.Potential("energy", energy)
    return model


def build_hidden_markov() -> pm.Model:
    """Six explicit states of a hidden Markov chain."""
    with pm.Model() as model:
        state = pm.Categorical("state_0", p=_START)
        states = [state]
        for t in range(1, _STATE_Y.size):
            state = pm.Categorical(f"state_{t}", p=pt.as_tensor(_STEP)[state])
            states.append(state)
        means = pt.as_tensor(_STATE_MEANS)[pt.stack(states)]
        pm.Normal("y", means, 1, observed=_STATE_Y)
    return model


def build_poisson_captures() -> pm.Model:
    """Unknown population size with repeated captures: no upper end, zero below the largest."""
    with pm.Model() as model:
        size = pm.Poisson("size", _POISSON_MEAN)
        pm.Binomial("y", n=size, p=_CAPTURE_P, observed=_CAPTURES)
    return model


def _log_sprinkler() -> float:
    total = 0.0
    for rain, sprinkler in product((0, 1), repeat=2):
        p_rain = _RAIN if rain else 1 - _RAIN
        p_sprinkler = _SPRINKLER[rain] if sprinkler else 1 - _SPRINKLER[rain]
        total += p_rain * p_sprinkler * _WET[rain, sprinkler]
    return float(np.log(total))


def _log_ising_chain() -> float:
    # Transfer matrix, half of each spin's field on either side of the bond.
    spin = np.array([-1.0, 1.0])
    field = np.exp(0.5 * _FIELD * spin)
    transfer = field[:, None] * np.exp(_COUPLING * np.outer(spin, spin)) * field
    partition = field @ np.linalg.matrix_power(transfer, _SPINS - 1) @ field
    return float(np.log(partition) - _SPINS * np.log(2))


def _log_hidden_markov() -> float:
    emission = np.exp(log_normal(_STATE_Y[:, None], _STATE_MEANS, 1.0))
    forward = _START * emission[0]
    for row in emission[1:]:
        forward = (forward @ _STEP) * row
    return float(np.log(forward.sum()))


def _log_poisson_captures() -> float:
    size = np.arange(_CAPTURES.max(), 120)  # Poisson(6) beyond 120 weighs less than 1e-100
    log_likelihood = stats.binom.logpmf(_CAPTURES[:, None], size, _CAPTURE_P).sum(axis=0)
    return float(logsumexp(stats.poisson.logpmf(size, _POISSON_MEAN) + log_likelihood))


_SLAB_X = np.array(
    [
        [1.0, 0.9, -0.3],
        [0.2, 0.1, 1.1],
        [-0.8, -0.9, 0.4],
        [1.3, 1.2, 0.0],
        [-0.5, -0.6, -1.2],
        [0.4, 0.6, 0.8],
        [-1.1, -0.9, 0.3],
        [0.7, 0.5, -0.9],
    ]
)
_SLAB_Y = np.array([1.6, 0.5, -1.1, 2.4, -1.0, 0.3, -2.2, 1.4])
_SLAB_P, _SLAB_SD, _SLAB_NOISE = 0.3, np.float64(2.0), np.float64(0.8)

_CHANGE_COUNTS = np.array([4, 6, 3, 5, 4, 7, 1, 0, 2, 1, 1, 0])
_CHANGE_SHAPE, _CHANGE_RATE = 2.0, np.float64(0.5)

_DIRICHLET_Y = np.array([-1.7, 0.2, 2.6])
_DIRICHLET_MEANS = np.array([-2.0, 0.0, 2.0])
_DIRICHLET_PRIOR = np.array([1.0, 2.0, 1.5])


def build_spike_and_slab() -> pm.Model:
    """Regression in which each coefficient is in or out; two columns are nearly the same."""
    with pm.Model() as model:
        included = pm.Bernoulli("included", p=_SLAB_P, shape=_SLAB_X.shape[1])
        slope = pm.Normal("slope", 0, _SLAB_SD, shape=_SLAB_X.shape[1])
        pm.Normal("y", _SLAB_X @ (included * slope), _SLAB_NOISE, observed=_SLAB_Y)
    return model


def build_change_point() -> pm.Model:
    """Counts whose rate changes once, at an unknown time."""
    n = _CHANGE_COUNTS.size
    with pm.Model() as model:
        switch = pm.DiscreteUniform("switch", lower=1, upper=n - 1)
        early = pm.Gamma("early", alpha=_CHANGE_SHAPE, beta=_CHANGE_RATE)
        late = pm.Gamma("late", alpha=_CHANGE_SHAPE, beta=_CHANGE_RATE)
        rate = pm.math.switch(np.arange(n) < switch, early, late)
        pm.Poisson("y", rate, observed=_CHANGE_COUNTS)
    return model


def build_dirichlet_mixture() -> pm.Model:
    """A mixture with unknown weights and explicit assignments to components that are known."""
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", a=_DIRICHLET_PRIOR)
        label = pm.Categorical("label", p=weights, shape=_DIRICHLET_Y.size)
        pm.Normal("y", pt.as_tensor(_DIRICHLET_MEANS)[label], 1, observed=_DIRICHLET_Y)
    return model


def _log_spike_and_slab() -> float:
    terms = []
    for included in product((0, 1), repeat=_SLAB_X.shape[1]):
        columns = _SLAB_X * np.array(included)
        cov = _SLAB_SD**2 * columns @ columns.T + _SLAB_NOISE**2 * np.eye(_SLAB_Y.size)
        n_in = sum(included)
        log_prior = n_in * np.log(_SLAB_P) + (len(included) - n_in) * np.log1p(-_SLAB_P)
        terms.append(log_prior + log_mvnormal(_SLAB_Y, 0.0, cov))
    return float(logsumexp(terms))


def _log_change_point() -> float:
    prior = (_CHANGE_SHAPE, float(_CHANGE_RATE))
    switches = range(1, _CHANGE_COUNTS.size)
    terms = [
        log_poisson_gamma(_CHANGE_COUNTS[:at], *prior)
        + log_poisson_gamma(_CHANGE_COUNTS[at:], *prior)
        for at in switches
    ]
    return float(logsumexp(terms) - np.log(len(switches)))


def _log_dirichlet_mixture() -> float:
    labels = np.array(list(product(range(3), repeat=_DIRICHLET_Y.size)))
    counts = (labels[:, :, None] == np.arange(3)).sum(axis=1)
    prior = _DIRICHLET_PRIOR
    log_labels = (gammaln(prior + counts) - gammaln(prior)).sum(axis=1)
    log_labels = log_labels + gammaln(prior.sum()) - gammaln(prior.sum() + _DIRICHLET_Y.size)
    log_likelihood = log_normal(_DIRICHLET_Y, _DIRICHLET_MEANS[labels], 1.0).sum(axis=1)
    return float(logsumexp(log_labels + log_likelihood))


def systems() -> tuple[ExactSystem, ...]:
    """Return the systems with discrete variables."""
    return (
        exact(build_sprinkler, _log_sprinkler(), smooth=False),
        exact(build_ising_chain, _log_ising_chain(), smooth=False),
        exact(build_hidden_markov, _log_hidden_markov(), smooth=False),
        exact(build_poisson_captures, _log_poisson_captures(), smooth=False),
        exact(build_spike_and_slab, _log_spike_and_slab(), smooth=False),
        exact(build_change_point, _log_change_point(), smooth=False),
        exact(build_dirichlet_mixture, _log_dirichlet_mixture(), smooth=False),
    )
