"""What a model of the benchmark consists of."""

from collections.abc import Callable
from dataclasses import dataclass

import pymc as pm

__all__ = ["Case", "Nuts", "Reference"]


@dataclass(frozen=True)
class Reference:
    """A log evidence in nats and its standard error.

    The error is 0 for quadratures, which are repeated with more nodes until nothing changes. The
    Pareto shape is that of importance weights, and None where there are none.
    """

    log_evidence: float
    error: float = 0.0
    pareto_k: float | None = None


@dataclass(frozen=True)
class Nuts:
    """How long a run of NUTS is from which the gradients of a whole run are counted."""

    chains: int = 4
    tune: int = 1000
    draws: int = 2000


@dataclass(frozen=True)
class Case:
    """A model, and a log evidence that is computed without the package.

    Parameters
    ----------
    name : str
    build : callable
        Returns the model; raises FileNotFoundError where real data are missing.
    reference : callable
        Returns the log evidence.
    source : str
        Where the data come from.
    method : str
        How the reference is computed.
    near_gaussian : bool
        Whether the posterior is near a normal density, so that a cheap route should be enough.
    form_of : str, optional
        What a model is called of which this is the centred or the non-centred form.
    published : float, optional
        Log evidence from the literature.
    nuts : Nuts, optional
        None for a model without a gradient.
    """

    name: str
    build: Callable[[], pm.Model]
    reference: Callable[[], Reference]
    source: str
    method: str
    near_gaussian: bool = False
    form_of: str | None = None
    published: float | None = None
    nuts: Nuts | None = Nuts()

    @property
    def is_large(self) -> bool:
        """Whether one evaluation takes so long, or so many are made, that NUTS is cut short."""
        return self.nuts is not None and self.nuts != Nuts()
