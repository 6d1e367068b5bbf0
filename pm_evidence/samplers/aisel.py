"""Annealed importance sampling with an estimated likelihood."""

from dataclasses import dataclass

from pm_evidence.core.checks import check_choice, check_count, check_share, real_number
from pm_evidence.core.resampling import SCHEMES
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.sizes import MOST_ISLANDS, MOST_MOVES, MOST_STAGES
from pm_evidence.samplers.smc import SMC

__all__ = ["AISEL"]

# Number of seeds of an estimate if a move renews only some of them.
_RENEWED_SEEDS = 50


@dataclass(frozen=True, kw_only=True)
class AISEL:
    """Annealed importance sampling with an estimated likelihood (Tran et al., Algorithm 1).

    States are parameters together with the seeds of their likelihood estimate, and moves
    are pseudo-marginal. With resampling, particles are annealed in independent islands (the
    batches of section 3.1), and a density that the pilot fits to the posterior is used for
    importance sampling (IS squared) and for a bridge. Without resampling, independent paths run
    in both directions: on the joint space of parameters and seeds reverse paths are as valid as
    for a known likelihood, so Bennett's acceptance ratio can be used.

    Parameters
    ----------
    resampling : str or None
        ``"systematic"``, ``"stratified"``, ``"residual"``, ``"ssp"`` or ``"multinomial"``; None
        for independent paths.
    islands : int
        Number of independent populations that share the draws, at least 2. Without resampling,
        reverse paths start from these populations.
    chain_length : int
        Number of states kept from the chain of each resampled particle; 1 is the paper's
        algorithm. See ``pe.SMC``.
    resample_below : float
        Used with ``chain_length=1``; see ``pe.SMC``.
    burn_in : int
        Number of moves whose states are discarded before each state that is kept.
    ess : float
        Effective sample size at every stage, as a share of the particles.
    n_stages : int, optional
        Least number of stages, into which those of the pilot are divided; the pilot chooses it by
        default.
    renewal : float
        Share of its seeds that a move renews, at most 1. With a smaller share, old and new
        estimates are correlated. This helps if the estimates are noisy and there are many data.

    Notes
    -----
    The estimators ``smc`` and ``jarzynski`` are products of mean weights; ``importance`` is the
    mean weight of draws from the fitted density, recommended if the fit is good;
    ``power_posterior`` is the trapezoidal rule of Eq. 9 to 11.
    """

    resampling: str | None = "systematic"
    islands: int = 8
    chain_length: int = 5
    resample_below: float = 1.0
    burn_in: int = 0
    ess: float = 0.5
    n_stages: int | None = None
    renewal: float = 1.0
    name = "aisel"
    default_draws = 1000

    def __post_init__(self) -> None:
        if self.resampling is not None:
            check_choice("resampling", self.resampling, SCHEMES)
        check_count("islands", self.islands, 2, MOST_ISLANDS)
        check_count("chain_length", self.chain_length, 1, MOST_MOVES)
        check_count("burn_in", self.burn_in, 0, MOST_MOVES)
        check_share("ess", self.ess, 0.5)
        if self.n_stages is not None:
            check_count("n_stages", self.n_stages, 1, MOST_STAGES)
        # SMC checks that these two are compatible
        SMC(chain_length=self.chain_length, resample_below=self.resample_below)
        if real_number(self.renewal) != 1.0:
            check_share("renewal", self.renewal, 0.1)

    @property
    def annealer(self) -> SMC | AIS:
        """The sampler that runs the blocks."""
        if self.resampling is None:
            return AIS(
                n_stages=self.n_stages,
                ess=self.ess,
                islands=self.islands,
            )
        return SMC(
            islands=self.islands,
            chain_length=self.chain_length,
            ess=self.ess,
            resampling=self.resampling,
            resample_below=self.resample_below,
            n_stages=self.n_stages,
        )

    @property
    def n_seeds(self) -> int:
        """Number of seeds that determine an estimate of the likelihood."""
        return 1 if self.renewal == 1.0 else _RENEWED_SEEDS

    @property
    def likelihood_moves(self) -> PseudoMarginal:
        """The kernel that moves parameters and seeds."""
        return PseudoMarginal(n_steps=1 + self.burn_in, renewal=self.renewal)
