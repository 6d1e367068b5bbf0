"""Importance and bridge sampling from draws: of islands, or of a posterior that the user has."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import described
from pm_evidence.core.contracts import HasPosterior, Path
from pm_evidence.core.interrupts import Report, silent
from pm_evidence.core.numerics import ess_share, log_mean_exp, normalised
from pm_evidence.core.random import Phase, generator
from pm_evidence.core.records import BlockRecord, StageTrace
from pm_evidence.core.resampling import resample
from pm_evidence.core.rows import one_blas_thread
from pm_evidence.core.shape import learn_shape
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.paths.geometric import Posterior
from pm_evidence.references.mixture import (
    Component,
    StudentFit,
    StudentMixture,
    fit_components,
    learn_stretch,
    learn_tails,
    widened,
)
from pm_evidence.samplers.peaks import Survey, cost_of_curves, with_curves
from pm_evidence.samplers.smc import SMC
from pm_evidence.samplers.survey import USUAL_BUDGET, survey

Floats = NDArray[np.float64]


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


Proposal = StudentFit | StudentMixture

# Numbers of components that are tried in turn, until the effective share of draws is good. The
# share is estimated from draws of the mixture and from this many draws of the population.
_COMPONENTS, _GOOD_SHARE, _JUDGES = (1, 4, 8), 0.6, 500
# In higher dimensions the covariances of several components cannot be learnt from a population.
# Below, each component needs this many draws per dimension; at most this many draws are used.
_MOST_DIMENSIONS, _DRAWS_PER_DIMENSION, _MOST_FIT_DRAWS = 60, 10, 3000
# Mixture weights are adapted in at most this many rounds of this many draws, in which one draw
# counts for no more than this many of average weight.
_ROUNDS, TRIAL_DRAWS, _LARGEST_WEIGHT = 3, 1000, 20.0
# Share of the weight that is spread evenly, so that no component is lost by chance, and that of
# each component with heavy or long tails, which bound the importance weights (Hesterberg 1995).
_EVEN, _WIDE = 0.02, 0.05


def fit_proposal(
    posterior: Posterior,
    draws: Floats,
    found: Survey,
    log_evidence: float,
    rng: np.random.Generator,
    n_trial: int = TRIAL_DRAWS,
) -> tuple[Proposal, int]:
    """Fit a density to a population and to the findings of a survey.

    Coordinates with heavy tails are stretched before the fit, see ``references.mixture``. The
    weights of the components are adapted by importance sampling to minimise the Kullback-Leibler
    divergence from the posterior (Douc, Guillin, Marin and Robert 2007).
    """
    n, d = draws.shape
    stretch = learn_stretch(draws)
    whole = StudentFit.to(draws, stretch)
    if d > _MOST_DIMENSIONS and not found.components:
        return whole, 0
    kept: list[Component] = [widened(whole)]
    tails = learn_tails(draws)
    if tails is not None:
        kept.append(StudentFit.to(draws, tails))
    judges = draws[rng.permutation(n)[:_JUDGES]]
    at_judges = posterior.log_density(judges)
    best, best_share, spent = None, -1.0, len(judges)
    for k in _COMPONENTS:
        parts: list[Component] = [whole]
        if k > 1:
            if d > _MOST_DIMENSIONS or n < _DRAWS_PER_DIMENSION * k * d:
                break
            some = draws[rng.permutation(n)[:_MOST_FIT_DRAWS]]
            parts = [*fit_components(some, k, rng, stretch)]
        log_mass = np.concatenate(
            [
                np.full(len(kept), log_evidence + np.log(_WIDE)),
                np.full(k, log_evidence - np.log(k)),
                found.log_mass,
            ]
        )
        fitted = found.relabelled([*kept, *parts])
        mixture = StudentMixture.of([*fitted, *found.components], log_mass)
        mixture, share, value, used = _adapted(posterior, mixture, len(kept), n_trial, rng)
        # the share estimated from posterior draws, which shows regions that the mixture misses
        log_weight = at_judges - mixture.log_density(judges)
        share = min(share, float(np.exp(min(value - log_mean_exp(log_weight), 0.0))))
        spent += used
        if share > best_share:
            best, best_share = mixture, share
        if best_share > _GOOD_SHARE:
            break
    assert best is not None
    return best, spent


def _adapted(
    posterior: Posterior,
    mixture: StudentMixture,
    n_kept: int,
    n_draws: int,
    rng: np.random.Generator,
) -> tuple[StudentMixture, float, float, int]:
    """Return the mixture with adapted weights, results of its last draws, and the number of draws.

    The results are the effective share and the estimated log evidence. The first components, which
    are wide or have long tails, keep a minimal weight.
    """
    share, value, spent = 0.0, -np.inf, 0
    for _ in range(_ROUNDS):
        x = mixture.draw(n_draws, rng)
        spent += n_draws
        log_parts = mixture.log_parts(x)
        log_density = np.logaddexp.reduce(log_parts, axis=0)
        log_weight = posterior.log_density(x) - log_density
        share, value = float(ess_share(log_weight)), log_mean_exp(log_weight)
        if share == 0.0:
            break
        weight = np.exp(log_weight - log_weight.max())
        weight = np.minimum(weight / weight.sum(), _LARGEST_WEIGHT / n_draws)
        of_component = np.exp(log_parts - log_density) @ (weight / weight.sum())
        even = _EVEN / len(of_component)
        of_component = (1.0 - _EVEN) * of_component + even
        of_component[:n_kept] = np.maximum(of_component[:n_kept], _WIDE)
        mixture = mixture.reweighted(of_component)
        if share > _GOOD_SHARE:
            break
    return mixture, share, value, spent


Runner = Callable[[Sequence[Any]], Sequence[Any]]
Remembered = Callable[[str, Callable[[], Any]], Any]

_NO_TRACE = StageTrace(*np.empty((4, 0)))
# Budget of the survey: this share of the evaluations so far, but at least the usual one.
_SHARE_OF_COST = 0.1
# Number of draws from the fitted density for each island: the number of its own draws, or this
# share of its evaluations if that is more, between these bounds. (A value costs about a third of a
# gradient.)
_SHARE_OF_ISLAND, _LEAST_DRAWS, _MOST_DRAWS = 0.1, 250, 4000
# Third derivatives at the peaks are a part of the survey if they cost at most this share of it.
_SHARE_OF_CURVES = 0.1
# Largest number of coordinates of these draws, which bounds the memory in very many dimensions.
_MOST_COORDINATES = 400_000


@dataclass(frozen=True)
class Costs:
    """What a bridge may cost."""

    survey: float = USUAL_BUDGET  # least budget of the survey, in gradients
    # Its budget as a share of the evaluations so far, if that is more
    share: float = _SHARE_OF_COST
    trial: int = TRIAL_DRAWS  # draws in each round of fitting a density
    draws: int = _LEAST_DRAWS  # least number of draws from the fitted density for each island
    most: int = _MOST_DRAWS  # largest number of these

    @classmethod
    def of(cls, effort: float) -> "Costs":
        """Return the costs of a run that begins with a share of the usual effort."""
        return cls(survey=effort * USUAL_BUDGET)


@dataclass(frozen=True)
class _Bridge:
    """Draws from a fitted density, and the work between it and the target, for one island."""

    posterior: Any
    proposal: Proposal
    block: BlockRecord
    n: int
    seed: int
    stream: int

    def __call__(self, report: Report = silent) -> dict[str, Any]:
        """Return what the island gains."""
        block, posterior = self.block, self.posterior
        rng = generator(self.seed, Phase.BRIDGE, self.stream, block.block)
        x = self.proposal.draw(self.n, rng)
        log_proposal = self.proposal.log_density(x)
        log_target = posterior.log_density(x)
        forward = np.where(np.isfinite(log_target), log_proposal - log_target, np.inf)
        draws, known, spent = np.asarray(block.draws), block.log_density, len(x)
        if known is None:
            known, spent = posterior.log_density(draws), spent + len(draws)
        return {
            "bridge": (forward, self.proposal.log_density(draws) - known),
            "fit_draws": x,
            "fit_log_density": log_target,
            "n_evaluations": block.n_evaluations + spent,
        }


def _computed(name: str, compute: Callable[[], Any]) -> Any:
    return compute()


def _works(block: BlockRecord) -> tuple[Floats, Floats]:
    """Return the work at the draws from the fitted density, and at the draws of an island."""
    assert block.bridge is not None
    return block.bridge


def _resampled(block: BlockRecord, rng: np.random.Generator) -> BlockRecord:
    """Return an island whose draws are joined by those from the fitted density, resampled."""
    log_weight = -_works(block)[0]
    if not np.isfinite(log_weight.max()):
        return block
    n = int(ess_share(log_weight) * len(log_weight)) + 1
    chosen = resample(normalised(log_weight), n, rng, "systematic")
    draws = np.concatenate([np.asarray(block.draws), np.asarray(block.fit_draws)[chosen]])
    return replace(block, draws=draws, log_density=None)


@dataclass
class Bridging:
    """Adds the work of the bridge to the islands of a run, round by round.

    One density is fitted to the islands of even index and another to those of odd index. Each is
    used for the islands of the other half, so that a fit is independent of the draws it is used on.
    """

    path: Path  # what was annealed
    seed: int  # seed of all streams
    costs: Costs = Costs()  # what it may cost
    # Called with a name and a function; returns what this returns, or once returned for the same
    # run
    remembered: Remembered = _computed
    # An approximation of the posterior. If it is complete, nothing else is searched for.
    approximation: Survey | None = None
    found: Survey | None = None
    proposals: Sequence[Proposal] = ()
    n_evaluations: int = 0
    _used: int = 0

    def extend(self, blocks: Sequence[BlockRecord], run: Runner) -> tuple[BlockRecord, ...]:
        """Return the islands with the work of the bridge, if a density can be fitted."""
        if self.posterior is None or any(block.draws is None for block in blocks):
            return tuple(blocks)
        with one_blas_thread():
            self._fit(blocks)
        searched = self.n_evaluations / len(blocks)
        new = [self._n_draws(block, searched) for block in blocks if block.bridge is None]
        return self._bridged(blocks, new, run)

    def refitted(
        self, blocks: Sequence[BlockRecord], growth: float, run: Runner
    ) -> tuple[BlockRecord, ...]:
        """Return islands with new bridges, from densities fitted to the present draws.

        The first time, third derivatives at the peaks join what is known of the posterior.
        """
        rng = generator(self.seed, Phase.FIT, self._stream())
        with one_blas_thread():
            if self.found is not None and not self.found.curved:
                before = self.found
                self.found = self.remembered("curves", partial(with_curves, self.posterior, before))
                self.n_evaluations += self.found.n_evaluations - before.n_evaluations
            joined = [_resampled(block, rng) for block in blocks]
            self._fit(joined, self.proposals)
        bare = [
            replace(block, bridge=None, fit_draws=None, fit_log_density=None) for block in blocks
        ]
        most = _MOST_COORDINATES // np.asarray(blocks[0].fit_draws).shape[1]
        present = [len(_works(block)[0]) for block in blocks]
        sizes = [min(int(growth * n), max(n, most)) for n in present]
        return self._bridged(bare, sizes, run)

    def drawn_further(
        self, blocks: Sequence[BlockRecord], n: int, run: Runner
    ) -> tuple[BlockRecord, ...]:
        """Return islands with ``n`` further draws each from the densities that were fitted last."""
        bare = [
            replace(block, draws=np.asarray(block.draws)[:0], log_density=None, bridge=None)
            for block in blocks
        ]
        further = self._bridged(bare, [n] * len(bare), run)
        return tuple(
            replace(
                block,
                bridge=(np.append(_works(block)[0], _works(more)[0]), _works(block)[1]),
                fit_draws=np.concatenate([np.asarray(b.fit_draws) for b in (block, more)]),
                fit_log_density=np.concatenate(
                    [np.asarray(b.fit_log_density) for b in (block, more)]
                ),
                n_evaluations=more.n_evaluations,
            )
            for block, more in zip(blocks, further, strict=True)
        )

    def _bridged(
        self, blocks: Sequence[BlockRecord], n_draws: Sequence[int], run: Runner
    ) -> tuple[BlockRecord, ...]:
        """Return islands that all have a bridge; ``n_draws`` are those of the ones without."""
        stream = self._stream()
        new = [replace(block, visited=None) for block in blocks if block.bridge is None]
        tasks = [
            _Bridge(
                self.posterior,
                self.proposals[1 - block.block % 2],
                replace(block, tempered=None),  # workers do not need the chains
                n,
                self.seed,
                stream,
            )
            for block, n in zip(new, n_draws, strict=True)
        ]
        found = zip(new, run(tasks), strict=True)
        made = {block.block: replace(block, **gained) for block, gained in found}
        return tuple(made.get(block.block, block) for block in blocks)

    def _stream(self) -> int:
        """Return an index that no other random numbers of this phase have."""
        self._used += 1
        return self._used

    def _n_draws(self, block: BlockRecord, searched: float) -> int:
        """Return the number of draws from the fitted density for the bridge of an island.

        ``searched`` is what the survey and the fit have cost for each island.
        """
        n, d = np.asarray(block.draws).shape
        affordable = int(_SHARE_OF_ISLAND * (block.n_evaluations + searched))
        affordable = min(affordable, _MOST_COORDINATES // d)
        return int(np.clip(max(n, affordable), self.costs.draws, self.costs.most))

    @cached_property
    def posterior(self) -> Any:
        """The density of the target in R^d, to which another can be fitted; None without one."""
        return self.path.posterior() if isinstance(self.path, HasPosterior) else None

    @property
    def is_complete(self) -> bool:
        """Whether an approximation of the whole posterior is known without a fit to draws."""
        return self.found is not None and self.found.complete

    def facts(self) -> dict[str, Any]:
        """Return what the survey found, for the record of a run."""
        if self.found is None:
            return {}
        found, relabelling = self.found, self.found.relabelling
        facts = {name: getattr(found, name) for name in ("n_peaks", "unbounded", "more_peaks")}
        return facts | {"relabelled": relabelling and ", ".join(relabelling.names)}

    def check(self, draws: Floats, log_evidence: float, run: Runner) -> Floats:
        """Return the work of draws from a density fitted to weighted paths, to check the paths."""
        blocks = [
            BlockRecord(i, np.array([-log_evidence]), _NO_TRACE, draws=part)
            for i, part in enumerate(np.array_split(draws, 2))
        ]
        works = [block.bridge for block in self.extend(blocks, run)]
        return np.concatenate([work[0] for work in works if work is not None])

    def _fit(self, blocks: Sequence[BlockRecord], before: Sequence[Proposal] = ()) -> None:
        """Fit a density to the islands of even index, and one to those of odd index.

        ``before`` are the densities whose components may be a part of them.
        """
        stream = self._stream()
        draws = [np.asarray(block.draws) for block in blocks]
        log_evidence = log_mean_exp(-np.concatenate([block.work for block in blocks]))
        if self.found is None:
            self.found = self._searched(blocks, log_evidence)
        if self.is_complete and not before:
            self.proposals = (StudentMixture.of(self.found.components, self.found.log_mass),) * 2
            return
        found, on_path = self.found, getattr(self.path, "known", None)
        if on_path is not None:
            found = _with_components(found, on_path, log_evidence)
        proposals = []
        for half in (0, 1):
            mine = np.concatenate(
                [d for block, d in zip(blocks, draws, strict=True) if block.block % 2 == half]
            )
            mine = self.found.aligned(mine)
            rng = generator(self.seed, Phase.FIT, stream, half)
            known = _with_components(found, before[half], log_evidence) if before else found
            fit = partial(
                fit_proposal, self.posterior, mine, known, log_evidence, rng, self.costs.trial
            )
            proposal, spent = self.remembered("fit", fit)
            self.n_evaluations += spent
            proposals.append(proposal)
        self.proposals = proposals

    def _searched(self, blocks: Sequence[BlockRecord], log_evidence: float) -> Survey:
        """Return what is known of the posterior in addition to the islands."""
        known = self.approximation
        if known is not None and known.complete:
            return known
        if not self.posterior.has_gradient:
            return Survey()

        def search() -> Survey:
            spent = sum(block.n_evaluations for block in blocks)
            everyone = np.concatenate([np.asarray(block.draws) for block in blocks])
            visited = [block.visited for block in blocks if block.visited is not None]
            found = survey(
                self.posterior,
                learn_shape(everyone),
                everyone,
                np.concatenate(visited) if visited else everyone,
                log_evidence,
                int(max(self.costs.share * spent, self.costs.survey)),
                generator(self.seed, Phase.SURVEY, 0),
            )
            few = cost_of_curves(found) < _SHARE_OF_CURVES * found.n_evaluations
            return with_curves(self.posterior, found) if few else found

        found: Survey = self.remembered("survey", search)
        self.n_evaluations += found.n_evaluations
        return found if known is None else found.joined_by(known)


def _with_components(found: Survey, density: Proposal, log_evidence: float) -> Survey:
    """Return a survey's findings with the components of a density."""
    mixture = density if isinstance(density, StudentMixture) else None
    parts = mixture.components if mixture else (density,)
    log_weight = mixture.log_weight if mixture else np.zeros(1)
    own = [i for i, each in enumerate(found.components) if all(each is not part for part in parts)]
    components = [*(found.components[i] for i in own), *parts]
    log_mass = np.append(found.log_mass[own], log_evidence + log_weight)
    return replace(found, components=components, log_mass=log_mass)
