"""The path along which a machine receives its visible units one by one."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_count, described
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.codegen.vectors import aligned
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import streams, uniforms
from pm_evidence.families.native import (
    MOST_SWEEPS,
    OrderedKernel,
    SweepKernel,
    checked_order,
    order_of,
)
from pm_evidence.families.rbm.gibbs import (
    COLUMNS,
    ENTRIES,
    TABLES,
    WORD,
    Bits,
    Layer,
    Words,
    draw_layers,
    factor_of_flip,
    gains_of,
    layer_of,
    log_sum,
    multiply,
    pack,
    unpack,
)
from pm_evidence.paths.growing import GrowingPath
from pm_evidence.targets.layout import Rows

Floats = NDArray[np.float64]
Streams = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class PartialUnits(Rows):
    """A population of states of the first visible units, with the hidden ones summed out."""

    step: int  # number of visible units that the machine has
    # shape (n, n_words): visible units in the order in which they are added; those that are not
    # there yet are 0
    visible: Words
    # shape (n, n_hidden_words): hidden units as Gibbs sampling drew them last. They have no
    # influence on the path, and are there for draws of both layers.
    hidden: Words
    # shape (n_visible,): visible units in the order in which they are added
    order: NDArray[np.int64]
    n_hidden: int  # number of hidden units of a draw, 0 if draws consist of visible units only
    rows = ("visible", "hidden")

    def to_draws(self) -> Bits:
        """Return the units in the order of the machine, shape ``(n, n_units)``."""
        visible = np.empty((len(self), len(self.order)), np.uint8)
        visible[:, self.order] = unpack(self.visible, len(self.order))
        return np.hstack([visible, unpack(self.hidden, self.n_hidden)])


@dataclass(frozen=True)
class PartialGibbs(SweepKernel):
    """Draws all hidden units given the visible ones, and then the visible units so far.

    The hidden units do not belong to the state: they are drawn first and left behind. As a move of
    the visible units alone, Gibbs sampling is its own time reversal.
    """

    n_sweeps: int = 10  # number of times that both layers are drawn

    def advance(
        self, path: Any, state: PartialUnits, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[PartialUnits, MoveInfo]:
        """Move every member, with the units that it has; see ``contracts.Kernel``."""
        n, layers = len(state), path.layers_at(state.step)
        n_words = layers[0].there.size
        visible, hidden = np.zeros_like(state.visible), state.hidden.copy()
        some, found = state.visible[:, :n_words].copy(), np.empty((1, 2, n))
        kernel, beta_of_all = OrderedKernel(self.n_sweeps), np.ones((1, 1))
        draw_layers(layers, (some, hidden), beta_of_all, kernel, streams, found)
        visible[:, :n_words] = some
        moved = replace(state, visible=visible, hidden=hidden)
        return moved, MoveInfo(1.0, 2 * n * self.n_sweeps)


@dataclass(frozen=True, eq=False, repr=False)
class UnitByUnitPath(GrowingPath):
    """Machines with the first ``n`` visible units, for ``n`` from 0 to all of them.

    ``f_n(v) = exp(a'v) prod_j (1 + exp(b_j + v'W_j))``, where sums go over the first ``n`` visible
    units and the hidden ones are summed out. A state is weighted by the sum of ``f_(n+1) / f_n``
    over the values of the next unit, which is then drawn. Gibbs sampling moves all units so far.

    Parameters
    ----------
    target : RBM
        The machine, with ``latent="full"`` or ``"visible"``.
    unit_order : {"variable", "given"} or array_like of int, shape (n_visible,)
        Order in which units are added: those whose share of ones is closest to one half first, as
        they are given, or by their indices. The shares are those of the machine's ``data``; without
        data they are its base rates.
    n_sweeps : int
        Number of times that both layers are drawn after a unit has been added.

    Raises
    ------
    ValueError
        If the visible units of the machine are summed out, an option is out of range, or the order
        does not name every unit once.

    Notes
    -----
    Fraccaro, Paquet and Winther (2016), section 5, Eq. 13 and 14. The empty machine is normalised,
    so that the first weight is the sum of ``f_1`` over both values of the first unit.

    Examples
    --------
    >>> import numpy as np, pm_evidence as pe
    >>> rng = np.random.default_rng(1)
    >>> machine = pe.rbm.RBM(rng.normal(0, 0.5, (12, 8)), np.zeros(12), np.zeros(8))
    >>> path = pe.paths.UnitByUnitPath(machine, unit_order="given", n_sweeps=5)
    >>> dt = pe.sample_evidence(
    ...     machine, method="arm", path=path, draws=800, random_seed=1, progressbar=False
    ... )
    >>> pe.log_evidence(dt).status
    'ok'
    """

    target: Any
    unit_order: str | ArrayLike = "variable"
    n_sweeps: int = 10

    def __post_init__(self) -> None:
        if getattr(self.target, "latent", None) not in ("full", "visible"):
            raise ValueError(
                "target must be a pe.rbm.RBM with latent='full' or 'visible' to be built unit by "
                "unit, "
                f"got {described(self.target)} with latent={getattr(self.target, 'latent', None)!r}"
                "; leave latent out."
            )
        check_count("n_sweeps", self.n_sweeps, 1, MOST_SWEEPS)
        names = ("variable", "given")
        checked_order("unit_order", self.unit_order, self.target.n_visible, "visible units", names)

    def __repr__(self) -> str:
        return f"UnitByUnitPath({self.target!r}, n_sweeps={self.n_sweeps})"

    @property
    def n_steps(self) -> int:
        """Number of visible units."""
        return int(self.target.n_visible)

    @property
    def can_reseed(self) -> bool:
        """Whether the machine has data that independent states can start from."""
        return self.target.data is not None

    @cached_property
    def units(self) -> NDArray[np.int64]:
        """Visible units in the order in which they are added, shape ``(n_visible,)``."""
        target = self.target

        def most_variable() -> NDArray[np.int64]:
            rates = target.base_rates[: target.n_visible]
            if target.data is not None:
                rates = np.asarray(target.data, float).mean(axis=0)
            return np.argsort(-rates * (1.0 - rates), kind="stable")

        return order_of(self.unit_order, target.n_visible, variable=most_variable)

    @cached_property
    def layers(self) -> tuple[Layer, Layer]:
        """Visible and hidden layer with visible units in this order, as compiled code reads it."""
        target, weights = self.target, self.target.W[self.units]
        nothing = np.zeros(target.n_visible + target.n_hidden)
        return (
            layer_of(weights.T, target.visible_bias[self.units], nothing[: target.n_visible]),
            layer_of(weights, target.hidden_bias, nothing[: target.n_hidden]),
        )

    @cached_property
    def gains(self) -> Any:
        """What units that are switched on change; see ``flips.gains_of``."""
        return gains_of(self.layers[1])

    def learn(self) -> None:
        """Compute what is needed of the machine, before several threads ask for it."""
        _ = self.layers, self.gains

    def layers_at(self, step: int) -> tuple[Layer, Layer]:
        """Return both layers of the machine with its first ``step`` visible units."""
        visible, hidden = self.layers
        n = -(-step // WORD) * WORD
        there = pack(np.ones((1, step), np.uint8))[0]
        return (
            Layer(visible.weights[:, :n], visible.bias[:n], visible.base[:n], there),
            Layer(hidden.weights[:n], hidden.bias, hidden.base, hidden.there),
        )

    def draw(self, n: int, seed: np.random.SeedSequence) -> PartialUnits:
        """Return ``n`` states of the machine without visible units; hidden ones are all 0."""
        visible, hidden = self.layers
        nothing = np.zeros((n, visible.there.size), np.uint64)
        return self._states(0, nothing, np.zeros((n, hidden.there.size), np.uint64))

    def at(self, draws: NDArray[Any]) -> PartialUnits:
        """Return the population of states of the whole machine, shape ``(n, n_units)``."""
        target = self.target
        visible = np.asarray(draws)[:, : target.n_visible][:, self.units]
        hidden = np.zeros((len(draws), target.n_hidden), np.uint8)
        if target.latent == "full":
            hidden = np.asarray(draws)[:, target.n_visible :]
        return self._states(self.n_steps, pack(visible), pack(hidden))

    def _states(self, step: int, visible: Any, hidden: Any) -> PartialUnits:
        n_hidden = self.target.n_hidden if self.target.latent == "full" else 0
        return PartialUnits(step, visible, hidden, self.units, n_hidden)

    def log_odds(self, state: PartialUnits) -> Floats:
        """Return the log odds that the next unit is on given those before it, in nats.

        ``a + sum_j log(1 + s_j (exp(W_j) - 1))``, where ``s_j`` is the probability that a hidden
        unit is on.
        """
        odds = np.empty(len(state))
        hidden, n_words = self.layers[1], -(-state.step // WORD)
        n = n_words * WORD
        room = (
            aligned((TABLES, ENTRIES, COLUMNS)),
            aligned((len(state), hidden.bias.size)),
            aligned((hidden.bias.size,)),
        )
        words = np.ascontiguousarray(state.visible[:, :n_words])
        on, _, there = self.gains
        _log_factors(words, hidden.weights[:n], hidden.bias, on, there, state.step, room, odds)
        odds += self.target.visible_bias[self.units[state.step]]
        return odds

    def smoothed(self, state: PartialUnits) -> Floats:
        """Return the log of the sum of ``f_(n+1) / f_n`` over the next unit, shape ``(n,)``."""
        ratio: Floats = np.logaddexp(0.0, self.log_odds(state))
        if state.step == 0:
            ratio = ratio + np.logaddexp(0.0, self.target.hidden_bias).sum()
        return ratio

    def extended(self, state: PartialUnits, streams: Streams) -> PartialUnits:
        """Return the states with the next unit, drawn given those before it."""
        u = uniforms(streams, 1)[:, 0]
        on = np.log(u) - np.log1p(-u) < self.log_odds(state)
        visible = state.visible.copy()
        word, bit = divmod(state.step, WORD)
        visible[:, word] |= on.astype(np.uint64) << np.uint64(bit)
        return replace(state, step=state.step + 1, visible=visible)

    def shrunk(self, state: PartialUnits) -> PartialUnits:
        """Return the states without the unit that was added last."""
        visible = state.visible.copy()
        word, bit = divmod(state.step - 1, WORD)
        visible[:, word] &= ~(np.uint64(1) << np.uint64(bit))
        return replace(state, step=state.step - 1, visible=visible)

    def reseeded(
        self, n: int, beta: float, n_moves: int, seed: np.random.SeedSequence
    ) -> PartialUnits:
        """Return states that Gibbs sampling has brought to ``beta`` from examples of the data.

        Parameters
        ----------
        n : int
            Number of states.
        beta : float
            Share of the visible units that the machine has.
        n_moves : int
            Number of times that both layers are drawn.
        seed : SeedSequence
            Seed of the choice of examples and of the moves.
        """
        step, (choice, moves) = self.step_of(beta), seed.spawn(2)
        rows = np.random.default_rng(choice).integers(len(self.target.data), size=n)
        start = np.zeros((n, self.n_steps), np.uint8)
        start[:, :step] = self.target.data[rows][:, self.units[:step]]
        state = self._states(step, pack(start), np.zeros_like(self.draw(n, seed).hidden))
        moved, _ = PartialGibbs(n_moves).advance(self, state, beta, streams(moves, n))
        return moved


@njit
def _log_factors(words, weights, bias, gains, there, unit, room, out):
    """Compute the log of what switching ``unit`` on multiplies the density by, its bias aside."""
    tables, inputs, likely = room
    multiply(words, weights, bias, tables, inputs)
    for m in range(out.size):
        log_sum(inputs[m], likely, there)
        out[m] = np.log(factor_of_flip(likely, gains, unit))
