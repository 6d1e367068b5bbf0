"""Coordinates of Cholesky factors with an LKJ prior: log standard deviations and correlations.

PyMC's own coordinates are the elements of the factor, with the logs of those on the diagonal. Where
data say little, they form a funnel, because all elements of a row shrink with its standard
deviation. Here, row ``i`` has the coordinates ``u_i``, the log of its standard deviation, and
``z_ij``, the inverse hyperbolic tangents of partial correlations, for ``j < i``:

    L_ij = exp(u_i) tanh(z_ij) prod_{k<j} sech(z_ik),      L_ii = exp(u_i) prod_{k<i} sech(z_ik).

Under the prior, all of them are independent where the standard deviations are (Lewandowski,
Kurowicka and Joe 2009, "Generating random correlation matrices based on vines and extended onion
method", section 3).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.multivariate import _LKJCholeskyCovRV
from pymc.distributions.transforms import CholeskyCovPacked
from pytensor.graph.basic import Variable

from pm_evidence.targets.layout import shape_of
from pm_evidence.targets.model.vectorised import RowFunction

__all__ = ["CovarianceFactor", "covariance_factors"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CovarianceFactor:
    """A Cholesky factor of a covariance with an LKJ prior, packed by rows.

    Parameters
    ----------
    rv : TensorVariable
        The variable, of the model.
    n : int
        Number of rows of the factor.
    """

    rv: Variable
    n: int

    @cached_property
    def _row(self) -> NDArray[np.int64]:
        return np.tril_indices(self.n)[0]

    @cached_property
    def _column(self) -> NDArray[np.int64]:
        return np.tril_indices(self.n)[1]

    @property
    def _on_diagonal(self) -> NDArray[np.bool_]:
        return self._row == self._column

    @cached_property
    def _same_row(self) -> NDArray[np.bool_]:
        return self._row[:, None] == self._row

    def value_of(self, z: Any) -> tuple[Any, Any]:
        """Return PyMC's unconstrained value as a graph of the coordinates, and its log Jacobian.

        Parameters
        ----------
        z : TensorVariable, shape (n * (n + 1) / 2,)
            Where PyMC has the elements of the diagonal, the log standard deviations.

        Returns
        -------
        value : TensorVariable, shape (n * (n + 1) / 2,)
        log_jacobian : scalar TensorVariable
            Log of the absolute determinant of its derivative, in nats.
        """
        terms = pt.switch(self._on_diagonal, z, _log_sech(z))
        before = self._column < self._column[:, None]
        log_factor = (self._same_row & (before | self._on_diagonal)).astype(float) @ terms
        value = pt.switch(self._on_diagonal, log_factor, pt.exp(log_factor) * pt.tanh(z))
        return value, log_factor[np.flatnonzero(~self._on_diagonal)].sum()

    def log_prior(self, z: Any) -> Any:
        """Return the log density of the coordinates as a graph, in nats, a scalar.

        That of PyMC takes differences of sums of squares, and is infinite where a standard
        deviation is 1e8 times smaller than the one before.
        """
        _, _, eta, sd_dist = self.rv.owner.inputs
        log_sd, partial = z[np.flatnonzero(self._on_diagonal)], ~self._on_diagonal
        # the partial correlations have beta distributions between -1 and 1 with both shapes equal
        shape = eta + 0.5 * (self.n - 2 - self._column[partial])
        log_beta = 2.0 * pt.gammaln(shape) - pt.gammaln(2.0 * shape)
        of_partial = 2.0 * shape * _log_sech(z[np.flatnonzero(partial)])
        of_partial -= (2.0 * shape - 1.0) * np.log(2.0) + log_beta
        of_sd = pm.logp(sd_dist, pt.exp(log_sd), warn_rvs=False).sum() + log_sd.sum()
        return of_sd + of_partial.sum()

    def coordinates_of(self, value: Any) -> Any:
        """Return the coordinates as a graph of PyMC's unconstrained value."""
        squares = pt.switch(self._on_diagonal, pt.exp(2.0 * value), value**2)
        after = self._column > self._column[:, None]
        rest = (self._same_row & (after | self._on_diagonal[:, None])).astype(float) @ squares
        return pt.switch(
            self._on_diagonal, 0.5 * pt.log(rest), pt.arcsinh(value * pt.exp(-0.5 * pt.log(rest)))
        )

    @cached_property
    def _to_model(self) -> RowFunction:
        z = pt.vector("z")
        return RowFunction([z], list(self.value_of(z)), [])

    @cached_property
    def _from_model(self) -> RowFunction:
        value = pt.vector("value")
        return RowFunction([value], [self.coordinates_of(value)], [])

    def to_model(self, z: Floats) -> tuple[Floats, Floats]:
        """Return rows of values, shape ``(n, size)``, and log Jacobians, shape ``(n,)``."""
        value, log_jacobian = self._to_model([z], [])
        return value, log_jacobian

    def from_model(self, value: Floats) -> Floats:
        """Return rows of coordinates of rows of values, shape ``(n, size)``."""
        return self._from_model([value], [])[0]


def _log_sech(z: Any) -> Any:
    size = pt.abs(z)
    return np.log(2.0) - size - pt.log1p(pt.exp(-2.0 * size))


def covariance_factors(model: pm.Model) -> tuple[CovarianceFactor, ...]:
    """Return the free variables ``pm.LKJCholeskyCov`` of a model that have their usual transform.

    A factor of one row has no correlation, and is left out.
    """
    found = []
    for rv in model.free_RVs:
        usual = isinstance(model.rvs_to_transforms[rv], CholeskyCovPacked)
        if usual and isinstance(rv.owner.op, _LKJCholeskyCovRV) and rv.type.ndim == 1:
            (size,) = shape_of(rv)
            n = int(np.sqrt(2 * size))
            found += [CovarianceFactor(rv, n)] if n > 1 else []
    return tuple(found)
