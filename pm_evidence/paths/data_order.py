"""In which order, and in which batches, the data of a PyMC model are added."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count, described, plain_array
from pm_evidence.targets.model.data_points import (
    DataPointsTarget,
    data_points_target,
    terms_of,
)
from pm_evidence.targets.model.target import PyMCTarget

__all__ = ["DataPoints"]

_ORDERS = ("given", "random", "informative")
_PRIOR_DRAWS = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class DataPoints:
    """How the data of a PyMC model are added: ``path="data_points"`` with options.

    Data points are the entries of the observed variables along their first axis, through all
    variables one after the other. Potentials together count as one data point, the first one.

    Parameters
    ----------
    order : str or array_like of int
        ``"random"``, which is the default; ``"given"``, the order of the model; ``"informative"``,
        points first whose log likelihood varies most between draws from the prior; or the index of
        each data point, from 0, in the order in which they are added.
    seed : int
        Seed of the random order.
    batches : int or sequence of int, optional
        Size of all batches in which data are added, or of each. By default every step adds as many
        data points as leave an effective sample size that the method sets, or a part of one.

    Raises
    ------
    ValueError, TypeError
        If an argument is of the wrong type or out of range.

    Notes
    -----
    Log Z does not depend on the order, but its error does. Where data are sorted by class or time,
    the first ones are a poor sample of all, and the posterior changes more on the way.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5, 0.2, 0.9])
    >>> dt = pe.sample_evidence(
    ...     model, path=pe.DataPoints(batches=[1, 1, 2]), random_seed=1, progressbar=False
    ... )
    >>> dt["annealing"]["beta"].values
    array([0.  , 0.25, 0.5 , 1.  ])
    """

    order: Any = "random"
    seed: int = 0
    batches: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.order, str):
            check_choice("order", self.order, _ORDERS)
        check_count("seed", self.seed, 0)
        if self.batches is not None:
            for size in np.atleast_1d(plain_array("batches", self.batches)).tolist():
                check_count("batches", size, 1)

    def of(self, target: PyMCTarget) -> DataPointsTarget:
        """Return the target of a model whose data are added like this.

        Raises
        ------
        ModelError
            If the log likelihood of an observed variable is not a sum over data points.
        ValueError
            If the order or the batches do not hold each data point once.
        """
        n = sum(term.n_points for term in terms_of(target.model))
        sizes = self._sizes(n)
        order = self._indices(target, n)
        return data_points_target(target, order, sizes)

    def _indices(self, target: PyMCTarget, n: int) -> NDArray[np.int64]:
        if not isinstance(self.order, str):
            order = np.asarray(self.order)
            if order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(n)):
                raise ValueError(
                    f"order must hold each of the numbers 0 to {n - 1} of the data points once, "
                    f"got {described(self.order)} of shape {order.shape}; count the data points "
                    "through all observed variables."
                )
            return order.astype(np.int64)
        first = int(bool(target.model.potentials))  # potentials are one point, and come first
        order = np.arange(n)
        if self.order == "random":
            order[first:] = first + np.random.default_rng(self.seed).permutation(n - first)
        elif self.order == "informative":
            given = data_points_target(target, order)
            x = given.having(0.0, 0.0).draw(_PRIOR_DRAWS, np.random.SeedSequence(self.seed)).x
            parts = (given.having(i, i + 1).evaluate(x).log_density[:, 1] for i in range(n))
            spread = np.array([part.var() for part in parts])
            spread[~np.isfinite(spread)] = np.inf
            order[first:] = first + np.argsort(-spread[first:], kind="stable")
        return order

    def _sizes(self, n: int) -> tuple[int, ...] | None:
        if self.batches is None:
            return None
        if np.ndim(self.batches) == 0:
            full, rest = divmod(n, int(self.batches))
            return (int(self.batches),) * full + (rest,) * (rest > 0)
        sizes = tuple(int(size) for size in self.batches)
        if sum(sizes) != n:
            raise ValueError(
                f"batches must hold all {n} data points, got sizes that add up to {sum(sizes)}; "
                "change the last one, or pass one number for batches of equal size."
            )
        return sizes
