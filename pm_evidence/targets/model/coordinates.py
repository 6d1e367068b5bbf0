"""Coordinates of a model in which group effects are centred, non-centred, or something between.

A variable with unconstrained value ``x = location + scale * noise`` is sampled as

    z = c * location + unit * (scale / unit)**c * noise,
    x = location + (scale / unit)**(1 - c) * (z - c * location).

With a centring ``c`` of 1, ``z`` is ``x`` itself; with 0 it is the noise times ``unit``, which is
independent of location and scale. A random walk is sampled by its steps, each of which is such a
variable of location 0; its start is left as it is unless it has the same scale. Where the model
itself multiplies a noise by the scale, its value is the noise, and ``z`` is the same as above.

A normal vector is ``x = location + N (scale * noise)``: ``scale`` is the diagonal of the Cholesky
factor of its covariance, and ``N`` is this factor with each column divided by its element there.
With ``N_c = (1 - c) I + c N``, it is sampled as

    z = c * location + N_c (unit * (scale / unit)**c * noise).

This is the transformation of Gorinova, Moore and Hoffman (2020), "Automatic reparameterisation of
probabilistic programs", section 4, whose ``lambda`` is ``c``, with scales counted in units of a
typical scale: otherwise ``c`` would depend on the units of the data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pm_evidence.targets.layout import Layout
from pm_evidence.targets.model.covariance_factors import CovarianceFactor
from pm_evidence.targets.model.location_scale import LocationScale
from pm_evidence.targets.model.logarithms import log_of
from pm_evidence.targets.model.quiet import quietly
from pm_evidence.targets.model.vectorised import RowFunction

__all__ = ["Centring", "Coordinates", "Effects", "PartlyCentred", "partly_centred"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Centring:
    """How far each variable is centred, and the unit of its scale.

    Parameters
    ----------
    amount : tuple of float
        Of each variable: 0 if it is non-centred, 1 if it is centred, or between.
    log_unit : tuple of float
        Log of the typical scale of each variable.
    """

    amount: tuple[float, ...]
    log_unit: tuple[float, ...]

    @classmethod
    def common(cls, amount: float, n: int) -> "Centring":
        """Return the same amount for ``n`` variables, in units of 1."""
        return cls((amount,) * n, (0.0,) * n)

    def arrays(self) -> tuple[Floats, Floats]:
        """Return amounts and log units as new arrays, each of shape ``(n_variables,)``."""
        return np.array(self.amount, float), np.array(self.log_unit, float)


@dataclass(frozen=True, eq=False)
class PartlyCentred:
    """Graphs of a model's density in partly centred coordinates.

    Parameters
    ----------
    values : dict of TensorVariable to TensorVariable
        For every value variable of the model, its graph of the new coordinates.
    log_prior : TensorVariable
        Terms of the log prior that take the place of those of ``replaced``, in nats: of the noise,
        and log Jacobians. A scalar.
    replaced : tuple of TensorVariable
        Random variables whose own log densities do not belong to the log prior.
    log_scale, location : tuple of TensorVariable
        Of each partly centred variable.
    mixing : tuple of TensorVariable
        Of those that have one.
    """

    values: dict[Variable, Variable]
    log_prior: Variable
    replaced: tuple[Variable, ...]
    log_scale: tuple[Variable, ...]
    location: tuple[Variable, ...]
    mixing: tuple[Variable, ...] = ()


def partly_centred(
    model: pm.Model,
    variables: Sequence[LocationScale],
    values: Mapping[Variable, Variable],
    amount: Variable,
    log_unit: Variable,
    factors: Sequence[CovarianceFactor] = (),
) -> PartlyCentred:
    """Return the graphs of a density in partly centred coordinates.

    Parameters
    ----------
    model : pymc.Model
        The model.
    variables : sequence of LocationScale
        Variables to be transformed, parents first.
    values : mapping of TensorVariable to TensorVariable
        For every value variable of the model, the input that holds its value, or that of ``z``.
    amount, log_unit : TensorVariable, shape (n_variables,)
        See ``Centring``.
    factors : sequence of CovarianceFactor
        Variables that are sampled as standard deviations and correlations.

    Notes
    -----
    The density of an elementwise variable is written as that of its noise, because the difference
    ``x - location`` loses all digits where the scale is tiny beside the location.
    """
    values = dict(values)
    terms, replaced, log_scales, locations = [pt.constant(0.0)], [], [], []
    mixings, priors = list[Variable](), list[Variable]()
    for factor in factors:
        value_var = model.rvs_to_values[factor.rv]
        priors.append(factor.log_prior(values[value_var]))
        values[value_var] = factor.value_of(values[value_var])[0].astype(value_var.dtype)
        replaced.append(factor.rv)
    for i, found in enumerate(variables):
        graphs = model.replace_rvs_by_values(found.graphs)
        location, scale, *others = clone_replace(graphs, values, rebuild_strict=False)
        parameters = others[: len(found.parameters)]
        mixing = others[-1] if found.mixing is not None else None
        value_var = model.rvs_to_values[found.rv]
        z, c = values[value_var], amount[i]
        log_scale = log_of(scale)
        ratio = log_scale - log_unit[i]
        shift = _unmixed(mixing, c, z - c * location)
        value = location + _mixed(mixing, pt.exp((1.0 - c) * ratio) * shift)
        if found.is_walk:
            value, location = _walk(found, z, pt.exp((1.0 - c) * ratio))
        if found.is_elementwise:
            noise = shift * pt.exp(-(log_unit[i] + c * ratio))
            value = noise if found.by_hand else value
            of_noise = found.log_density_of_noise(noise, parameters)
            terms += [of_noise.sum(), -_summed(log_unit[i] + c * ratio, found)]
            replaced.append(found.rv)
        else:
            terms.append(_summed((1.0 - c) * ratio, found))
        values[value_var] = value.astype(value_var.dtype)
        log_scales.append(log_scale)
        locations.append(location)
        mixings += [] if mixing is None else [mixing]
    # their parameters may depend on variables that were transformed after them
    priors = clone_replace(model.replace_rvs_by_values(priors), values, rebuild_strict=False)
    log_prior = sum([*terms[1:], *priors], terms[0])
    found_graphs = (tuple(each) for each in (replaced, log_scales, locations, mixings))
    return PartlyCentred(values, log_prior, *found_graphs)


def _mixed(mixing: Any, x: Any) -> Variable:
    """Return vectors along the last axis, multiplied by a matrix if there is one."""
    return x if mixing is None else x @ mixing.T


def _unmixed(mixing: Any, amount: Variable, x: Any) -> Variable:
    """Return the solution of ``((1 - amount) I + amount N) y = x`` along the last axis."""
    if mixing is None:
        return x
    k = x.shape[-1]
    partly = pt.eye(k) + amount * (mixing - pt.eye(k))
    columns = x.reshape((-1, k)).T
    solution = pt.linalg.solve_triangular(partly, columns, lower=True, unit_diagonal=True)
    return solution.T.reshape(x.shape)


def _walk(found: LocationScale, z: Variable, spread: Variable) -> tuple[Variable, Variable]:
    """Return a random walk whose steps are ``z`` times ``spread``, and the origin of ``z``."""
    steps = spread * z
    if not found.anchored:
        return pt.cumsum(steps), pt.zeros(found.shape)
    start = z[:1]
    origin = pt.concatenate([start, pt.zeros(found.size - 1)])
    return pt.cumsum(pt.concatenate([start, steps[1:]])), origin


def _summed(graph: Variable, found: LocationScale) -> Variable:
    """Return the sum over the elements of a variable of a graph that broadcasts to its shape."""
    if graph.type.ndim == 0:
        return found.n_scaled * graph
    return pt.broadcast_to(graph, found.shape).sum()


@dataclass(frozen=True, eq=False)
class Effects:
    """Draws of a partly centred variable, with what they depend on.

    Parameters
    ----------
    noise : ndarray, shape (n, size)
        ``(x - location) / scale`` of every element; of a series, its increments.
    location, log_scale : ndarray, shape (n, size)
        Location and log scale of every element.
    mixing : ndarray, shape (n, k, k), optional
        Matrix that the scaled noise is multiplied by.
    has_exponential_tail : bool
        Whether the prior density of the noise falls exponentially on one side.
    """

    noise: Floats
    location: Floats
    log_scale: Floats
    mixing: Floats | None = None
    has_exponential_tail: bool = False

    def at(self, amount: float, ratio: Floats) -> Floats:
        """Return ``z`` for an amount of centring, from the log scale in a unit."""
        return amount * self.location + mixed(
            self.mixing, amount, np.exp(amount * ratio) * self.noise
        )


def mixed(mixing: Floats | None, amount: float, x: Floats) -> Floats:
    """Return rows of vectors multiplied by ``(1 - amount) I + amount N``, if there is an ``N``."""
    if mixing is None:
        return x
    k = mixing.shape[-1]
    y = x.reshape(len(x), -1, k)
    y = y + amount * (y @ (mixing - np.eye(k)).swapaxes(1, 2))
    return y.reshape(x.shape)


def unmixed(mixing: Floats | None, amount: float, x: Floats) -> Floats:
    """Return the rows of vectors that `mixed` maps to ``x``."""
    if mixing is None:
        return x
    k = mixing.shape[-1]
    partly = np.eye(k) + amount * (mixing - np.eye(k))
    y = np.linalg.solve(partly, x.reshape(len(x), -1, k).swapaxes(1, 2))
    return y.swapaxes(1, 2).reshape(x.shape)


class Coordinates:
    """The maps between flat vectors in partly centred coordinates and in those of the model.

    Parameters
    ----------
    model : pymc.Model
        The model.
    variables : sequence of LocationScale
        Variables to be transformed, parents first.
    layout : Layout
        Position of the unconstrained value of every free variable in a flat vector.
    factors : sequence of CovarianceFactor
        Variables that are sampled as standard deviations and correlations.
    """

    def __init__(
        self,
        model: pm.Model,
        variables: Sequence[LocationScale],
        layout: Layout,
        factors: Sequence[CovarianceFactor] = (),
    ) -> None:
        self.variables, self._layout = tuple(variables), layout
        order = {rv.name: i for i, rv in enumerate(model.free_RVs)}
        self._at = [order[found.rv.name] for found in variables]
        self._factors = [
            (factor, layout.variables[order[factor.rv.name]].positions) for factor in factors
        ]
        # pt.tensor refuses names that NumPy cannot parse as a dtype, such as Bambi's "1|group"
        inputs = [pt.TensorType("float64", shape=v.shape)(name=v.name) for v in layout.variables]
        amount, log_unit = pt.vectors("amount", "log_unit")
        values = {
            value: part.astype(value.dtype)
            for value, part in zip(model.value_vars, inputs, strict=True)
        }
        with quietly():
            graphs = partly_centred(model, self.variables, values, amount, log_unit, factors)
        of_variables = [graphs.values[model.rvs_to_values[found.rv]] for found in variables]
        outputs = [*of_variables, *graphs.location, *graphs.log_scale, *graphs.mixing]
        self._function = RowFunction(inputs, outputs, [amount, log_unit])

    def _evaluated(self, z: Floats, centring: Centring) -> tuple[list[Any], ...]:
        """Return ``x``, location, log scale and mixing of every variable."""
        found = self._function(self._layout.split(z), list(centring.arrays()))
        n = len(self.variables)
        shaped = [
            np.broadcast_to(_aligned(value, len(v.shape)), (len(z), *v.shape))
            for value, v in zip(found[: 3 * n], [*self.variables] * 3, strict=True)
        ]
        left = iter(found[3 * n :])
        mixing = [None if v.mixing is None else next(left) for v in self.variables]
        return shaped[:n], shaped[n : 2 * n], shaped[2 * n :], mixing

    def to_model(self, z: Floats, centring: Centring) -> Floats:
        """Return points in the coordinates of the model, shape ``(n, n_dim)``."""
        x = z.copy()
        for at, value in zip(self._at, self._evaluated(z, centring)[0], strict=True):
            x[:, self._layout.variables[at].positions] = value.reshape(len(z), -1)
        for factor, positions in self._factors:
            x[:, positions] = factor.to_model(z[:, positions])[0]
        return x

    def log_jacobian(self, z: Floats, centring: Centring) -> Floats:
        """Return ``log |dx / dz|`` at every row, shape ``(n,)``, in nats."""
        total = np.zeros(len(z))
        log_scales = self._evaluated(z, centring)[2]
        settings = zip(self.variables, log_scales, centring.amount, centring.log_unit, strict=True)
        for found, log_scale, c, log_unit in settings:
            ratio = (log_scale - log_unit).reshape(len(z), -1)[:, int(found.anchored) :]
            each = -(log_unit + c * ratio) if found.by_hand else (1.0 - c) * ratio
            total += each.sum(axis=1)
        for factor, positions in self._factors:
            total += factor.to_model(z[:, positions])[1]
        return total

    def from_model(self, x: Floats, centring: Centring) -> Floats:
        """Return points in the coordinates of the model in those of a centring."""
        centred = x.copy()
        for at, variable in zip(self._at, self.variables, strict=True):
            if variable.is_walk:
                positions = self._layout.variables[at].positions
                centred[:, positions] = np.diff(x[:, positions], axis=1, prepend=0.0)
        for factor, positions in self._factors:
            centred[:, positions] = factor.from_model(x[:, positions])
        amount = tuple(0.0 if variable.by_hand else 1.0 for variable in self.variables)
        return self.converted(centred, Centring(amount, (0.0,) * len(amount)), centring)

    def converted(self, z: Floats, old: Centring, new: Centring) -> Floats:
        """Return points of one centring in the coordinates of another, shape ``(n, n_dim)``."""
        _, locations, log_scales, mixings = self._evaluated(z, old)
        out = z.copy()
        for i, at in enumerate(self._at):
            positions = self._layout.variables[at].positions
            location, log_scale = (a[i].reshape(len(z), -1) for a in (locations, log_scales))
            anchored = self.variables[i].anchored
            was, log_spread = _origin_and_log_spread(location, log_scale, old, i, anchored=anchored)
            scaled = unmixed(mixings[i], old.amount[i], z[:, positions] - was)
            noise = scaled * np.exp(-log_spread)
            origin, log_spread = _origin_and_log_spread(
                location, log_scale, new, i, anchored=anchored
            )
            scaled = np.exp(log_spread) * noise
            out[:, positions] = origin + mixed(mixings[i], new.amount[i], scaled)
        return out

    def effects(self, z: Floats, centring: Centring) -> list[Effects]:
        """Return the noise, the location and the scale of every variable at points ``z``."""
        _, locations, log_scales, mixings = self._evaluated(z, centring)
        found = []
        for i, at in enumerate(self._at):
            own = z[:, self._layout.variables[at].positions]
            location, log_scale = (a[i].reshape(len(z), -1) for a in (locations, log_scales))
            variable = self.variables[i]
            origin, log_spread = _origin_and_log_spread(
                location, log_scale, centring, i, anchored=variable.anchored
            )
            scaled = unmixed(mixings[i], centring.amount[i], own - origin)
            noise = scaled * np.exp(-log_spread)
            effects = _effects_of(variable, noise, location, log_scale)
            found.append(replace(effects, mixing=mixings[i]))
        return found


def _aligned(value: Floats, ndim: int) -> Floats:
    """Return an array of shape ``(n, ...)`` with ``ndim`` dimensions after the first."""
    missing = ndim - (value.ndim - 1)
    return value.reshape(len(value), *(1,) * missing, *value.shape[1:])


def _origin_and_log_spread(
    location: Floats, log_scale: Floats, centring: Centring, i: int, *, anchored: bool
) -> tuple[Floats, Floats]:
    """Return what ``z`` is the sum of: an origin, and the noise times a spread."""
    c, log_unit = centring.amount[i], centring.log_unit[i]
    return location if anchored else c * location, log_unit + c * (log_scale - log_unit)


def _effects_of(
    variable: LocationScale, noise: Floats, location: Floats, log_scale: Floats
) -> Effects:
    """Return the effects of a variable; of a series, its increments."""
    if variable.anchored:
        return Effects(noise[:, 1:], location[:, 1:], log_scale[:, 1:])
    if variable.is_autoregressive:
        return Effects(np.diff(noise, axis=1, prepend=0.0), location, log_scale)
    has_exponential_tail = variable.log_scale is not None
    return Effects(noise, location, log_scale, has_exponential_tail=has_exponential_tail)
