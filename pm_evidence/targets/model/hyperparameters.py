"""The few variables of a model, if there are such, given which its posterior is log-concave."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.targets.layout import FlatVariable, Layout
from pm_evidence.targets.model.concavity import is_log_concave
from pm_evidence.targets.model.log_density import DensityGraphs

__all__ = ["find_hyperparameters"]

# Largest number of coordinates of all hyperparameters together.
_MOST = 10
# Number of prior draws at which log-concavity is tested, and of those for choices before the last.
_POINTS, _FEW = 10, 2


def find_hyperparameters(target: Any) -> tuple[FlatVariable, ...] | None:
    """Return variables given which prior and likelihood are known to be log-concave in the others.

    Parameters
    ----------
    target : PyMCTarget
        The model.

    Returns
    -------
    tuple of FlatVariable or None
        No more variables than needed, of at most ten coordinates in all, and no more than the
        others have; none if the densities are log-concave in all variables. The result is None if
        no such variables are known.

    Raises
    ------
    NumericalError, ModelError
        If the prior cannot be drawn from, or the density is NaN at a draw.

    Notes
    -----
    Typical hyperparameters are scales of effects and of noise, and length scales of Gaussian
    processes. The rules depend on their values by little more than the signs of what the model
    computes from them, so that the values of a few prior draws stand for all.
    """
    if target.is_log_concave:
        return ()
    if target.discrete.size or target.period.any():
        return None
    graphs, layout = target.graphs(), target.layout
    points = target.finite_prior_points(_POINTS, np.random.SeedSequence(_POINTS))
    values = [layout.split(x) for x in points]

    def suffice(variables: Collection[FlatVariable], n: int = _FEW) -> bool:
        return all(
            is_log_concave(graphs.parts, graphs.log_density, _given(graphs, layout, variables, x))
            for x in values[:n]
        )

    chosen = [variable for variable in layout.variables if variable.size <= _MOST]
    if not suffice(chosen):
        return None
    for variable in sorted(chosen, key=lambda variable: -variable.size):
        without = [each for each in chosen if each is not variable]
        if suffice(without):
            chosen = without
    n_given = sum(variable.size for variable in chosen)
    few = n_given <= min(_MOST, layout.size // 2)
    return tuple(chosen) if few and suffice(chosen, len(values)) else None


def _given(
    graphs: DensityGraphs,
    layout: Layout,
    variables: Collection[FlatVariable],
    values: Sequence[NDArray[np.float64]],
) -> dict[Any, NDArray[np.float64]]:
    """Return the values of some variables by their inputs."""
    every = zip(graphs.parts, layout.variables, values, strict=True)
    return {part: value for part, variable, value in every if variable in variables}
