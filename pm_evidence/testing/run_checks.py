"""Checks that anybody can run on a new target or sampler: their contracts, and whole runs."""

import warnings
from pathlib import Path as File
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import t as student

from pm_evidence.api.arguments import chosen_sampler
from pm_evidence.api.sample import sample_evidence
from pm_evidence.core.checks import described
from pm_evidence.core.contracts import AnnealingSetup
from pm_evidence.core.exceptions import EvidenceWarning
from pm_evidence.core.records import LogEvidence
from pm_evidence.families.native import checked_native
from pm_evidence.results import log_evidence as stored_evidence
from pm_evidence.results.schema import WORK
from pm_evidence.runs.defaults import annealing_setup
from pm_evidence.samplers.sampler import Sampler
from pm_evidence.testing.kernel_checks import check_kernel
from pm_evidence.testing.path_checks import check_path, require

__all__ = ["check_sampler", "check_target"]

_DRAWS, _STARTS = 30, 7
_FALSE_ALARM = 1e-6
_OUT_OF_REACH = 1e-9  # an error in nats that two rounds do not reach


def check_target(
    target: Any, *, log_evidence: float | None = None, n: int = 4000, seed: int = 0
) -> None:
    """Check a target with a path and a kernel of its own, and runs on it.

    Parameters
    ----------
    target : NativeTarget
        The target.
    log_evidence : float, optional
        Its exact log evidence in nats, which runs then have to find.
    n : int
        Population on which the kernel is checked, see :func:`check_kernel`.
    seed : int
        Seed of all draws and runs.

    Raises
    ------
    AssertionError
        If the target lacks a method; its path fails :func:`check_path` or its kernel
        :func:`check_kernel`; ``posterior``, ``sample_stats``, ``check`` or ``starts`` return
        other shapes or other draws than they are given; or a run with sequential Monte Carlo
        or annealed importance sampling fails :func:`check_sampler`.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> from pm_evidence.testing import check_target
    >>> target = pe.Gaussian()
    >>> check_target(target, log_evidence=target.log_evidence)
    """
    try:
        checked_native(target)
        setup = annealing_setup(target, "auto")
    except (TypeError, ValueError) as error:
        raise AssertionError(str(error)) from error
    check_path(setup.path, seed=seed)
    check_kernel(setup.kernel, setup.path, n=n, seed=seed)
    _check_draws(target, setup, seed)
    for method in ("smc", "ais"):
        _check_run(target, method, log_evidence, seed)


def check_sampler(
    sampler: Sampler, target: Any, *, log_evidence: float | None = None, seed: int = 0
) -> None:
    """Check a sampler, by runs on a target or a model.

    Parameters
    ----------
    sampler : Sampler
        The sampler.
    target : pymc.Model or NativeTarget
        What it runs on; best one whose evidence is known.
    log_evidence : float, optional
        The exact log evidence in nats, which runs then have to find.
    seed : int
        Seed of the runs.

    Raises
    ------
    AssertionError
        If the sampler lacks a method; a run does not repeat with its seed on another number of
        threads; a round adds no draws; the estimate is not within its error, at a false-alarm rate
        of 1e-6; or a result read from a file has another log evidence.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> from pm_evidence.testing import check_sampler
    >>> target = pe.Gaussian()
    >>> check_sampler(pe.AIS(direction="forward"), target, log_evidence=target.log_evidence)
    """
    try:
        chosen_sampler(sampler, "smc")
    except TypeError as error:
        raise AssertionError(str(error)) from error
    _check_run(target, sampler, log_evidence, seed)


def _check_draws(target: Any, setup: AnnealingSetup, seed: int) -> None:
    """Check what a target makes of draws."""
    draws = setup.path.draw(_DRAWS, np.random.SeedSequence(seed)).to_draws()
    found = int(np.prod(draws.shape[1:]))
    require(
        found == target.n_dim,
        f"n_dim must be the number of coordinates of a state, got n_dim={target.n_dim} and "
        f"{found} numbers in a draw; correct one of them.",
    )
    posterior = target.posterior(draws)
    for group, values in (("posterior", posterior), ("sample_stats", target.sample_stats(draws))):
        for name, value in values.items():
            require(
                np.shape(value)[:1] == (_DRAWS,),
                f"{group} must return a value for each of {_DRAWS} draws, got shape "
                f"{np.shape(value)} of {name!r}; let the first axis be that of draws.",
            )
    if "x" in posterior:
        require(
            np.array_equal(target.check(posterior["x"]), draws),
            "check(posterior(draws)['x']) must return the draws, got others: reverse paths would "
            "start from other states than an earlier run found.",
        )
    if setup.starts is not None:
        starts = setup.starts(_STARTS, np.random.default_rng(seed))
        require(
            len(setup.path.at(starts)) == _STARTS,
            f"starts(n, rng) must return n={_STARTS} states, got {described(starts)}.",
        )


def _check_run(target: Any, method: Any, exact: float | None, seed: int) -> None:
    name = method if isinstance(method, str) else method.name
    dt = _run(target, method, seed, cores=1)
    found = stored_evidence(dt)
    again = _run(target, method, seed, cores=2)
    require(
        dt[WORK].to_dataset().equals(again[WORK].to_dataset()) and found == stored_evidence(again),
        f"a run of {name!r} must repeat with its seed, got log evidences {found.value!r} on one "
        f"thread and {stored_evidence(again).value!r} on two; take all random numbers from "
        "block_seeds(seed, phase, block), and keep nothing from block to block.",
    )
    try:
        _run(target, method, seed, cores=2, target_mcse=_OUT_OF_REACH, max_draws=_twice(method))
    except TypeError as error:
        raise AssertionError(str(error)) from error
    require(
        exact is None or _within(found, exact),
        f"{name!r} must find the exact log evidence, got {found} and not {exact}; look at the "
        "weights, at the reference's draws and at the kernel.",
    )
    with TemporaryDirectory() as folder:
        file = File(folder) / "result.nc"
        dt.to_netcdf(file, engine="h5netcdf")
        with xr.open_datatree(file, engine="h5netcdf") as stored:
            require(
                str(stored_evidence(stored)) == str(found),
                f"a result of {name!r} must have the same log evidence when it is read from a "
                f"file, got {stored_evidence(stored)} and not {found}.",
            )


def _run(target: Any, method: Any, seed: int, **options: Any) -> Any:
    options = {"target_mcse": None, "random_seed": seed, "progressbar": False, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        return sample_evidence(target, method=method, **options)


def _twice(method: Any) -> int:
    """Return twice the draws of a sampler's first round."""
    chosen = chosen_sampler(method, "smc")
    sampler = chosen.annealer
    return 2 * sampler.first_round(sampler.size(chosen.default_draws))


def _within(found: LogEvidence, exact: float) -> bool:
    limit = float(student.isf(0.5 * _FALSE_ALARM, found.dof)) if found.dof < 1e6 else 4.9
    return bool(abs(found.value - exact) <= limit * found.mcse + 1e-9)
