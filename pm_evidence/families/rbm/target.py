"""Restricted Boltzmann machines of binary units, and how they are annealed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from pm_evidence.core.checks import check_choice, check_kind, described, float_array, plain_array
from pm_evidence.core.contracts import AnnealingSetup, Kernel, Path, Plan
from pm_evidence.core.digest import kept
from pm_evidence.core.numerics import log_mean_exp, normalised
from pm_evidence.core.random import Phase
from pm_evidence.core.records import CrossCheck, LogEvidence
from pm_evidence.families.native import NativeTarget, along, chosen_kernel
from pm_evidence.families.rbm.gibbs import (
    BaseRatePath,
    Bits,
    BlockGibbs,
    Layer,
    UnitMetropolis,
    gains_of,
    layer_of,
)
from pm_evidence.families.rbm.moment_average import MomentAveragedPath, SegmentGibbs
from pm_evidence.families.rbm.unit_path import PartialGibbs, UnitByUnitPath
from pm_evidence.kernels.cycle import Grows
from pm_evidence.samplers.ais import AIS

BitRows = NDArray[np.uint8]
Floats = NDArray[np.float64]


_BASES = ("auto", "data", "learnt", "uniform")
_MOST_UNITS = 1_000_000
# How states are made binary, by the range of their values.
_SPINS = "{0} > 0"
_SHARES = "{0} > 0.5, or rng.random({0}.shape) < {0}"
_BYTES = "{0} > 127, or rng.random({0}.shape) < {0} / 255"
LARGEST = 1e4  # nats; single precision holds the inputs of units to a thousandth


def checked_parameters(
    weights: Any, visible: Any, hidden: Any, names: Sequence[str] = ("visible_bias", "hidden_bias")
) -> tuple[Floats, ...]:
    """Return weights and biases as float64; ``names`` are those of the arguments for biases."""
    given = zip(("W", *names), (weights, visible, hidden), strict=True)
    found = {name: float_array(name, values) for name, values in given}
    shape = found["W"].shape
    if len(shape) != 2 or not all(shape) or max(shape) > _MOST_UNITS:
        raise ValueError(
            "W must have the shape (n_visible, n_hidden) with at least one unit in each layer, got "
            f"{shape}; pass a matrix of weights."
        )
    for name, layer, n in zip(names, ("visible", "hidden"), shape, strict=True):
        if found[name].shape != (n,):
            raise ValueError(
                f"{name} must have one number for each of the {n} {layer} units of W, shape "
                f"({n},), got {found[name].shape}; transpose W, or pass zeros."
            )
    for name, values in found.items():
        if not (np.abs(values) <= LARGEST).all():
            wrong = values[~(np.abs(values) <= LARGEST)][0]
            raise ValueError(
                f"{name} must hold finite numbers of at most {LARGEST:g} nats in size, got "
                f"{wrong}; look for NaN, and for a training run that diverged."
            )
    return tuple(found.values())


def checked_base(base: Any, n_units: int, has_data: bool) -> Any:
    """Return a name, or base rates as float64."""
    if isinstance(base, str):
        check_choice("base", base, _BASES)
        if base == "data" and not has_data:
            raise ValueError(
                "base='data' needs data, got none; pass data=, the states that the machine was "
                "trained on, or leave base out."
            )
        return base
    rates = float_array("base", base)
    if rates.shape != (n_units,):
        raise ValueError(
            f"base must have one rate for each of the {n_units} units of the reference, got shape "
            f"{rates.shape}; pass such rates, or leave base out."
        )
    if not ((rates > 0.0) & (rates < 1.0)).all():
        wrong = rates[~((rates > 0.0) & (rates < 1.0))][0]
        raise ValueError(
            f"base must hold rates between 0 and 1, got {wrong}: states that the reference never "
            "draws cannot be weighed. Move rates away from 0 and 1, (rate + 0.01) / 1.02 for "
            "instance."
        )
    return rates


def checked_states(name: str, states: Any, n_units: int | None = None) -> Bits:
    """Return states of 0 and 1 as bytes, shape ``(n, n_units)``, or of any number of units."""
    found = plain_array(name, states)
    if found.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must hold 0 and 1, got {described(states)}; convert it with .astype(float), "
            "or look for entries that are not numbers."
        )
    if found.ndim != 2 or not found.size or n_units not in (None, found.shape[1]):
        raise ValueError(
            f"{name} must have the shape (n, {n_units or 'n_units'}), one row for each state, got "
            f"{found.shape}; images, for example, need {name}.reshape(len({name}), -1)."
        )
    if not ((found == 0) | (found == 1)).all():
        low, high = found.min(), found.max()
        rule = _SPINS if low < 0 else _SHARES if high <= 1 else _BYTES
        remedy = f"binarise them, {rule.format(name)}"
        if not np.isfinite([low, high]).all():
            remedy = "leave out or fill the entries that are not finite"
        raise ValueError(
            f"{name} must hold 0 and 1 only, got values from {low:g} to {high:g}; {remedy}."
        )
    return np.ascontiguousarray(found, np.uint8)


# The kernel of what is annealed.
KERNELS: Mapping[str, tuple[str, type[BlockGibbs] | type[UnitMetropolis]]] = {
    "full": ("block_gibbs", BlockGibbs),
    "marginal": ("metropolis", UnitMetropolis),
    "visible": ("metropolis", UnitMetropolis),
}
_PATHS_BY_NAME: Mapping[str, Any] = {
    "geometric": None,
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
    """A short annealing from independent units of rate 1/2, the same for all runs of a machine."""

    # shape (n_visible + n_hidden,): shares of the final states in which units are on: the mean of
    # the plain shares, and of those with the weights of the paths. A mode that few paths find with
    # a large weight then has as large a part in the reference as one that most paths find.
    rates: Floats
    log_z: float  # log of the normalising constant, from the weights alone, and its error, in nats
    mcse: float


def trial_of(target: Any) -> Trial:
    """Return the trial of a machine that is annealed with both layers, from a uniform reference.

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


_HIGH = "forward annealing makes log Z too low on average, and the likelihood too high."
_LOW = "reverse annealing makes log Z too high on average, and the likelihood too low."
# What estimates from paths in one direction do to a likelihood.
_BIAS = {
    "jarzynski": _HIGH,
    "lower_bound": _HIGH,
    "smc": _HIGH,
    "jarzynski_reverse": _LOW,
    "upper_bound": _LOW,
}


@dataclass(frozen=True, eq=False, repr=False)
class RBM(NativeTarget):
    """A restricted Boltzmann machine: ``E(v, h) = -(a'v + b'h + v'Wh)`` with units of 0 and 1.

    Annealed from independent units (beta 0) to ``exp(-E)`` (beta 1). The log evidence is log Z, the
    log of the sum of ``exp(-E)`` over all states.

    Parameters
    ----------
    W : array_like, shape (n_visible, n_hidden)
        Weights.
    visible_bias, hidden_bias : array_like, shape (n_visible,) and (n_hidden,)
        Biases ``a`` and ``b``.
    base : {"auto", "data", "learnt", "uniform"} or array_like
        Probabilities with which the units of the reference are on. ``"data"`` takes the
        shares of ``data``, moved a little away from 0 and 1; ``"learnt"`` takes the shares
        at the end of a short trial run from the uniform reference. ``"auto"`` is
        ``"learnt"``: forward paths then know nothing of the data, and can contradict
        reverse paths that start from them. An array has one rate for each visible unit (for
        each hidden unit if ``latent="marginal"``), between 0 and 1.
    data : array_like of 0 and 1, shape (n, n_visible), optional
        Training data. Reverse paths start from them, after
        ``pe.methods.AIS(relaxation=100)`` sweeps of Gibbs sampling. Without data, reverse paths
        start from islands of sequential Monte Carlo.
    latent : {"full", "marginal", "visible"}
        What is annealed: the states of both layers, moved by block Gibbs sampling; the hidden units
        with the visible ones summed out, moved by Metropolis flips (Habeck 2017, section 6.3); or
        the visible units with the hidden ones summed out. Log Z is the same for all of them.
    history : TrainingHistory, optional
        What ``pe.rbm.train_rbm(..., track=pe.rbm.TrackLogZ())`` has seen of the training.

    Raises
    ------
    ValueError
        If shapes do not fit, parameters are not finite, data are not binary, or a rate is not
        between 0 and 1.

    Notes
    -----
    Products of states and weights are computed in single precision, and work in double precision.
    With the uniform reference, annealing of a machine trained on images misses most of log Z.

    Examples
    --------
    >>> import numpy as np, pm_evidence as pe
    >>> rng = np.random.default_rng(1)
    >>> machine = pe.rbm.RBM(rng.normal(0, 0.5, (12, 8)), np.zeros(12), np.zeros(8))
    >>> dt = pe.sample_evidence(machine, draws=100, random_seed=1, progressbar=False)
    >>> pe.log_evidence(dt).status
    'ok'
    """

    W: Floats
    visible_bias: Floats
    hidden_bias: Floats
    base: Any = "auto"
    data: BitRows | None = None
    latent: str = "full"
    history: Any = None
    growing_path = "units"
    _constants = ("W", "visible_bias", "hidden_bias")

    def __post_init__(self) -> None:
        parameters = checked_parameters(self.W, self.visible_bias, self.hidden_bias)
        for name, value in zip(("W", "visible_bias", "hidden_bias"), parameters, strict=True):
            object.__setattr__(self, name, value)
        check_choice("latent", self.latent, KERNELS)
        if self.data is not None:
            object.__setattr__(self, "data", checked_states("data", self.data, self.n_visible))
        n_rates = self.n_hidden if self.latent == "marginal" else self.n_visible
        base = checked_base(self.base, n_rates, self.data is not None)
        object.__setattr__(self, "base", base)
        if self.latent != "full":
            gains_of(self.summed_layer)  # refuses weights that single precision cannot hold

    def __repr__(self) -> str:
        return f"RBM({self.n_visible} x {self.n_hidden}, latent={self.latent!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what can be computed from the parameters.

        Base rates that were learnt are kept: another machine may round differently, and its trial
        run would find others.
        """
        kept = (*self.__dataclass_fields__, "base_rates")
        return {name: self.__dict__[name] for name in kept if name in self.__dict__}

    @property
    def n_visible(self) -> int:
        """Number of visible units."""
        return len(self.visible_bias)

    @property
    def n_hidden(self) -> int:
        """Number of hidden units."""
        return len(self.hidden_bias)

    @property
    def variables(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the layers that are annealed: ``v``, ``h`` or both."""
        return {"marginal": ("h",), "visible": ("v",)}.get(self.latent, ("v", "h"))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of units of each layer that is annealed."""
        n_units = {"v": self.n_visible, "h": self.n_hidden}
        return tuple(n_units[name] for name in self.variables)

    @property
    def n_dim(self) -> int:  # type: ignore[override]
        """Number of units that are annealed."""
        return sum(self.sizes)

    @cached_property
    def base_rates(self) -> Floats:
        """Probabilities with which the units of the reference are on, shape ``(n_dim,)``."""
        if not isinstance(self.base, str):
            rates = self.base
        elif self.base == "uniform":
            rates = np.full(self.sizes[0], 0.5)
        elif self.base == "data" and self.data is not None:
            rows = self.data if self.latent != "marginal" else self.hidden_probabilities(self.data)
            rates = smoothed(np.asarray(rows, float).mean(axis=0))
        else:
            visible, hidden = np.split(self.trial.rates, [self.n_visible])
            rates = hidden if self.latent == "marginal" else visible
        return np.append(rates, np.full(self.n_dim - len(rates), 0.5))

    @cached_property
    def trial(self) -> Trial:
        """A short annealing from independent units of rate 1/2, which checks every run."""
        uniform = replace(self, base="uniform", latent="full", data=None)
        found: Trial = kept("trial", partial(trial_of, uniform))
        return found

    @cached_property
    def base_bias(self) -> Floats:
        """Biases of the reference in nats, shape ``(n_dim,)``."""
        return np.log(self.base_rates) - np.log1p(-self.base_rates)

    @cached_property
    def layers(self) -> tuple[Layer, Layer]:
        """Visible and hidden layer, as compiled code reads them."""
        base = np.zeros(self.n_visible + self.n_hidden)  # a layer that is summed out needs none
        if self.latent == "full":
            base = self.base_bias
        return (
            layer_of(self.W.T, self.visible_bias, base[: self.n_visible]),
            layer_of(self.W, self.hidden_bias, base[self.n_visible :]),
        )

    @property
    def summed_layer(self) -> Layer:
        """The layer that is summed out, given the one that is annealed."""
        return self.layers[0 if self.latent == "marginal" else 1]

    @property
    def kept_bias(self) -> Floats:
        """Biases of the layer that is annealed while the other one is summed out."""
        return self.hidden_bias if self.latent == "marginal" else self.visible_bias

    @cached_property
    def gains(self) -> Any:
        """What flips of units that are annealed change; see ``flips.gains_of``."""
        return gains_of(self.summed_layer)

    def joint_energy(self, visible: NDArray[Any], hidden: NDArray[Any]) -> Floats:
        """Return ``E(v, h)`` in nats, shape ``(n,)``, for states of both layers."""
        v, h = np.asarray(visible, float), np.asarray(hidden, float)
        energy: Floats = -(v @ self.visible_bias + h @ self.hidden_bias)
        return energy - np.einsum("ij,ij->i", v @ self.W, h)

    def free_energy(self, visible: ArrayLike) -> Floats:
        """Return ``-log sum_h exp(-E(v, h))`` in nats, shape ``(n,)``.

        Raises
        ------
        ValueError
            If these are not states of the visible units.
        """
        v = checked_states("visible", visible, self.n_visible).astype(float)
        inputs = self.hidden_bias + v @ self.W
        energy: Floats = -(v @ self.visible_bias) - np.logaddexp(0.0, inputs).sum(axis=1)
        return energy

    def hidden_probabilities(self, visible: ArrayLike) -> Floats:
        """Return the probabilities that hidden units are on, shape ``(n, n_hidden)``.

        Raises
        ------
        ValueError
            If these are not states of the visible units.
        """
        v = checked_states("visible", visible, self.n_visible).astype(float)
        found: Floats = expit(self.hidden_bias + v @ self.W)
        return found

    def visible_probabilities(self, hidden: ArrayLike) -> Floats:
        """Return the probabilities that visible units are on, shape ``(n, n_visible)``.

        Raises
        ------
        ValueError
            If these are not states of the hidden units.
        """
        h = checked_states("hidden", hidden, self.n_hidden).astype(float)
        found: Floats = expit(self.visible_bias + h @ self.W.T)
        return found

    def log_likelihood(self, visible: ArrayLike, log_z: LogEvidence) -> LogEvidence:
        """Return the average log-likelihood of visible states, such as a test set.

        Parameters
        ----------
        visible : array_like of 0 and 1, shape (n, n_visible)
            The states.
        log_z : LogEvidence
            An estimate of log Z of this machine, for example ``pe.log_evidence(dt)``.

        Returns
        -------
        LogEvidence
            The average in nats for each state, with the error of log Z; the scatter of the states
            is not part of it. The status is that of ``log_z``. The message tells the direction of
            the bias of an estimate from paths in one direction.

        Raises
        ------
        ValueError
            If these are not states of the visible units.
        TypeError
            If ``log_z`` is not an estimate.

        Notes
        -----
        The log of an unbiased estimate of Z is too low on average, so that forward annealing makes
        the likelihood too high. Reverse annealing estimates 1/Z, which makes it too low.
        """
        check_kind("log_z", log_z, LogEvidence, "pass pe.log_evidence(dt)")
        mean = -float(self.free_energy(visible).mean())
        return replace(
            log_z,
            value=mean - log_z.value,
            lower=mean - log_z.upper,
            upper=mean - log_z.lower,
            message=" ".join(filter(None, (log_z.message, _BIAS.get(log_z.estimator)))),
        )

    def log_density(self, draws: NDArray[Any]) -> Floats:
        """Return the log of the unnormalised density of states that are annealed, in nats."""
        if self.latent == "full":
            return -self.joint_energy(*np.split(draws, [self.n_visible], axis=1))
        if self.latent == "visible":
            return -self.free_energy(draws)
        h = np.asarray(draws, float)
        inputs = self.visible_bias + h @ self.W.T
        log_density: Floats = h @ self.hidden_bias + np.logaddexp(0.0, inputs).sum(axis=1)
        return log_density

    def states_from_data(self, n: int, rng: np.random.Generator) -> BitRows:
        """Return ``n`` states of training data, whose hidden units are drawn given these."""
        assert self.data is not None  # the setup asks for it
        return self.states_given(self.data[rng.integers(len(self.data), size=n)], rng)

    def states_given(self, visible: BitRows, rng: np.random.Generator) -> BitRows:
        """Return states of what is annealed, with hidden units drawn given visible states."""
        if self.latent == "visible":
            return visible
        probabilities = self.hidden_probabilities(visible)
        hidden = (rng.random(probabilities.shape) < probabilities).astype(np.uint8)
        return hidden if self.latent == "marginal" else np.hstack([visible, hidden])

    def check(self, draws: NDArray[Any], name: str = "draws") -> BitRows:
        """Return states that are annealed as bytes; see ``checks.checked_states``."""
        return checked_states(name, draws, self.n_dim)

    def annealing_setup(self, kernel: str | Kernel) -> AnnealingSetup:
        """Return path, kernel and number of stages.

        Raises
        ------
        ValueError
            If the kernel does not suit what is annealed.
        """
        name, kind = KERNELS[self.latent]
        chosen = chosen_kernel(kernel, {name: kind}, f"latent={self.latent!r}")
        _ = self.base_rates, self.layers  # before several threads ask for them
        per_unit, least, most = _STAGES[kind]
        facts = {}  # a run from the trial's own reference is not checked by it
        if not isinstance(self.base, str) or self.base != "uniform":
            facts = {"cross_check": CrossCheck(self.trial.log_z, self.trial.mcse, "base rates")}
        return AnnealingSetup(
            BaseRatePath(self),
            chosen,
            n_stages=int(np.clip(per_unit * (self.n_visible + self.n_hidden), least, most)),
            starts=None if self.data is None else self.states_from_data,
            n_paths=_PATHS,
            even_share=_EVEN_SHARE,
            most_draws=_MOST_DRAWS,
            facts=facts,
        )

    def with_path(self, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
        """Return the setup along another path, with the kernel that moves along it.

        Raises
        ------
        ValueError
            If the machine has no such path.
        """
        setup = along(setup, path, self, _PATHS_BY_NAME)
        found = setup.path
        if isinstance(found, UnitByUnitPath):
            found.learn()
            moves = Grows(PartialGibbs(found.n_sweeps))
            return replace(setup, kernel=moves, n_stages=found.n_steps, stepwise=True)
        if isinstance(found, MomentAveragedPath):
            found.learn()
            n_sweeps = int(setup.kernel.settings()["n_sweeps"])
            return replace(setup, kernel=SegmentGibbs(n_sweeps))
        return setup

    def posterior(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the units that are annealed: ``v``, shape (n, n_visible), and ``h``."""
        parts = np.split(draws, np.cumsum(self.sizes)[:-1], axis=1)
        return dict(zip(self.variables, parts, strict=True))

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the numbers of the units, and the names of the dimensions."""
        coords = {"visible": np.arange(self.n_visible), "hidden": np.arange(self.n_hidden)}
        dims = {"v": ["visible"], "h": ["hidden"], "W": ["visible", "hidden"]}
        return coords, dims | {"visible_bias": ["visible"], "hidden_bias": ["hidden"]}
