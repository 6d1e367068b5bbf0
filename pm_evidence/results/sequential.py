"""The evidence after each data point, from a run that adds them one after the other."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import Role
from pm_evidence.estimators.errors import spread
from pm_evidence.results.compare import check_same_data, entry_of
from pm_evidence.results.datatree import to_record
from pm_evidence.results.stored import not_a_tree

Floats = NDArray[np.float64]

_WHOLE = 1e-6  # of a data point, by which rounding moves a place on the path


@dataclass(frozen=True)
class Sequence:
    """The log evidence after some numbers of data points, and what each population adds to it."""

    order: tuple[int, ...]  # indices of the data points in the order in which they were added
    n_data: NDArray[np.int64]  # shape (m,): numbers of data points, from 0
    log_evidence: Floats  # shape (m,), in nats
    # shape (n_blocks, m): contribution of each independent population to the error
    influence: Floats

    def error(self) -> Floats:
        """Return the standard error after each number of data points, shape ``(m,)``."""
        return np.array([spread((column, None)).mcse for column in self.influence.T])

    def at(self, n_data: NDArray[np.int64]) -> "Sequence":
        """Return the part that belongs to some of the numbers of data points."""
        kept = np.isin(self.n_data, n_data)
        return Sequence(
            self.order, self.n_data[kept], self.log_evidence[kept], self.influence[:, kept]
        )


@usual_floats()
def sequential_evidence(dt: xr.DataTree) -> pd.DataFrame:
    """Return the log evidence after each data point, and how well the next ones were predicted.

    Parameters
    ----------
    dt : DataTree
        A result of ``sample_evidence`` with ``method="resample_move"`` and
        ``path=pe.paths.DataPoints(order="given", batches=1)``, or with other batches. The data of a
        `StateSpace` are its times, each with the filters of all particles: a run takes time in
        proportion to the square of their number, unless batches grow with it.

    Returns
    -------
    pandas.DataFrame
        Index ``n_data``: number of data points so far, at the ends of batches. ``data_point``: the
        index of the last one in the model; ``log_evidence`` of all so far, and ``mcse``;
        ``log_predictive``, the log density of the data points since the row before given all
        earlier ones, and ``log_predictive_mcse``; all in nats.

    Raises
    ------
    TypeError
        If ``dt`` is not a DataTree.
    ValueError
        If the run did not add data points, or has no whole numbers of them on its path.

    Notes
    -----
    ``log p(y_1, ..., y_n)`` is the sum of the log predictive densities of each data point given
    those before it (Dawid 1984). Each island estimates every evidence on the way without bias
    (Chopin 2002; Chopin, Jacob and Papaspiliopoulos 2013), so the mean is taken on the scale of the
    evidence, and the errors are those of the spread of islands. The last row is the estimate
    ``"smc"`` of the run.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5, 0.2, 0.9])
    >>> path = pe.paths.DataPoints(order="given", batches=1)
    >>> dt = pe.sample_evidence(
    ...     model, method="resample_move", path=path, random_seed=1, progressbar=False
    ... )
    >>> pe.sequential_evidence(dt)["log_evidence"].round(1).tolist()
    [-1.3, -3.0, -4.1, -5.2]
    """
    found = sequence_of(dt, "dt")
    value, influence = found.log_evidence, found.influence
    steps = np.array([spread((column, None)).mcse for column in np.diff(influence, axis=1).T])
    columns = {
        "data_point": np.asarray(found.order)[found.n_data[1:] - 1],
        "log_evidence": value[1:],
        "mcse": found.error()[1:],
        "log_predictive": np.diff(value),
        "log_predictive_mcse": steps,
    }
    return pd.DataFrame(columns, index=pd.Index(found.n_data[1:], name="n_data"))


def sequence_of(dt: Any, parameter: str) -> Sequence:
    """Return the evidences on the way of a result."""
    if not isinstance(dt, xr.DataTree):
        raise TypeError(not_a_tree(parameter, dt))
    record = to_record(dt)
    order, blocks = record.facts.data_order, record.of(Role.FORWARD)
    remedy = 'path=pe.paths.DataPoints(order="given", batches=1) and method="resample_move"'
    if order is None:
        raise ValueError(
            f"{parameter} must be a run that adds data points one after the other, got one by "
            f"{record.method!r} that does not; sample with {remedy}."
        )
    log_z = np.array([block.trace.log_z for block in blocks])
    place = record.beta[1:] * len(order)
    whole = np.abs(place - np.rint(place)) < _WHOLE
    log_z = np.where(np.isnan(log_z), -np.inf, log_z)[:, whole]  # of islands that died
    if not whole.any() or not np.isfinite(log_z.max(axis=0)).all():
        raise ValueError(
            f"{parameter} must hold a finite evidence after whole numbers of data points, got "
            f"{int(whole.sum())} of {whole.size} stages that end at one; sample with {remedy}."
        )
    value = np.array([log_mean_exp(column) for column in log_z.T])
    influence = (np.exp(log_z - value) - 1.0) / len(blocks)
    n_data = np.rint(place[whole]).astype(np.int64)
    start = np.zeros((len(blocks), 1))
    return Sequence(
        order,
        np.append(0, n_data),
        np.append(0.0, value),
        np.concatenate([start, influence], axis=1),
    )


def sequences_of(dt1: Any, dt2: Any) -> tuple[Sequence, Sequence]:
    """Return the evidences of two results after the same data points."""
    named = {"dt1": dt1, "dt2": dt2}
    check_same_data({each: entry_of(each, dt).fingerprint for each, dt in named.items()})
    first, second = (sequence_of(dt, each) for each, dt in named.items())
    if first.order != second.order:
        raise ValueError(
            "dt1 and dt2 must add the data points in the same order, got different ones; sample "
            'both with path=pe.paths.DataPoints(order="given", batches=1).'
        )
    common = np.intersect1d(first.n_data, second.n_data)
    return first.at(common), second.at(common)
