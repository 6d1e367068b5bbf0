"""The few variables of a model, if there are such, given which its posterior is log-concave."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.targets.layout import FlatVariable
from pm_evidence.targets.model.concavity import is_log_concave
from pm_evidence.targets.model.signs import have_products_of_any_sign

__all__ = ["find_hyperparameters", "is_concave_in"]

Floats = NDArray[np.float64]

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
    layout = target.layout
    suffice = _Test(target)
    chosen = [variable for variable in layout.variables if variable.size <= _MOST]
    if not suffice(chosen):
        return None
    for variable in sorted(chosen, key=lambda variable: -variable.size):
        without = [each for each in chosen if each is not variable]
        if suffice(without):
            chosen = without
    n_given = sum(variable.size for variable in chosen)
    few = n_given <= min(_MOST, layout.size // 2)
    return tuple(chosen) if few and suffice(chosen, _POINTS) else None


def is_concave_in(target: Any, variables: Collection[FlatVariable]) -> bool:
    """Return whether a log density is known to be concave in some variables, given the others.

    It is so for the scales of effects and of noise, if the effects are centred and the scales have
    usual priors. The density of frequencies or of length scales may have many narrow peaks instead.

    Parameters
    ----------
    target : PyMCTarget
        The model, in coordinates in which all effects are centred.
    variables : collection of FlatVariable
        The variables, in any coordinates.
    """
    names = {variable.name for variable in variables}
    others = [variable for variable in target.layout.variables if variable.name not in names]
    graphs, layout = target.graphs(), target.layout
    every = zip(graphs.parts, layout.variables, strict=True)
    given = [part for part, variable in every if variable.name in names]
    if have_products_of_any_sign(graphs.parts, graphs.log_density, given):
        return False
    return _Test(target)(others, _POINTS)


class _Test:
    """Tests at prior draws whether a target is log-concave given some of its variables.

    Parameters
    ----------
    target : PyMCTarget
        The model.
    """

    def __init__(self, target: Any) -> None:
        self._graphs, self._variables = target.graphs(), target.layout.variables
        points = target.finite_prior_points(_POINTS, np.random.SeedSequence(_POINTS))
        self._values = [target.layout.split(x) for x in points]

    def __call__(self, given: Collection[FlatVariable], n: int = _FEW) -> bool:
        """Return whether it is so at the first ``n`` draws."""
        return all(self._holds(given, values) for values in self._values[:n])

    def _holds(self, given: Collection[FlatVariable], values: Sequence[Floats]) -> bool:
        every = zip(self._graphs.parts, self._variables, values, strict=True)
        known = {part: value for part, variable, value in every if variable in given}
        return is_log_concave(self._graphs.parts, self._graphs.log_density, known)
