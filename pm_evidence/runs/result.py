"""From the record of a run to a DataTree in ArviZ's schema."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import ess_share, normalised
from pm_evidence.core.random import Phase, generator
from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord
from pm_evidence.core.resampling import resample
from pm_evidence.core.version import VERSION
from pm_evidence.families.native import is_native
from pm_evidence.results import schema
from pm_evidence.results.datatree import to_datatree
from pm_evidence.results.stored import fingerprint
from pm_evidence.runs.rounds import Found, Run
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.targets.plates.target import PlateTarget

Floats = NDArray[np.float64]
_POINTWISE = ("log_likelihood", "log_prior")
# Weighted draws give about as many posterior draws as they are worth, within these bounds.
_WEIGHTED_DRAWS = (400, 4000)
# Chains of a result, as `pm.sample` makes on most machines: islands are put into as many, because
# a plot has a line for each. ``origin`` keeps them apart.
_CHAINS = 4
# Largest number of numbers in the posterior draws: more of them are thinned.
_MOST_NUMBERS = 50_000_000


@dataclass(frozen=True)
class PosteriorDraws:
    """Posterior draws of equal weight, and where they come from."""

    draws: Floats  # shape (n_chains, n_draws, ...): in the target's own coordinates
    # shape (n_chains, n_draws): index of the island, of the path, or of the draw from the fitted
    # density that each draw comes from. Draws of different origin are independent.
    origin: NDArray[np.int64]
    drawn_from: str  # ``"islands"``, ``"paths"``, ``"ladders"`` or ``"importance"``
    # shape (n_chains, n_draws): log density of the posterior at the draws in nats, if it is known
    log_density: Floats | None = None

    def thinned(self, size: int) -> "PosteriorDraws":
        """Return draws at equal distances, as many as fit into memory if each has ``size`` numbers.

        With 100,000 local variables, 2,000 draws would take 1.6 GB.
        """
        n_chains, n = self.origin.shape
        kept = max(_MOST_NUMBERS // (size * n_chains), 1)
        if n <= kept:
            return self
        rows = np.arange(kept) * n // kept
        known = None if self.log_density is None else self.log_density[:, rows]
        return replace(
            self, draws=self.draws[:, rows], origin=self.origin[:, rows], log_density=known
        )


def result_of(
    run: Run,
    found: Found,
    drawn: PosteriorDraws | None,
    potentials: str = "likelihood",
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Return the DataTree of a run."""
    target, record = found.target, found.record
    posterior: dict[str, NDArray[Any]] = {}
    sample_stats: dict[str, NDArray[Any]] = {}
    attrs: dict[str, Any] = {}
    if record.facts.sampling_time is not None:
        attrs["sampling_time"] = record.facts.sampling_time
    if drawn is not None:
        local = getattr(target, "every", None)  # variables that were integrated are drawn, too
        drawn = drawn.thinned(drawn.draws[0, 0].size if local is None else local.size)
        shape = drawn.origin.shape
        flat = drawn.draws.reshape(drawn.origin.size, *drawn.draws.shape[2:])
        if drawn.log_density is not None and isinstance(target, PyMCTarget):
            statistics = target.sample_stats(flat, drawn.log_density.ravel())
        else:
            statistics = target.sample_stats(flat)
            record = record.stating(n_evaluations=record.facts.n_evaluations + len(flat))
        posterior, sample_stats = (
            {name: value.reshape(*shape, *value.shape[1:]) for name, value in values.items()}
            for values in (target.posterior(flat), statistics)
        )
        sample_stats[schema.DRAW_ORIGIN] = drawn.origin
        attrs[schema.DRAWN_FROM] = drawn.drawn_from
    if not is_native(target):
        compiled_for = getattr(target, "compiled_for", lambda: {"backend": "numba"})
        record = record.stating(reference=record.facts.reference or "prior", **compiled_for())
    observed = target.observed_data()
    coords, dims = target.coords_and_dims()
    dt = to_datatree(
        record.stating(potentials=potentials),
        found.evidence,
        recommended=found.best.estimator,
        posterior=posterior,
        sample_stats=sample_stats,
        observed_data=observed,
        constant_data=target.constant_data(),
        coords={**coords, **options.get("coords", {})},
        dims={**dims, **options.get("dims", {})},
        fingerprint=fingerprint(observed),
        random_seed=run.seed,
        versions={"pm_evidence": VERSION} | _versions(),
        sample_attrs=attrs,
    )
    groups = [name for name in _POINTWISE if options.get(name)]
    if posterior and groups:
        target.add_log_densities(dt, groups)
    return dt


@cache
def _versions() -> dict[str, str]:
    """Return versions of the libraries; finding them takes as long as a small run."""
    return {name: version(name) for name in ("pymc", "pytensor", "numba")}


def check_groups(target: Any, options: dict[str, Any]) -> None:
    """Raise ValueError if the user asks for pointwise densities that PyMC cannot evaluate."""
    asked = [name for name in _POINTWISE if options.get(name)]
    if asked and not callable(getattr(target, "add_log_densities", None)):
        raise ValueError(
            f"idata_kwargs must not ask for {' or '.join(asked)} here, as PyMC cannot evaluate "
            "it: the likelihood is estimated, or the target is no pymc.Model. Leave it out."
        )


def posterior_draws(
    run: Run, record: RunRecord, evidence: Sequence[LogEvidence] = ()
) -> PosteriorDraws | None:
    """Return posterior draws of equal weight, or None if the run has no draws.

    Draws of islands are resampled by the weights of the islands. If the estimates show that the
    islands hold modes in wrong proportions but importance sampling is reliable, or if the run ended
    with draws from a fitted density, these are resampled by their importance weights instead.
    """
    blocks = [block for block in record.sources if block.draws is not None]
    if not blocks or record.of(Role.GIVEN):  # the user has draws already
        return None
    if record.tempered:
        n_chains = min(run.sampler.islands, _CHAINS)
        return _drawn_by_ladder(blocks, int(record.facts.ladders or 1), n_chains)
    if blocks[0].log_weight is None:
        fitted, found = fitted_and_drawn(run, record, evidence)
        if not fitted:
            return _in_chains(*found, "islands", min(_CHAINS, len(blocks)))
        chains = _in_chains(*found, "importance", _CHAINS)
        known = [block.fit_log_density for block in fitted if block.fit_log_density is not None]
        if len(known) < len(fitted):
            return chains
        return replace(chains, log_density=np.concatenate(known)[chains.origin])
    parts = [np.asarray(block.draws) for block in blocks]
    log_weight = np.concatenate([b.log_weight for b in blocks if b.log_weight is not None])
    if not np.isfinite(log_weight.max()):
        return None
    rng = generator(run.seed, Phase.RESULT)
    chosen = resample(normalised(log_weight), run.size, rng, "systematic")
    origin = rng.permutation(chosen)
    return PosteriorDraws(np.concatenate(parts)[origin][None], origin[None], "paths")


def fitted_and_drawn(
    run: Run,
    record: RunRecord,
    evidence: Sequence[LogEvidence],
    bounds: tuple[int, int] = _WEIGHTED_DRAWS,
) -> tuple[list[BlockRecord], tuple[Floats, NDArray[np.int64]]]:
    """Return the blocks whose fitted densities are drawn from, and draws of equal weight.

    Draws from fitted densities are resampled by their importance weights; their number is what the
    weights are worth, within ``bounds``. Without such blocks, these are the draws of islands.
    Beside each draw is its origin.
    """
    blocks = [block for block in record.sources if block.draws is not None]
    rng = generator(run.seed, Phase.RESULT)
    fitted = [block for block in blocks if block.fit_draws is not None]
    status = {estimate.estimator: estimate.status for estimate in evidence}
    # importance sampling is reliable, and the draws of the islands are not
    islands_are_wrong = status.get("importance") == "ok" and status.get("bridge") != "ok"
    if fitted and (record.facts.route == "importance" or islands_are_wrong):
        x = np.concatenate([np.asarray(block.fit_draws) for block in fitted])
        log_weight = -np.concatenate([block.bridge[0] for block in fitted if block.bridge])
        n = int(np.clip(len(x) * ess_share(log_weight), *bounds))  # what the weights are worth
        chosen = resample(normalised(log_weight), min(n, len(x)), rng, "systematic")
        origin = rng.permutation(chosen)
        return fitted, (x[origin], origin)
    return [], _drawn_by_island(blocks, rng)


def _drawn_by_ladder(
    blocks: Sequence[BlockRecord], n_ladders: int, n_chains: int
) -> PosteriorDraws | None:
    """Return the states of tempered chains at the target.

    Ladders of later rounds continue the chains of those before. Chains are as long as the shortest:
    draws are taken at equal distances from longer ones.
    """
    first = np.cumsum([0, *(block.tempered.ladder.max() + 1 for block in blocks if block.tempered)])
    draws = np.concatenate([np.asarray(block.draws) for block in blocks])
    origin = np.concatenate(
        [np.asarray(block.origin) + at for block, at in zip(blocks, first[:-1], strict=True)]
    )
    chain = origin % n_ladders * n_chains // n_ladders
    members = [np.flatnonzero(chain == c) for c in range(n_chains)]
    length = min(map(len, members))
    if not length:
        return None
    kept = np.array([each[np.arange(length) * len(each) // length] for each in members])
    return PosteriorDraws(draws[kept], origin[kept], "ladders")


def _drawn_by_island(
    blocks: Sequence[BlockRecord], rng: np.random.Generator
) -> tuple[Floats, NDArray[np.int64]]:
    """Return the draws of islands, resampled by the evidence of each island.

    Log weights are shrunk by the share of their variance that the islands themselves report:
    differences of evidence that are only noise do not concern the draws (James and Stein 1961).
    """
    parts = [np.asarray(block.draws) for block in blocks]
    length = min(len(part) for part in parts)
    # islands of a later round may be larger: draws are taken at equal distances
    parts = [part[np.arange(length) * len(part) // length] for part in parts]
    draws = np.concatenate(parts)
    origin = np.repeat(np.array([block.block for block in blocks], np.int64), length)
    log_z = -np.concatenate([block.work for block in blocks])
    between = float(log_z.var(ddof=1)) if len(blocks) > 1 else 0.0
    within = float(np.mean([block.relative_variance for block in blocks]))
    if not between > within:  # also if the islands report no variance (NaN)
        return draws, origin
    log_weight = (1.0 - within / between) * (log_z - log_z.max())
    weight = normalised(np.repeat(log_weight, length))
    chosen = resample(weight, len(weight), rng, "systematic")
    return draws[chosen], origin[chosen]


def _in_chains(
    draws: Floats, origin: NDArray[np.int64], drawn_from: str, n_chains: int
) -> PosteriorDraws:
    """Return draws as chains of equal length."""
    length = len(draws) // n_chains
    n = n_chains * length
    return PosteriorDraws(
        draws[:n].reshape(n_chains, length, *draws.shape[1:]),
        origin[:n].reshape(n_chains, length),
        drawn_from,
    )


# Posterior draws at which finer nodes are tried.
_CHECKED = 8
# Posterior draws of a model whose variables are all integrated.
_DRAWS = 500


def without_globals(target: Any) -> PosteriorDraws | None:
    """Return draws of no coordinates, beside which all variables of a model are drawn, or None."""
    if not isinstance(target, PlateTarget) or target.n_dim:
        return None
    origin = np.arange(_CHAINS * _DRAWS).reshape(_CHAINS, _DRAWS)
    return PosteriorDraws(np.empty((_CHAINS, _DRAWS, 0)), origin, "integrals")


def with_integration_error(found: Found, drawn: PosteriorDraws | None) -> Found:
    """Return what was found with the error of the integrals over local variables."""
    target = found.target
    if not isinstance(target, PlateTarget) or drawn is None:
        return found
    x = drawn.draws.reshape(drawn.origin.size, target.n_dim)
    x = x if target.n_dim else x[:1]
    chosen = x[np.unique(np.linspace(0, len(x) - 1, _CHECKED).astype(np.int64))]
    return found.stating(integration_error=target.integration_error(chosen))
