"""A PyMC model whose log evidence is known exactly."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pymc as pm


TAGS = {
    "conjugate": "the evidence has a closed form because prior and likelihood match",
    "constrained": "a free variable lives on part of the real line, a simplex or a circle",
    "continuous": "every free variable is continuous",
    "discontinuous": "the likelihood is zero on part of the prior's support",
    "discrete": "every free variable is discrete",
    "heavy-tailed": "a prior or likelihood has polynomial tails",
    "hierarchical": "the prior of some free variables depends on others",
    "high-dimensional": "ten or more free dimensions",
    "imputed": "masked observations have become free variables",
    "mixed": "continuous and discrete free variables together",
    "multimodal": "the posterior has several modes or phases",
    "potential": "part of the density is a pm.Potential",
    "slow": "one evaluation costs much more than usual, or the posterior needs many",
    "trap": "a feature of PyMC that evidence code is known to get wrong",
}


@dataclass(frozen=True)
class ExactSystem:
    """A PyMC model and its exact log evidence.

    Parameters
    ----------
    name : str
        Unique name, also the key in :func:`exact_systems`.
    build : callable
        Returns a fresh ``pm.Model``. PyMC is imported when it is called.
    log_evidence : float
        The exact log evidence in nats, of the *normalised* prior: where a
        transform cuts an ordinary prior, the prior renormalised on what is
        left. Potentials count as likelihood.
    tags : frozenset of str
        Keys of :data:`TAGS`.
    note : str
        How the exact value was computed.
    smooth : bool, default True
        Whether the log density has a gradient everywhere in the unconstrained
        space: no discrete variable and no jump.
    log_prior_mass : float, default 0.0
        Log of the integral of the prior density as PyMC evaluates it, in nats:
        ``-log(n!)`` for ``n`` exchangeable parts under an ordered transform, the
        log mass inside the interval for a prior cut by an interval transform.
        ``log_evidence`` is the log integral of ``exp(model.logp())`` less this.
    """

    name: str
    build: "Callable[[], pm.Model]"
    log_evidence: float
    tags: frozenset[str]
    note: str
    smooth: bool = True
    log_prior_mass: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError if the log evidence is not finite or a tag is unknown."""
        if not math.isfinite(self.log_evidence):
            raise ValueError(
                f"log_evidence of {self.name!r} must be finite, got {self.log_evidence}; "
                "correct the formula behind it."
            )
        unknown = self.tags - TAGS.keys()
        if unknown:
            raise ValueError(
                f"tags of {self.name!r} must be among {sorted(TAGS)}, got {sorted(unknown)}; "
                "use a known tag or add it to TAGS with its meaning."
            )


def tagged(*tags: str) -> frozenset[str]:
    """Return ``tags`` as the frozenset that :class:`ExactSystem` holds."""
    return frozenset(tags)
