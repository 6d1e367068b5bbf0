"""A PyMC model that is annealed from another density than its prior."""

from dataclasses import dataclass, field
from functools import cached_property
from math import log, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.exceptions import ModelError, NumericalError
from pm_evidence.references.density import annealed_from, components_of, log_reference
from pm_evidence.references.mixture import StudentMixture
from pm_evidence.targets.compile.numba_density import log_densities
from pm_evidence.targets.compile.numpy_density import NumpyDensity
from pm_evidence.targets.layout import Particles

Floats = NDArray[np.float64]

# Share of the prior in every reference.
_PRIOR_SHARE = 0.1


def coordinates_of(model: Any) -> NDArray[np.int64]:
    """Return the positions of the coordinates that a reference is a density of.

    They are the continuous ones that are not circular.
    """
    positions: NDArray[np.int64] = model.continuous[model.period[model.continuous] == 0.0]
    return positions


@dataclass(eq=False, repr=False)
class ReferencedTarget:
    """A model whose two log densities are ``log q`` and ``log prior + log likelihood - log q``.

    The reference ``q`` is that of the continuous coordinates; circular ones are uniform on the
    circle, and discrete ones have their prior, which must not depend on the continuous ones. A
    tenth of ``q`` is the prior of the model. Without it, importance weights may be unbounded where
    the prior reaches and the fitted density hardly does, such as in the neck of a funnel.

    The log prior is normalised by the mass of ordered transforms, so that the evidence is that of
    the normalised prior. It is exact for any reference that is positive where the posterior is.
    """

    model: Any
    reference: Any  # density of the coordinates that `coordinates_of` returns
    facts: dict[str, Any] = field(default_factory=dict)  # for the record of a run
    n_evaluations: int = 0  # what the reference has cost
    known: StudentMixture | None = None  # a density fitted to draws from the posterior

    def __post_init__(self) -> None:
        model = self.model
        self.n_dim, self.layout = model.n_dim, model.layout
        self.continuous, self.discrete = model.continuous, model.discrete
        self.lower, self.upper, self.period = model.lower, model.upper, model.period
        self.positions = coordinates_of(model)
        if model.prior_acceptance < 1.0:
            raise ModelError(
                "reference must be 'prior' where a transform cuts off a part of the prior, whose "
                f"mass is known only approximately, got a prior of which {model.prior_acceptance:g}"
                " lies inside the transforms. Write the prior with pm.Truncated, or leave "
                "reference out."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.model, self.reference, self.facts, self.n_evaluations, self.known)
        return type(self), fields

    # the mass of the prior is a part of the second log density
    prior_acceptance, log_order_mass = 1.0, 0.0

    @property
    def log_prior_mass(self) -> float:
        """Log of the prior mass within the constraints, in nats."""
        mass: float = self.model.log_prior_mass
        return mass

    # densities ------------------------------------------------------------------------------

    @cached_property
    def density(self) -> NumpyDensity:
        """Both log densities, without gradients."""
        return self._annealed("density")

    @cached_property
    def differentiable(self) -> NumpyDensity | None:
        """Both log densities with gradients; None if the model or the reference has none."""
        has_none = self.model.differentiable is None or components_of(self.reference) is None
        return None if has_none else self._annealed("differentiable")

    def _annealed(self, name: str) -> NumpyDensity:
        on_circles = -int(np.count_nonzero(self.period)) * log(2.0 * pi)

        discrete = self.model.discrete_prior if self.discrete.size else None

        def of_others(x: Floats) -> Any:
            return on_circles if discrete is None else on_circles + discrete.values(x)[:, 0]

        found, n_rows = log_reference(self.reference, self.positions, of_others)
        return annealed_from(self.model, name, found, _PRIOR_SHARE, n_rows=n_rows)

    def evaluate(self, x: Floats) -> Particles:
        """Return the points ``x``, shape ``(n, n_dim)``, with both log densities."""
        return Particles(x, log_densities(self, x), None)

    # draws ----------------------------------------------------------------------------------

    def draw(self, n: int, seed: np.random.SeedSequence) -> Particles:
        """Return ``n`` independent draws from the reference.

        Where the density of the model is NaN it counts as zero.
        """
        of_reference, of_prior = seed.spawn(2)
        rng = np.random.default_rng(of_reference)
        x = np.zeros((n, self.n_dim))
        if self.positions.size:
            x[:, self.positions] = self.reference.draw(n, rng)
        circular = np.flatnonzero(self.period)
        x[:, circular] = self.period[circular] * (rng.uniform(size=(n, circular.size)) - 0.5)
        if self.discrete.size:
            x[:, self.discrete] = self.model.prior_points(n, of_prior)[:, self.discrete]
        # their number hardly varies, because a mean over islands of few draws would vary with it
        whole = rng.permutation(n) < int(_PRIOR_SHARE * n + rng.uniform())
        x[whole] = self._prior_draws(int(whole.sum()), of_prior)
        log_density = self.evaluate(x).log_density
        infinite = np.flatnonzero((log_density == np.inf).any(axis=1))
        if infinite.size:
            raise NumericalError(
                "the log density must be a number below infinity, got infinity at "
                f"{infinite.size} of {n} draws from the reference, first at "
                f"{self.model.describe(x[infinite[0]])}. Look for an overflow in the model."
            )
        failed = np.isnan(log_density[:, 1])
        log_density[failed, 1] = -np.inf
        log_density[np.isnan(log_density[:, 0]), 0] = -np.inf
        return Particles(x, log_density)

    def _prior_draws(self, n: int, seed: np.random.SeedSequence) -> Floats:
        """Return ``n`` draws from the prior, inside of ordered transforms."""
        found = np.empty((0, self.n_dim))
        while len(found) < n:
            x = self.model.prior_points(n, seed.spawn(1)[0])
            found = np.concatenate([found, x[np.isfinite(x).all(axis=1)]])
        return found[:n]

    def wrap(self, x: Floats) -> Floats:
        """Return ``x`` with circular coordinates brought back to one period."""
        wrapped: Floats = self.model.wrap(x)
        return wrapped
