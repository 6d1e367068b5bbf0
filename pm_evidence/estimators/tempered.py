"""States at several temperatures: the arguments that all estimators of tempering share."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import float_array, whole_array
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.errors import (
    Clusters,
    Spread,
    Verdict,
    clusters,
    estimated,
    of_size,
    without_error,
)
from pm_evidence.schedules import rising

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

_LARGEST = 1e100


@dataclass(frozen=True, slots=True)
class LogZCurve:
    """Log normalising constants at all temperatures, relative to the first."""

    log_z: Floats  # shape (n_temperatures,): log normalising constants in nats; the first is 0
    # shape (n_temperatures, n_temperatures): covariance of the estimates in square nats; NaN if it
    # cannot be estimated
    covariance: Floats
    # Degrees of freedom that the covariance was estimated with; infinite if it is asymptotic
    dof: float = float("inf")
    # shape (n_temperatures,): estimated bias of ``log_z`` in nats, which is not subtracted; None
    # where there is no estimate
    bias: Floats | None = None

    @property
    def mcse(self) -> Floats:
        """Standard errors of ``log_z`` in nats, shape ``(n_temperatures,)``."""
        errors: Floats = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return errors

    def difference(self, j: int, i: int = 0) -> tuple[float, float]:
        """Return ``log_z[j] - log_z[i]`` and its standard error in nats."""
        c = self.covariance
        variance = max(float(c[i, i] + c[j, j] - 2.0 * c[i, j]), 0.0)
        if np.isnan(c[i, j]):
            variance = float("nan")
        return float(self.log_z[j] - self.log_z[i]), float(np.sqrt(variance))


@dataclass(frozen=True, slots=True)
class Tempered:
    """States that were drawn at several temperatures."""

    beta: Floats  # shape (n_temperatures,): inverse temperatures, rising from 0 to 1
    # shape (n,): minus the derivative of the log density by ``beta`` at every state, in nats
    energy: Floats
    rung: Whole  # shape (n,): index of the temperature at which every state was drawn
    clusters: Clusters  # which states depend on each other

    @property
    def counts(self) -> Whole:
        """Number of states at every temperature, shape ``(n_temperatures,)``."""
        return np.bincount(self.rung, minlength=len(self.beta))

    @property
    def alive(self) -> bool:
        """Whether the likelihood of any state is above zero."""
        return bool(np.isfinite(self.energy).any())

    def at(self, k: int) -> NDArray[np.intp]:
        """Return the positions of the states that were drawn at temperature ``k``."""
        return np.flatnonzero(self.rung == k)


def tempered(
    beta: ArrayLike, energy: ArrayLike, rung: ArrayLike, groups: ArrayLike | None
) -> Tempered:
    """Return the arguments of an estimator as arrays; raise ValueError where one is unusable."""
    beta = rising("beta", beta)
    energy = checked_energy(energy)
    index = checked_rung(rung, len(beta))
    if index.shape != energy.shape:
        raise ValueError(
            f"energy must have the shape of rung, got {energy.shape} and {index.shape}; pass the "
            "index of the temperature of every state."
        )
    bad = np.flatnonzero((energy.ravel() == np.inf) & (index.ravel() > 0))
    if bad.size:
        raise ValueError(
            f"energy must be finite at beta above 0, got inf at {bad.size} states, first at "
            f"position {bad[0]}, where rung is {index.ravel()[bad[0]]}; such states have density "
            "zero there, so look for an error in rung."
        )
    return Tempered(beta, energy.ravel(), index.ravel(), clusters(energy.shape, groups))


def checked_energy(energy: ArrayLike, name: str = "energy") -> Floats:
    """Return energies, flat or of chains; raise ValueError if one is NaN or below -1e100.

    Energies above 1e100, the squares of which may overflow, are returned as infinite: such a
    likelihood is zero at every inverse temperature above 1e-97.
    """
    values = float_array(name, energy)
    if values.ndim not in (1, 2) or values.size == 0:
        raise ValueError(
            f"{name} must have shape (n,) or (n_iterations, n_chains) and hold at least one value, "
            f"got shape {values.shape}; pass one energy for every state."
        )
    values = np.where(values > _LARGEST, np.inf, values)
    check_potentials(name, values)
    return values


def check_potentials(name: str, values: Floats) -> None:
    """Raise ValueError unless values are numbers or inf, and squares of numbers are finite."""
    bad = np.flatnonzero(np.isnan(values) | (values == -np.inf))
    if bad.size:
        raise ValueError(
            f"{name} must be a number or inf, got {values.flat[bad[0]]} at {bad.size} of "
            f"{values.size} states, first at position {bad[0]}; find out why the density failed "
            "there."
        )
    large = np.isfinite(values) & (np.abs(values) > _LARGEST)
    if large.any():
        raise ValueError(
            f"{name} must be infinite or between -{_LARGEST:g} and {_LARGEST:g}, got "
            f"{values[large][0]:g}; find out why the density is so extreme there."
        )


def checked_rung(rung: ArrayLike, n_temperatures: int) -> Whole:
    """Return indices of temperatures; raise ValueError if one is none."""
    index = whole_array("rung", rung)
    if index.size == 0:
        raise ValueError("rung must hold at least one index, got none; pass one for every state.")
    if index.min() < 0 or index.max() >= n_temperatures:
        wrong = index.min() if index.min() < 0 else index.max()
        raise ValueError(
            f"rung must lie between 0 and {n_temperatures - 1}, got {wrong}; pass the index of the "
            "temperature in beta at which each state was drawn."
        )
    return index


def concluded(
    name: str, value: float, found: Spread, problems: Iterable[Verdict] = ()
) -> LogEvidence:
    """Return an estimate with its interval; other problems come before those of the error."""
    return estimated(name, value, found, chain(problems, _of_error(found.mcse)))


def _of_error(mcse: float) -> Iterator[Verdict]:
    if not np.isfinite(mcse):
        yield (
            Status.NO_ERROR,
            "the record is too short for an error: it has a single chain of fewer than twenty "
            "autocorrelation times. Use more chains or longer ones.",
        )
    yield from of_size(mcse, "longer chains or more temperatures")


def no_support(name: str) -> LogEvidence:
    """Return the estimate from states that all have a likelihood of zero."""
    message = (
        "every state has likelihood zero. Use longer chains or more temperatures near beta=0, or "
        "check the support of the likelihood."
    )
    return without_error(name, -np.inf, Status.NO_SUPPORT, message)


def without_curve(parameter: str) -> ValueError:
    """Return the error for states that all have a likelihood of zero."""
    return ValueError(
        f"{parameter} must be finite at one state or more, got inf at all; use longer chains, or "
        "check the support of the likelihood."
    )
