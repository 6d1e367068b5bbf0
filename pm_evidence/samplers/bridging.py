"""Bridge sampling from islands, with a density fitted to the other half of the islands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pm_evidence.core.contracts import HasPosterior, Path
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.progress import Report, silent
from pm_evidence.core.random import Phase, generator
from pm_evidence.core.records import BlockRecord, StageTrace
from pm_evidence.core.shape import learn_shape
from pm_evidence.samplers.proposal import Proposal, fit_proposal
from pm_evidence.samplers.survey import Survey, survey

__all__ = ["Bridging"]

Floats = NDArray[np.float64]
Runner = Callable[[Sequence[Any]], Sequence[Any]]

_NO_TRACE = StageTrace(*np.empty((4, 0)))
# Budget of the survey: this share of the evaluations so far, but at least this many gradients.
_SHARE_OF_COST, _LEAST_BUDGET = 0.1, 30_000
# Number of draws from the fitted density for each island: the number of its own draws, or this
# share of its evaluations if that is more, between these bounds. (A value costs about a third of a
# gradient.)
_SHARE_OF_ISLAND, _DRAWS = 0.1, (250, 4000)
# Largest number of coordinates of these draws, which bounds the memory in very many dimensions.
_MOST_COORDINATES = 400_000


@dataclass(frozen=True)
class _Bridge:
    """Draws from a fitted density, and the work between it and the target, for one island."""

    posterior: Any
    proposal: Proposal
    block: int
    draws: Floats
    n: int
    seed: int

    def __call__(self, report: Report = silent) -> tuple[Floats, Floats, Floats]:
        rng = generator(self.seed, Phase.BRIDGE, self.block)
        x = self.proposal.draw(self.n, rng)
        posterior = self.posterior
        log_proposal = self.proposal.log_density(x)
        log_target = posterior.log_density(x)
        forward = np.where(np.isfinite(log_target), log_proposal - log_target, np.inf)
        reverse = self.proposal.log_density(self.draws) - posterior.log_density(self.draws)
        return forward, reverse, x


def _one_by_one(tasks: Sequence[Any]) -> list[Any]:
    return [task() for task in tasks]


def _n_draws(block: BlockRecord) -> int:
    """Return the number of draws from the fitted density for the bridge of an island."""
    n, d = np.asarray(block.draws).shape
    affordable = min(int(_SHARE_OF_ISLAND * block.n_evaluations), _MOST_COORDINATES // d)
    return int(np.clip(max(n, affordable), *_DRAWS))


@dataclass
class Bridging:
    """Adds the work of the bridge to the islands of a run, round by round.

    One density is fitted to the islands of even index and another to those of odd index. Each is
    used for the islands of the other half, so that a fit is independent of the draws it is used on.

    Parameters
    ----------
    path : Path
        What was annealed.
    seed : int
        Seed of all streams.
    effort : float
        Share of the usual least budget of the survey.
    """

    path: Path
    seed: int
    effort: float = 1.0
    found: Survey | None = None
    n_evaluations: int = 0

    def extend(self, blocks: Sequence[BlockRecord], run: Runner) -> tuple[BlockRecord, ...]:
        """Return the islands with the work of the bridge, if a density can be fitted.

        Parameters
        ----------
        blocks : sequence of BlockRecord
            All islands; those of earlier rounds already have a bridge.
        run : callable
            Runs tasks and returns their results in order.
        """
        if not self.possible or any(block.draws is None for block in blocks):
            return tuple(blocks)
        with threadpool_limits(limits=1):
            proposals = self._proposals(self._posterior, blocks)
        new = [block for block in blocks if block.bridge is None]
        tasks = [
            _Bridge(
                self._posterior,
                proposals[1 - block.block % 2],
                block.block,
                np.asarray(block.draws),
                _n_draws(block),
                self.seed,
            )
            for block in new
        ]
        made = {
            block.block: replace(
                block,
                bridge=(forward, reverse),
                fit_draws=x,
                visited=None,
                n_evaluations=block.n_evaluations + len(x),
            )
            for block, (forward, reverse, x) in zip(new, run(tasks), strict=True)
        }
        return tuple(made.get(block.block, block) for block in blocks)

    @property
    def possible(self) -> bool:
        """Whether the target has a density in R^d, to which another can be fitted."""
        return self._posterior is not None

    @property
    def _posterior(self) -> Any:
        return self.path.posterior() if isinstance(self.path, HasPosterior) else None

    def facts(self) -> dict[str, Any]:
        """Return what the survey found, for the record of a run."""
        if self.found is None:
            return {}
        return {"n_peaks": self.found.n_peaks, "unbounded": self.found.unbounded}

    def check(self, draws: Floats, log_evidence: float) -> Floats:
        """Return the work of draws from a density fitted to weighted paths, to check the paths.

        Parameters
        ----------
        draws : ndarray, shape (n, d)
            Draws from the posterior, of equal weight.
        log_evidence : float
            Log evidence of the run, in nats.
        """
        blocks = [
            BlockRecord(i, np.array([-log_evidence]), _NO_TRACE, draws=part)
            for i, part in enumerate(np.array_split(draws, 2))
        ]
        works = [block.bridge for block in self.extend(blocks, _one_by_one)]
        return np.concatenate([work[0] for work in works if work is not None])

    def _proposals(self, posterior: Any, blocks: Sequence[BlockRecord]) -> list[Proposal]:
        """Return the densities fitted to the islands of even and of odd index."""
        n_blocks = len(blocks)
        draws = [np.asarray(block.draws) for block in blocks]
        log_evidence = log_mean_exp(-np.concatenate([block.work for block in blocks]))
        if self.found is None:
            self.found = Survey()
            if posterior.has_gradient:
                spent = sum(block.n_evaluations for block in blocks)
                budget = int(max(_SHARE_OF_COST * spent, self.effort * _LEAST_BUDGET))
                everyone = np.concatenate(draws)
                visited = [block.visited for block in blocks if block.visited is not None]
                rng = generator(self.seed, Phase.SURVEY, 0)
                self.found = survey(
                    posterior,
                    learn_shape(everyone),
                    everyone,
                    np.concatenate(visited) if visited else everyone,
                    log_evidence,
                    budget,
                    rng,
                )
                self.n_evaluations += self.found.n_evaluations
        found = self._with_known(self.found, log_evidence)
        proposals = []
        for half in (0, 1):
            mine = np.concatenate(
                [d for block, d in zip(blocks, draws, strict=True) if block.block % 2 == half]
            )
            rng = generator(self.seed, Phase.FIT, 2 * n_blocks + half)
            proposal, spent = fit_proposal(posterior, mine, found, log_evidence, rng)
            self.n_evaluations += spent
            proposals.append(proposal)
        return proposals

    def _with_known(self, found: Survey, log_evidence: float) -> Survey:
        """Return a survey's findings with the density that is known of the path."""
        known = getattr(self.path, "known", None)
        if known is None:
            return found
        log_mass = np.append(found.log_mass, log_evidence + known.log_weight)
        return replace(found, components=[*found.components, *known.components], log_mass=log_mass)
