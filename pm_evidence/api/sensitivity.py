"""The evidence under other priors: by reweighting posterior draws, or by new runs.

What is asked for is checked first. Each model needs the draws of one run; the rows of the table are
made from these where the weights allow it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from math import isnan, nan
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.api.arguments import TARGET_MCSE, check_target
from pm_evidence.api.sample import passed_on, sample_evidence
from pm_evidence.core.checks import check_choice, check_flag, described, real_number
from pm_evidence.core.exceptions import ModelError, NumericalError, usual_floats, warn
from pm_evidence.core.random import Phase, generator, resolve_seed
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.draws import Reweighted, reweighted
from pm_evidence.estimators.errors import Spread, combined, interval
from pm_evidence.results import schema
from pm_evidence.results.elpd import origin_of
from pm_evidence.results.stored import estimate_of, posterior_of
from pm_evidence.results.table import AS_WRITTEN, Row, SensitivityTable, sensitivity_table
from pm_evidence.targets.model.cache import is_model
from pm_evidence.targets.model.derived import (
    ChangedPrior,
    changed_prior,
    data_of,
    free_variable,
    shapes_of,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Variant:
    """A model with another prior of one variable."""

    variable: str  # the variable, and the name of its prior
    prior: str
    factor: float  # what its spread is multiplied by; NaN for another distribution
    changed: ChangedPrior  # the model


def variants_of(model: Any, priors: Any) -> dict[str, list[Variant]]:
    """Return the models with other priors, by variable; factors rise, and none of them is 1."""
    if not isinstance(priors, Mapping):
        raise TypeError(
            f"priors must be a mapping of variables to factors or distributions, got "
            f'{described(priors)}; pass for example {{"tau": [0.5, 2]}}.'
        )
    if not priors:
        raise ValueError(
            'priors must name at least one variable, got none; pass for example {"tau": [0.5, 2]}.'
        )
    for name in priors:
        free_variable(model, "priors", name)
    return {name: _of_variable(model, name, asked) for name, asked in priors.items()}


def _of_variable(model: Any, name: str, asked: Any) -> list[Variant]:
    """Return the variants of one variable: factors in rising order, then distributions."""
    changes = _named(name, asked)
    factors = {label: _factor(name, label, change) for label, change in changes.items()}
    return [
        Variant(
            name,
            label,
            factors[label],
            changed_prior(model, name, change if isnan(factors[label]) else factors[label]),
        )
        for label, change in sorted(
            changes.items(), key=lambda each: np.nan_to_num(factors[each[0]], nan=np.inf)
        )
        if factors[label] != 1.0
    ]


def _named(name: str, asked: Any) -> dict[str, Any]:
    """Return factors and distributions by their names in the table."""
    if isinstance(asked, Mapping):
        wrong = [label for label in asked if not isinstance(label, str)]
        if wrong:
            raise TypeError(
                f"priors[{name!r}] must have names as keys, got {described(wrong[0])}; pass for "
                'example {"wide": 2}.'
            )
        changes = dict(asked)
    elif isinstance(asked, np.ndarray) or (
        isinstance(asked, Sequence) and not isinstance(asked, str | bytes)
    ):
        changes = {_label(name, factor): factor for factor in asked}
    elif real_number(asked) is not None:
        changes = {_label(name, asked): asked}
    else:
        raise TypeError(
            f"priors[{name!r}] must be a list of factors or a mapping of names to distributions, "
            f"got {described(asked)}; pass for example [0.5, 2] or "
            '{"wide": pm.HalfCauchy.dist(5)}.'
        )
    if not changes:
        raise ValueError(f"priors[{name!r}] must hold at least one prior, got none; pass [0.5, 2].")
    return changes


def _label(name: str, factor: Any) -> str:
    number = real_number(factor)
    if number is None:
        raise TypeError(
            f"priors[{name!r}] must be a list of factors, got {described(factor)} in it; give "
            'distributions names, for example {"wide": pm.HalfCauchy.dist(5)}.'
        )
    return f"\N{MULTIPLICATION SIGN} {number:.6g}"


def _factor(name: str, label: str, change: Any) -> float:
    """Return a factor; NaN for what may be a distribution."""
    number = real_number(change)
    if number is None:
        return nan
    if not 0.0 < number < np.inf:
        raise ValueError(
            f"priors[{name!r}] must hold factors above 0, got {described(change)} as {label!r}; "
            "pass for example 0.5 for half the spread."
        )
    return number


def sample_options(parameter: str, given: Any) -> dict[str, Any]:
    """Return arguments that are passed on to `sample_evidence`."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(
            f"{parameter} must be a dict of arguments of sample_evidence, got {described(given)}; "
            'pass for example {"cores": 2}.'
        )
    for name in given or {}:
        if name not in passed_on():
            own = name in signature(sample_evidence).parameters
            raise ValueError(
                f"{parameter} must hold only {', '.join(passed_on())}, got {described(name)}; "
                f"{'pass it directly' if own else 'leave it out'}."
            )
    return dict(given or {})


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
    """A run whose draws can be reweighted."""

    variant: Variant | None  # the prior that it was made with; None for the model as it is written
    evidence: LogEvidence  # its estimate
    draws: Mapping[str, NDArray[Any]]  # shape (n_draws, ...): posterior draws of the free variables
    origin: NDArray[np.int64]  # shape (n_draws,): source of each draw
    potentials: str  # whether potentials belong to the prior

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
            said = f"The Bayes factor is against the model as written, whose status is {own.status}"
            found = {key: _doubted(row, own.status, f"{said}.") for key, row in found.items()}
        narrower = [v.prior for v in variants if v.factor < 1.0]
        others = [v.prior for v in variants if v.prior not in narrower]
        return [found[prior] for prior in (*narrower, AS_WRITTEN, *others)]

    def _row(self, variant: Variant, sources: list[PriorRun]) -> Row:
        """Return the evidence under one prior; a new run is added to the sources of draws."""
        has_ratio = variant.changed.has_ratio and self.base.potentials == "likelihood"
        if self.policy != "always" and has_ratio:
            reach = self._largest(variant, sources)
            for run, largest in zip(sources, reach, strict=True):
                found = self._reweighted(variant, run, largest)
                doubt = self._doubt(found, run)
                if not doubt:
                    return self._row_of(variant, run, found)
                if self.policy == "never":
                    status = Status.MAX_DRAWS if doubt == _TOO_LARGE else Status.HEAVY_TAIL
                    message = f"{doubt}. Leave out new_runs='never'."
                    return _doubted(self._row_of(variant, run, found), status, message)
        if self.policy == "never":
            return _missing(variant, Status.FAILED, _NO_RATIO)
        return self._sampled(variant, sources)

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
        evidence = replace(run.evidence, value=value, mcse=error.mcse, dof=error.dof)
        evidence = replace(evidence, lower=lower, upper=upper)
        # against the run that was reweighted, its own error cancels
        error = of_ratio if run is self.base else combined(error, self.base.spread)
        row = _row(variant, evidence, value - own.value, error, "reweighted")
        return replace(row, pareto_k=found.pareto_k, ess=found.ess)


def _doubted(row: Row, status: str, message: str) -> Row:
    """Return a row that should not be relied on, if its evidence is ok."""
    if row.evidence.status != Status.OK:
        return row
    return replace(row, evidence=replace(row.evidence, status=status, message=message))


def _bound(first: Spread, second: Spread) -> Spread:
    """Return the largest error that a sum of two estimates can have, whatever their correlation."""
    return Spread(first.mcse + second.mcse, min(first.dof, second.dof))


def _row(variant: Variant, evidence: LogEvidence, log_bf: float, error: Spread, how: str) -> Row:
    prior = variant.variable, variant.prior, variant.factor
    return Row(*prior, evidence, log_bf, error.mcse, error.dof, how)


def _missing(variant: Variant, status: Status, message: str) -> Row:
    """Return the row of a prior whose evidence is not known."""
    evidence = LogEvidence(nan, nan, "", status=status, message=message)
    return _row(variant, evidence, nan, Spread(nan, 1.0), "")


_POLICIES = ("auto", "always", "never")


@usual_floats()
def prior_sensitivity(
    model: Any,
    priors: Mapping[str, Any],
    *,
    result: Any = None,
    new_runs: str = "auto",
    target_mcse: float = TARGET_MCSE,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    sample_kwargs: Mapping[str, Any] | None = None,
) -> SensitivityTable:
    """Estimate the evidence of a model under other priors of its variables, one at a time.

    Parameters
    ----------
    model : pymc.Model
        The model; it is not changed.
    priors : mapping of str to factors or distributions
        For each free variable, a list of factors such as ``[0.5, 2]``, by which the spread of its
        prior about its location is multiplied; or a mapping of names to distributions, such as
        ``{"half-Cauchy": pm.HalfCauchy.dist(5)}``, to functions that take the model and return one,
        or to factors. Distributions may depend on other variables of the model.
    result : DataTree, optional
        What ``sample_evidence`` returned for this model; it is sampled if this is left out.
    new_runs : {"auto", "always", "never"}
        Whether models with other priors are sampled: where draws under the prior as it is written
        cannot be reweighted reliably, always, or never.
    target_mcse : float
        Error in nats that each run aims at.
    random_seed : int or numpy.random.Generator, optional
        The same seed gives the same numbers.
    progressbar : bool
        Whether to show the progress of runs.
    sample_kwargs : mapping, optional
        Further arguments of ``sample_evidence``, such as ``method`` or ``cores``.

    Returns
    -------
    SensitivityTable
        A DataFrame whose index holds variable and prior. ``factor``; ``log_evidence`` and ``mcse``
        in nats; ``log_bf`` and ``bf`` against the model as it is written, with ``log_bf_mcse`` in
        nats; ``how`` (``"as written"``, ``"reweighted"`` or ``"new run"``); ``pareto_k`` and
        ``ess`` of the reweighted draws; ``status``, ``warning``; ``dof`` and ``log_bf_dof``. Each
        variable has a row for its prior as it is written, between smaller and larger factors.

    Raises
    ------
    ModelError
        If the model has no well-defined evidence, or a factor is given for a distribution that has
        no scale about a location.
    ValueError, TypeError
        If an argument is of the wrong type or out of range, a name is not that of a free variable,
        or ``result`` is not one of this model and its data.

    Warns
    -----
    EvidenceWarning
        If an estimate of a run should not be relied on.

    Notes
    -----
    The Bayes factor of two priors of one model is the mean of the ratio of their densities over
    posterior draws. Numerator and denominator share the likelihood, so that the error of ``log_bf``
    is smaller than those of the two evidences. That of ``log_evidence`` is the sum of the error of
    the run and that of the ratio, which is an upper bound: both come from the same draws, and may
    be correlated.

    Reweighted draws are used if the Pareto tail of the ratios is not too heavy for their number
    (Vehtari et al. 2024), 100 draws are effective, the error is at most that of the difference of
    two runs, and not more than twice ``target_mcse`` of the evidence can lie where there is no
    draw. The last condition bounds, with 95 %, what a region without draws can hold, from the
    largest ratio among draws from the other prior. A prior that is more concentrated usually
    meets it, and one with a wider range does not. A run under the widest prior is therefore
    also used to reweight its draws for the others.

    For Uniform the factor scales the length of the interval about its middle, for MvNormal the
    standard deviations, and for LogNormal the spread of the logarithm. A factor for a variable
    whose prior depends on other variables multiplies what they give it.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    >>> table = pe.prior_sensitivity(model, {"mu": [0.5]}, random_seed=1, progressbar=False)
    >>> list(table["how"])
    ['reweighted', 'as written']
    """
    if not is_model(model):
        raise TypeError(f"model must be a pymc.Model, got {described(model)}; pass the model.")
    variants = variants_of(model, priors)
    check_choice("new_runs", new_runs, _POLICIES)
    check_target(target_mcse)
    check_flag("progressbar", progressbar)
    options = sample_options("sample_kwargs", sample_kwargs)
    options |= {"target_mcse": target_mcse, "progressbar": progressbar}
    seed = resolve_seed(random_seed)
    if result is None:
        result = sample_evidence(model, random_seed=seed_of(seed, 0), **options)
    base = PriorRun.of(result, model, None)
    study = Study(base, model, new_runs, options, seed)
    rows = [row for name, group in variants.items() for row in study.rows(name, group)]
    return sensitivity_table(rows)
