"""Bridge sampling from posterior draws that the user already has."""

from dataclasses import dataclass
from typing import Any

from pm_evidence.core.checks import described
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.samplers.smc import SMC

__all__ = ["Bridge"]


@dataclass(frozen=True)
class Bridge:
    """Bridge sampling: the evidence from posterior draws that are there already.

    A density is fitted to one half of the draws, and the evidence is estimated with draws from it
    and with the other half of the posterior draws, and the reverse. A small annealing from the
    prior, a survey of the peaks and the weights of the draws tell whether the posterior draws can
    be relied on. `bridge_sampling` is the same in one call.

    Parameters
    ----------
    idata : DataTree
        Posterior draws of the model and the data, with all free variables: what ``pm.sample``
        returned, whatever its ``nuts_sampler``.

    Raises
    ------
    TypeError
        If ``idata`` is not a DataTree.

    Notes
    -----
    Meng and Wong (1996); Meng and Schilling (2002); Gronau et al. (2017). With this method the
    argument ``draws`` of `sample_evidence` is the number of draws from the fitted density.
    """

    idata: Any = None
    name = "bridge_sampling"
    default_draws = 4000
    n_seeds = None

    def __post_init__(self) -> None:
        if not hasattr(self.idata, "children"):
            raise TypeError(
                f"idata must be a DataTree with posterior draws, got {described(self.idata)}; "
                "pass what pm.sample returned."
            )

    @property
    def annealer(self) -> SMC:
        """The sampler that normalises a prior to which potentials belong."""
        return SMC()

    @property
    def likelihood_moves(self) -> PseudoMarginal:
        """The kernel of an estimated likelihood, for which there is no bridge."""
        return PseudoMarginal()
