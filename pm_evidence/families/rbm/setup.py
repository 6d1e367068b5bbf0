"""How restricted Boltzmann machines are annealed unless the user says otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, described
from pm_evidence.core.contracts import AnnealingSetup, Kernel, Path, Plan
from pm_evidence.core.numerics import log_mean_exp, normalised
from pm_evidence.core.random import Phase
from pm_evidence.families.native import checked_path
from pm_evidence.families.rbm.gibbs import BlockGibbs
from pm_evidence.families.rbm.metropolis import UnitMetropolis
from pm_evidence.families.rbm.moment_average import MomentAveragedPath, SegmentGibbs
from pm_evidence.families.rbm.partial_gibbs import PartialGibbs
from pm_evidence.families.rbm.path import BaseRatePath
from pm_evidence.families.rbm.unit_path import UnitByUnitPath
from pm_evidence.kernels.growing import Grows
from pm_evidence.samplers.ais import AIS

__all__ = ["KERNELS", "Trial", "rbm_along", "rbm_setup", "smoothed", "trial_of"]

Floats = NDArray[np.float64]

# The kernel of what is annealed.
KERNELS: Mapping[str, tuple[str, type[BlockGibbs] | type[UnitMetropolis]]] = {
    "full": ("block_gibbs", BlockGibbs),
    "marginal": ("metropolis", UnitMetropolis),
    "visible": ("metropolis", UnitMetropolis),
}
_PATHS_BY_NAME: Mapping[str, Any] = {
    "moment_average": MomentAveragedPath,
    "units": UnitByUnitPath,
}
_PATHS = 256
# Paths in each direction at which a run for the default error ends: on a machine of 784 x 500 units
# trained on MNIST they take five minutes of processor time, and the error is below 0.04 nats.
_MOST_DRAWS = 1500
# Number of stages per unit, and its bounds. A sweep of flips takes 10 to 20 times as long as one of
# block Gibbs sampling, and decorrelates as much as about ten of them.
_STAGES = {BlockGibbs: (8.0, 500, 10_000), UnitMetropolis: (0.4, 200, 2_000)}
# On machines trained on images, equal steps gave smaller errors than learnt ones alone: moves mix
# badly in the long steps of these.
_EVEN_SHARE = 0.5
# Rates are moved by this much away from 0 and 1: states that have a unit of rate 0 on must not be
# rare among paths if they are not rare under the target.
_SMOOTHING = 0.01
_TRIAL_PATHS, _TRIAL_STAGES = 512, 1000


def smoothed(shares: Floats) -> Floats:
    """Return shares of states in which units are on as rates that are neither 0 nor 1."""
    return (shares + _SMOOTHING) / (1.0 + 2.0 * _SMOOTHING)


@dataclass(frozen=True)
class Trial:
    """A short annealing from independent units of rate 1/2, the same for all runs of a machine.

    Parameters
    ----------
    rates : ndarray, shape (n_visible + n_hidden,)
        Shares of the final states in which units are on: the mean of the plain shares, and of those
        with the weights of the paths. A mode that few paths find with a large weight then has as
        large a part in the reference as one that most paths find.
    log_z, mcse : float
        Log of the normalising constant, from the weights alone, and its error, in nats.
    """

    rates: Floats
    log_z: float
    mcse: float


def trial_of(target: Any) -> Trial:
    """Return the trial of a machine that is annealed with both layers, from a uniform reference.

    Notes
    -----
    It is independent of the seed of a run, and unbiased for Z whatever it finds. By Markov's
    inequality it hardly ever exceeds Z by much, so that a run whose estimate is far smaller has
    missed a mode, however well its paths agree.
    """
    beta = np.linspace(0.0, 1.0, _TRIAL_STAGES + 1)
    plan = Plan(beta, (BlockGibbs(),) * _TRIAL_STAGES)
    parts = [
        AIS().run_block(BaseRatePath(target), plan, i, _PATHS, 0, phase=Phase.TRIAL)
        for i in range(_TRIAL_PATHS // _PATHS)
    ]
    draws = np.concatenate([np.asarray(part.draws) for part in parts]).astype(float)
    log_weight = -np.concatenate([part.work for part in parts])
    weight: Floats = normalised(log_weight)
    rates = 0.5 * draws.mean(axis=0) + 0.5 * (weight @ draws)
    error = max(float(weight @ weight) - 1.0 / len(weight), 0.0) ** 0.5
    return Trial(smoothed(rates), log_mean_exp(log_weight), error)


def rbm_setup(target: Any, kernel: str | Kernel) -> AnnealingSetup:
    """Return path, kernel and number of stages of a machine.

    Parameters
    ----------
    target : RBM
        What is annealed.
    kernel : str or Kernel
        The kernel that the user asks for.

    Raises
    ------
    ValueError
        If the kernel is not that of what is annealed.
    """
    name, kind = KERNELS[target.latent]
    if isinstance(kernel, str):
        check_choice("kernel", kernel, ("auto", name))
        chosen = kind()
    elif isinstance(kernel, kind):
        chosen = kernel
    else:
        raise ValueError(
            f"kernel must be 'auto', {name!r} or a {kind.__name__} for latent={target.latent!r}, "
            f"got {described(kernel)}."
        )
    _ = target.base_rates, target.layers  # before several threads ask for them
    per_unit, least, most = _STAGES[kind]
    return AnnealingSetup(
        BaseRatePath(target),
        chosen,
        n_stages=int(np.clip(per_unit * (target.n_visible + target.n_hidden), least, most)),
        starts=None if target.data is None else target.states_from_data,
        n_paths=_PATHS,
        even_share=_EVEN_SHARE,
        most_draws=_MOST_DRAWS,
        facts=_of_trial(target),
    )


def _of_trial(target: Any) -> dict[str, float]:
    """Return what the trial found; nothing for a run from the trial's own reference."""
    if isinstance(target.base, str) and target.base == "uniform":
        return {}
    return {"trial_log_z": target.trial.log_z, "trial_mcse": target.trial.mcse}


def rbm_along(target: Any, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
    """Return the setup along another path.

    Parameters
    ----------
    target : RBM
        What is annealed.
    setup : AnnealingSetup
        Its usual setup.
    path : str or Path
        ``"auto"``, ``"geometric"``, ``"moment_average"``, ``"units"``, or a path object of this
        machine.

    Raises
    ------
    ValueError
        If the name is unknown, or the path is not one for the layers that are annealed.
    TypeError
        If it is no path.
    """
    if isinstance(path, str):
        check_choice("path", path, ("auto", "geometric", *_PATHS_BY_NAME))
        if path not in _PATHS_BY_NAME:
            return setup
        path = _PATHS_BY_NAME[path](target)
    found = checked_path(path, target)
    if not isinstance(found, MomentAveragedPath | UnitByUnitPath):
        return replace(setup, path=found)
    found.learn()
    if isinstance(found, UnitByUnitPath):
        grows: Any = Grows(PartialGibbs(found.n_sweeps))  # its reversal is of another class
        return replace(setup, path=found, kernel=grows, n_stages=found.n_steps, stepwise=True)
    n_sweeps = int(setup.kernel.settings()["n_sweeps"])
    return replace(setup, path=found, kernel=SegmentGibbs(n_sweeps))
