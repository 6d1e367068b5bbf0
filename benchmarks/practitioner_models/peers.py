"""Log evidences of the same models by other packages: PyMC's SMC, dynesty and nautilus."""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.graph.replace import graph_replace

from .case import Case

__all__ = ["PEERS", "LogLikelihood", "Peer", "cube"]

Floats = NDArray[np.float64]

_LIVE_POINTS = {"dynesty": 500, "nautilus": 1000}
_MOST_DIMS = 10


@dataclass(frozen=True)
class Peer:
    """What another package found; ``evaluations`` is NaN where it does not count them."""

    name: str
    value: float
    error: float
    evaluations: float
    cpu_seconds: float


class LogLikelihood:
    """Log likelihood that counts its calls."""

    def __init__(self, function: Callable[..., float]) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, values: Floats) -> float:
        """Return the log likelihood in nats; a failure of the model counts as zero likelihood."""
        self.calls += 1
        found = float(self.function(np.asarray(values, dtype=np.float64)))
        return found if np.isfinite(found) else -1e300


def cube(model: pm.Model) -> tuple[int, Callable[[Floats], Floats], LogLikelihood]:
    """Return the dimension, the transform of the unit cube to the prior, and the log likelihood.

    Variables follow one another; the quantile function of each is that given its parents.

    Raises
    ------
    NotImplementedError
        If the distribution of a variable has no quantile function.
    """
    free = remove_value_transforms(model)
    # in the order in which the model was written, parents first, which a copy does not keep
    variables = [free[rv.name] for rv in model.free_RVs]
    point = free.initial_point()
    sizes = [point[rv.name].size for rv in variables]
    u, x = pt.dvector("u"), pt.dvector("x")
    cuts = np.cumsum([0, *sizes])
    values, inputs = {}, {}
    for rv, begin, end in zip(variables, cuts[:-1], cuts[1:], strict=True):
        quantile = pm.icdf(rv, u[begin:end].reshape(rv.shape))
        values[rv] = _replaced(quantile, values)
        inputs[free.rvs_to_values[rv]] = x[begin:end].reshape(rv.shape)
    transform = pytensor.function([u], pt.concatenate([v.ravel() for v in values.values()]))
    log_likelihood = _replaced(free.datalogp, inputs)
    return sum(sizes), transform, LogLikelihood(pytensor.function([x], log_likelihood))


def _replaced(variable, values: dict):
    """Return a variable with others replaced, those aside that it does not depend on."""
    return graph_replace([variable], values, strict=False)[0] if values else variable


def _smc(case: Case) -> Peer:
    started = time.process_time()
    idata = pm.sample_smc(
        model=case.build(), chains=4, cores=1, random_seed=1, progressbar=False,
        compute_convergence_checks=False,
    )  # fmt: skip
    found = np.asarray(idata.sample_stats["log_marginal_likelihood"].values, dtype=object)
    last = np.array([np.ravel(np.asarray(chain[-1], dtype=float))[-1] for chain in found])
    value = float(np.logaddexp.reduce(last) - np.log(len(last)))
    error = float(np.exp(last - value).std(ddof=1) / len(last) ** 0.5)
    return Peer("sample_smc", value, error, float("nan"), time.process_time() - started)


def _dynesty(case: Case) -> Peer:
    dynesty = importlib.import_module("dynesty")
    started = time.process_time()
    n_dims, transform, log_likelihood = cube(case.build())
    sampler = dynesty.NestedSampler(
        log_likelihood,
        transform,
        n_dims,
        nlive=_LIVE_POINTS["dynesty"],
        rstate=np.random.default_rng(1),
    )
    sampler.run_nested(print_progress=False)
    found = sampler.results
    return Peer(
        "dynesty",
        float(found.logz[-1]),
        float(found.logzerr[-1]),
        log_likelihood.calls,
        time.process_time() - started,
    )


def _nautilus(case: Case) -> Peer:
    nautilus = importlib.import_module("nautilus")
    started = time.process_time()
    n_dims, transform, log_likelihood = cube(case.build())
    sampler = nautilus.Sampler(
        transform, log_likelihood, n_dim=n_dims, n_live=_LIVE_POINTS["nautilus"], seed=1
    )
    sampler.run(verbose=False)
    return Peer(
        "nautilus",
        float(sampler.log_z),
        float(sampler.n_eff**-0.5),
        log_likelihood.calls,
        time.process_time() - started,
    )


def _nested(package: str, run: Callable[[Case], Peer]) -> Callable[[Case], Peer | str]:
    def found(case: Case) -> Peer | str:
        if find_spec(package) is None:
            return f"left out: {package} is not installed"
        model = case.build()
        n_dims = sum(np.size(value) for value in model.initial_point().values())
        if n_dims > _MOST_DIMS:
            return f"left out: more than {_MOST_DIMS} dimensions"
        try:
            return run(case)
        except NotImplementedError:
            return "left out: a prior has no quantile function"

    return found


def _smc_of_small(case: Case) -> Peer | str:
    if case.is_large:
        return "left out: takes too long"
    return _smc(case)


PEERS: dict[str, Callable[[Case], Peer | str]] = {
    "sample_smc": _smc_of_small,
    "dynesty": _nested("dynesty", _dynesty),
    "nautilus": _nested("nautilus", _nautilus),
}
