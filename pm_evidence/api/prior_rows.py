"""The rows of a model under other priors, and the runs whose draws they are made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.api.priors import Variant
from pm_evidence.api.sample import sample_evidence
from pm_evidence.core.exceptions import ModelError, NumericalError, warn
from pm_evidence.core.random import Phase, generator
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.intervals import interval
from pm_evidence.estimators.reweighting import Reweighted, reweighted
from pm_evidence.estimators.standard_errors import Spread, combined
from pm_evidence.results import schema
from pm_evidence.results.observed import posterior_of
from pm_evidence.results.origins import origin_of
from pm_evidence.results.sensitivity import AS_WRITTEN, Row
from pm_evidence.results.stored import estimate_of
from pm_evidence.targets.model.changed_prior import data_of, shapes_of

__all__ = ["PriorRun", "Study", "seed_of"]

Floats = NDArray[np.float64]

# Draws from a prior by which the largest ratio to another one is found.
_PRIOR_DRAWS = 4000
_FEWEST_EFFECTIVE = 100.0
_TOO_LARGE = "The error is larger than that of a new run"
_NO_RATIO = (
    "Its draws cannot be reweighted: a potential belongs to the prior, or a transform that is not "
    "the usual one of its distribution cuts a prior. Leave out new_runs='never'."
)


def seed_of(seed: int, number: int) -> int:
    """Return the seed of a run of the study, from the seed of all."""
    return int(generator(seed, Phase.PRIORS, number).integers(2**63))


@dataclass(frozen=True)
class PriorRun:
    """A run whose draws can be reweighted.

    Parameters
    ----------
    variant : Variant or None
        The prior that it was made with; None for the model as it is written.
    evidence : LogEvidence
        Its estimate.
    draws : mapping of str to ndarray, shape (n_draws, ...)
        Posterior draws of the free variables.
    origin : ndarray of int64, shape (n_draws,)
        Source of each draw.
    potentials : str
        Whether potentials belong to the prior.
    """

    variant: Variant | None
    evidence: LogEvidence
    draws: Mapping[str, NDArray[Any]]
    origin: NDArray[np.int64]
    potentials: str

    @classmethod
    def of(cls, dt: xr.DataTree, model: Any, variant: Variant | None) -> "PriorRun":
        """Return a run; raise if it is not one of the model and its data."""
        evidence = estimate_of(dt, "result")
        draws = posterior_of(dt, data_of(model), "result")
        for name, shape in shapes_of(model).items():
            if name not in draws or draws[name].shape[2:] != shape:
                found = f"shape {draws[name].shape[2:]}" if name in draws else "none"
                raise ValueError(
                    f"result must hold draws of {name!r} of shape {shape}, got {found}: they "
                    "belong to another model. Pass what sample_evidence returned for this model."
                )
        potentials = str(dt[schema.LOG_EVIDENCE].attrs.get("potentials", "likelihood"))
        rows = {name: draws[name].reshape(-1, *draws[name].shape[2:]) for name in shapes_of(model)}
        return cls(variant, evidence, rows, origin_of(dt, "result"), potentials)

    @property
    def spread(self) -> Spread:
        """The error of the evidence."""
        return Spread(self.evidence.mcse, self.evidence.dof)


class Study:
    """The rows of one model, and the runs whose draws they are made from."""

    def __init__(
        self, base: PriorRun, model: Any, policy: str, options: Mapping[str, Any], seed: int
    ) -> None:
        self.base, self.model, self.policy = base, model, policy
        self.options, self.seed = options, seed
        self.target_mcse: float = options["target_mcse"]
        self.n_runs, self.interrupted = 1, False

    def rows(self, name: str, variants: Sequence[Variant]) -> list[Row]:
        """Return the rows of one variable: smaller factors, the prior as it is written, others."""
        own = self.base.evidence
        found = {AS_WRITTEN: Row(name, AS_WRITTEN, 1.0, own, 0.0, 0.0)}
        sources = [self.base]
        # draws under a wide prior may serve the narrower ones
        for variant in sorted(variants, key=lambda v: -np.nan_to_num(v.factor, nan=np.inf)):
            found[variant.prior] = self._row(variant, sources)
        if own.status != Status.OK:
            found = {prior: self._against_doubtful(row) for prior, row in found.items()}
        narrower = [v.prior for v in variants if v.factor < 1.0]
        others = [v.prior for v in variants if v.prior not in narrower]
        return [found[prior] for prior in (*narrower, AS_WRITTEN, *others)]

    def _against_doubtful(self, row: Row) -> Row:
        """Return a row whose Bayes factor is against a run that should not be relied on."""
        own = self.base.evidence
        if row.evidence.status != Status.OK:
            return row
        message = f"The Bayes factor is against the model as written, whose status is {own.status}."
        return replace(row, evidence=replace(row.evidence, status=own.status, message=message))

    def _row(self, variant: Variant, sources: list[PriorRun]) -> Row:
        """Return the evidence under one prior; a new run is added to the sources of draws."""
        if self.policy != "always" and self._has_ratio(variant):
            reach = self._largest(variant, sources)
            for run, largest in zip(sources, reach, strict=True):
                found = self._reweighted(variant, run, largest)
                doubt = self._doubt(found, run)
                if not doubt:
                    return self._row_of(variant, run, found)
                if self.policy == "never":
                    status = Status.MAX_DRAWS if doubt == _TOO_LARGE else Status.HEAVY_TAIL
                    message = f"{doubt}. Leave out new_runs='never'."
                    row = self._row_of(variant, run, found)
                    known = row.evidence.status == Status.OK
                    doubtful = replace(row.evidence, status=status, message=message)
                    return replace(row, evidence=doubtful) if known else row
        if self.policy == "never":
            return _missing(variant, Status.FAILED, _NO_RATIO)
        return self._sampled(variant, sources)

    def _has_ratio(self, variant: Variant) -> bool:
        return variant.changed.has_ratio and self.base.potentials == "likelihood"

    def _sampled(self, variant: Variant, sources: list[PriorRun]) -> Row:
        """Return the evidence of a new run."""
        if self.interrupted:
            return _missing(variant, Status.INTERRUPTED, "It was not run.")
        seed = seed_of(self.seed, self.n_runs)
        self.n_runs += 1
        try:
            dt = sample_evidence(variant.changed.changed, random_seed=seed, **self.options)
        except KeyboardInterrupt:
            self.interrupted = True
            warn("Ctrl-C ended the runs: the table has no values for some of the priors.")
            return _missing(variant, Status.INTERRUPTED, "Ctrl-C ended its run.")
        except (ModelError, NumericalError) as reason:
            warn(f"the run of {variant.variable!r}, {variant.prior!r} failed: {reason}")
            return _missing(variant, Status.FAILED, str(reason))
        run = PriorRun.of(dt, variant.changed.changed, variant)
        self.interrupted = run.evidence.status == Status.INTERRUPTED
        if run.evidence.status == Status.OK:
            sources.append(run)
        log_bf = run.evidence.value - self.base.evidence.value
        error = combined(run.spread, self.base.spread)
        return _row(variant, run.evidence, log_bf, error, "new run")

    def _log_priors(self, variant: Variant, run: PriorRun, draws: Any) -> tuple[Floats, Floats]:
        """Return the log priors of a variant and of a run at some draws."""
        new, written = variant.changed.log_priors(draws)
        return new, written if run.variant is None else run.variant.changed.log_priors(draws)[0]

    def _largest(self, variant: Variant, sources: Sequence[PriorRun]) -> list[float]:
        """Return the largest ratio of the prior of a variant to those of some runs."""
        draws = variant.changed.prior_draws(_PRIOR_DRAWS, seed_of(self.seed, 0))
        pairs = [self._log_priors(variant, run, draws) for run in sources]
        return [
            float(np.max(new - old, where=new > -np.inf, initial=-np.inf)) for new, old in pairs
        ]

    def _reweighted(self, variant: Variant, run: PriorRun, largest: float) -> Reweighted:
        new, old = self._log_priors(variant, run, run.draws)
        if not np.isfinite(old).all():
            row = int(np.argmin(np.isfinite(old)))
            raise ValueError(
                f"result must hold draws inside the support of the prior of {variant.variable!r}, "
                f"got draw {row} outside: it belongs to another model. Pass what sample_evidence "
                "returned for this model."
            )
        return reweighted(new - old, run.origin, largest)

    def _doubt(self, found: Reweighted, run: PriorRun) -> str:
        """Return why draws cannot be reweighted reliably; empty if they can."""
        if found.unseen == np.inf:
            return "The prior has support where the draws have none"
        if found.is_heavy:
            return f"The ratios of the priors have a heavy tail (Pareto k {found.pareto_k:.2f})"
        if found.ess < _FEWEST_EFFECTIVE:
            return f"Only {found.ess:.0f} draws are effective"
        if not found.mcse <= np.sqrt(2.0) * max(self.target_mcse, run.evidence.mcse):
            return _TOO_LARGE
        if found.unseen > 2.0 * self.target_mcse:
            return "Regions without draws may hold a part of the evidence under this prior"
        return ""

    def _row_of(self, variant: Variant, run: PriorRun, found: Reweighted) -> Row:
        """Return the row of reweighted draws."""
        of_ratio, own = Spread(found.mcse, found.dof), self.base.evidence
        value, error = run.evidence.value + found.log_bf, _bound(run.spread, of_ratio)
        lower, upper = interval(value, error)
        evidence = replace(
            run.evidence,
            value=value,
            mcse=error.mcse,
            dof=error.dof,
            lower=lower,
            upper=upper,
        )
        # against the run that was reweighted, its own error cancels
        error = of_ratio if run is self.base else combined(error, self.base.spread)
        row = _row(variant, evidence, value - own.value, error, "reweighted")
        return replace(row, pareto_k=found.pareto_k, ess=found.ess)


def _bound(first: Spread, second: Spread) -> Spread:
    """Return the largest error that a sum of two estimates can have, whatever their correlation."""
    return Spread(first.mcse + second.mcse, min(first.dof, second.dof))


def _row(variant: Variant, evidence: LogEvidence, log_bf: float, error: Spread, how: str) -> Row:
    return Row(
        variant.variable,
        variant.prior,
        variant.factor,
        evidence,
        log_bf,
        error.mcse,
        error.dof,
        how,
    )


def _missing(variant: Variant, status: Status, message: str) -> Row:
    """Return the row of a prior whose evidence is not known."""
    nan = float("nan")
    evidence = LogEvidence(nan, nan, "", status=status, message=message)
    return _row(variant, evidence, nan, Spread(nan, 1.0), "")
