"""RAISE: conservative estimates of the likelihood of machines, by reverse annealing from examples.

A machine, a schedule and a kernel define an *annealing model*: draw a state of the reference, move
it once at every inverse temperature up to 1, and keep its visible units. The probability
``p_ann(v)`` of a visible state under this model is normalised, and approaches that of the machine
as stages are added. Reverse paths that start at ``v`` estimate it without bias.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Path, Plan
from pm_evidence.core.interrupts import Report, silent
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.random import Phase, generator
from pm_evidence.core.records import BlockRecord, LogEvidence, Status
from pm_evidence.core.text import concise, facts
from pm_evidence.estimators.errors import Spread, combined, interval, spread
from pm_evidence.families.rbm.gibbs import Bits
from pm_evidence.families.rbm.target import RBM
from pm_evidence.samplers.ais import AIS

Floats = NDArray[np.float64]

_LOW = (
    "RAISE is a stochastic lower bound of the log-likelihood: it is too low on average. More "
    "stages bring it closer, and so do more paths from each example."
)


@dataclass(frozen=True, slots=True)
class RaiseLikelihood:
    """A conservative estimate of the log-likelihood of some examples, in nats.

    Parameters
    ----------
    average : LogEvidence
        Mean over the examples. Its error is that of the random paths, for these examples. Its
        status is ``"bound"``: it is too low on average.
    of_examples : ndarray, shape (n_examples,)
        Estimate for each example.
    examples_mcse : float
        Standard error of the mean from the scatter of the estimates over the examples: its error
        as an estimate of the mean over the population that the examples were drawn from. The
        error of the paths is a part of it. NaN for a single example.

    Examples
    --------
    >>> import numpy as np, pm_evidence as pe
    >>> machine = pe.rbm.RBM(np.zeros((12, 8)), np.zeros(12), np.zeros(8), base="uniform")
    >>> test = np.eye(12)
    >>> found = pe.rbm.raise_log_likelihood(machine, test, random_seed=1, progressbar=False)
    >>> bool(np.isclose(found.average.value, -12 * np.log(2)))  # independent fair units
    True
    >>> found.of_examples.shape
    (12,)
    """

    average: LogEvidence
    of_examples: Floats
    examples_mcse: float

    def __repr__(self) -> str:
        return (
            f"RaiseLikelihood(average={self.average!r}, n_examples={len(self.of_examples)}, "
            f"examples_mcse={self.examples_mcse:.3f})"
        )

    def __str__(self) -> str:
        return str(self.average)

    def _repr_html_(self) -> str:
        average = self.average
        rows = [
            ("log-likelihood", f"{concise(average.value, average.mcse)} nats for each example"),
            ("examples", f"{len(self.of_examples)}"),
            ("with the scatter of examples", concise(average.value, self.examples_mcse)),
            ("status", average.status),
            ("message", average.message),
        ]
        return facts("RaiseLikelihood", rows)


@dataclass(frozen=True)
class RaiseBlock:
    """A task for a worker: reverse paths from some examples, one from each row."""

    machine: RBM  # the machine
    path: Path  # its path
    plan: Plan  # inverse temperatures and kernels
    block: int  # index of the block; together with the seed it determines all random numbers
    visible: Bits  # shape (n, n_visible): examples
    seed: int  # seed of the run

    def __call__(self, report: Report = silent) -> BlockRecord:
        """Draw the hidden units given the examples, and run the paths."""
        rng = generator(self.seed, Phase.START, self.block)
        start = self.machine.states_given(self.visible, rng)
        return AIS().run_reverse(self.path, self.plan, self.block, start, None, self.seed, report)


def raise_likelihood(machine: RBM, visible: Bits, work: Floats) -> RaiseLikelihood:
    """Return the estimate from the work of reverse paths.

    Burda, Grosse and Salakhutdinov (2015), for annealing from independent units to the machine.
    With forward moves ``T_k`` that leave ``f_k`` invariant, and reversals ``R_k(y, x) = T_k(x, y)
    f_k(x) / f_k(y)``, a reverse path from ``x_K = (v, h)`` with ``h`` drawn from ``p(h | v)`` has
    the weight ``f_0(x_0) prod_k T_k(x_(k-1), x_k) / (p(h | v) prod_k R_k(x_k, x_(k-1)))``, which is
    ``f(v) exp(w)``: ``f(v) = sum_h f(v, h)``, and ``w`` is the work of the path. Its expectation
    is ``p_ann(v)``. The same holds if one layer is summed out of what is annealed.

    The log of the mean over the paths of an example is too low on average, by Jensen's inequality,
    and for examples drawn from the machine ``log p_ann`` is on average below the machine's own log
    likelihood, by Gibbs' inequality. Examples of another origin may be more probable under
    ``p_ann`` than under the machine; the bound then holds with respect to ``p_ann`` only.

    Given the examples, the error of the average has one independent part for each of them. With
    several paths its variance is that of the jackknife (Efron and Stein 1981: not too small on
    average). With one path, the variance of the work over all examples is taken, which also holds
    the differences between their expected works, so that the error is an upper bound.
    """
    n, n_paths = work.shape
    log_weight = np.array([log_mean_exp(row) for row in work])
    of_examples = log_weight - machine.free_energy(visible)
    if n_paths > 1:
        found = _spread_of_paths(work)
    else:
        found = spread(((log_weight - log_weight.mean()) / n, None))
    value = float(of_examples.mean())
    lower, upper = interval(value, found)
    average = LogEvidence(
        value, found.mcse, "raise", Status.BOUND, lower, upper, _LOW, max(found.dof, 1.0)
    )
    scatter = float(of_examples.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return RaiseLikelihood(average, of_examples, scatter)


def _spread_of_paths(work: Floats) -> Spread:
    """Return the error of the mean of log mean weights, by the jackknife over the paths of each."""
    n, n_paths = work.shape
    others = [[log_mean_exp(np.delete(row, k)) for k in range(n_paths)] for row in work]
    centred = np.array(others) - np.mean(others, axis=1, keepdims=True)
    variance = (n_paths - 1.0) / n_paths * (centred**2).sum(axis=1) / n**2
    return combined(*(Spread(v**0.5, n_paths - 1.0) for v in variance))
