"""Checks of prior draws, which refuse models that are not well defined."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.exceptions import ModelError, NumericalError
from pm_evidence.targets.layout import Layout
from pm_evidence.targets.model.checks import no_density
from pm_evidence.targets.points import Particles

__all__ = ["refuse_low_acceptance", "refuse_ties", "refuse_undefined", "undefined_density"]

Floats = NDArray[np.float64]

# If a smaller share of prior draws is accepted, the truncated prior cannot be drawn by rejection.
_MIN_ACCEPTANCE = 1e-3
# If a continuous variable has this many equal prior draws, and this share of all, it has an atom.
_FEWEST_TIES, _LEAST_TIED_SHARE = 3, 1e-3


def refuse_low_acceptance(n_kept: int, n_tried: int) -> None:
    """Refuse a prior nearly all of whose draws fall outside of the transforms.

    Raises
    ------
    ModelError
        If there were enough draws to tell.
    """
    if n_tried > 5 / _MIN_ACCEPTANCE and n_kept < _MIN_ACCEPTANCE * n_tried:
        raise ModelError(
            "prior draws must be finite and fall inside the transforms, but only "
            f"{n_kept} of {n_tried} are. Use pm.Truncated, or a prior whose support fits its "
            "transform."
        )


def refuse_ties(layout: Layout, x: Floats) -> None:
    """Refuse continuous variables that take a value repeatedly, because they have an atom.

    Among 10,000 draws with 53 random bits, two are equal with a probability of 1e-8, and three
    practically never. An atom with a probability below 1 in 1,000 changes log Z by as little.

    Parameters
    ----------
    layout : Layout
        The variables.
    x : ndarray, shape (n, n_dim)
        Prior draws.

    Raises
    ------
    ModelError
        The message names the variable.
    """
    most = max(_FEWEST_TIES, int(_LEAST_TIED_SHARE * len(x)))
    for variable in layout.variables:
        if variable.dtype != "float64":
            continue
        values = np.sort(x[:, variable.positions], axis=0)
        if (values[most - 1 :] == values[: len(x) - most + 1]).any():
            raise ModelError(no_density(variable.name, variable.name))


def refuse_undefined(target: Any, particles: Particles) -> None:
    """Refuse a model whose log density is NaN or infinite at a prior draw.

    Parameters
    ----------
    target : PyMCTarget
        The model.
    particles : Particles
        Prior draws.

    Raises
    ------
    ModelError
        If an index lies outside of its array there.
    NumericalError
        In all other cases.
    """
    found = undefined_density(particles.log_density)
    if found is None:
        return
    row, problem = found
    x = particles.x[row]
    index = target.graphs().wrong_index(target.layout.split(x))
    if index is not None:
        raise ModelError(f"{index} The index is that of a draw from the prior.")
    raise NumericalError(
        f"{problem}, first at {target.describe(x)}. Look for NaN in the data, or for an overflow "
        "in the model at such values, or for an index beyond its array in a loop; "
        "model.point_logps() at this point names the variable."
    )


def undefined_density(log_density: Floats) -> tuple[int, str] | None:
    """Return the first prior draw whose log density is NaN or plus infinity.

    Parameters
    ----------
    log_density : ndarray, shape (n, 2)
        Log prior and log likelihood of prior draws, in nats.

    Returns
    -------
    row : int
        Index of the draw.
    problem : str
        Message with the wrong density, its value, and the number of such draws.
    """
    bad = np.argwhere(np.isnan(log_density) | (log_density == np.inf))
    if len(bad) == 0:
        return None
    row, column = bad[0]
    n_bad = len(np.unique(bad[:, 0]))
    both = np.isnan(log_density[row]).all()
    part = "density" if both else ("prior", "likelihood")[column]
    problem = (
        f"the log {part} must be a number below infinity, got {log_density[row, column]} at "
        f"{n_bad} of {len(log_density)} prior draws"
    )
    return int(row), problem
