"""What the evidence is integrated over: local variables, hidden states and random effects."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.api.arguments import entry
from pm_evidence.core.checks import check_count, described
from pm_evidence.core.exceptions import exceptions_of_users
from pm_evidence.core.random import resolve_seed
from pm_evidence.results import schema
from pm_evidence.results.stored import evidence_of, posterior_of
from pm_evidence.targets.estimated.target import WORDS, EstimatedTarget
from pm_evidence.targets.estimated.variable import MOST_PARTICLES
from pm_evidence.targets.model.cache import find_model, target_of
from pm_evidence.targets.plates.structure import Structure, structure_of_model


@exceptions_of_users()
def structure(model: Any = None) -> pd.DataFrame:
    """Return which variables of a model are independent element by element, given the others.

    These are what `sample_evidence` integrates: with ``marginalise=True`` all of them, and with
    ``marginalise="auto"`` those for which it pays.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; may be left out inside its context.

    Returns
    -------
    pandas.DataFrame
        One row for each free variable: ``kind`` (``"local"`` or ``"global"``), ``elements`` (their
        number), ``coordinates`` (of an element), ``type`` (``"discrete"`` or ``"continuous"``),
        ``integrated_by`` (``"sum"`` over all values, ``"counts"`` for a sum until the tail is
        negligible, ``"quadrature"``), and ``reason`` (why a variable is global).

    Raises
    ------
    TypeError
        If there is no model.
    ModelError
        If the model has no well-defined evidence.

    Notes
    -----
    The structure is read from the graph of the log density: elements are independent if no
    operation but the sum over all terms reads two of them. Of crossed effects, the variable with
    more elements is local given the other. The method is exact; where an operation is not known,
    the variable is global.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     spread = pm.HalfNormal("spread", 1)
    ...     effect = pm.Normal("effect", 0, spread, shape=6)
    ...     y = pm.Poisson("y", pm.math.exp(effect), observed=[1, 0, 3, 2, 2, 5])
    >>> pe.structure(model)["integrated_by"].to_dict()
    {'spread': '', 'effect': 'quadrature'}
    """
    return _table(structure_of_model(find_model(model)))


def _table(found: Structure) -> pd.DataFrame:
    rows = []
    for variable in found.layout.variables:
        plates = [plate for plate in found.plates if variable.name in plate.names]
        is_local = bool(plates)
        rows.append(
            {
                "variable": variable.name,
                "kind": "local" if is_local else "global",
                "elements": sum(p.n_elements for p in plates) if is_local else variable.size,
                "coordinates": max((p.positions.shape[1] for p in plates), default=1),
                "type": "continuous" if variable.dtype.startswith("float") else "discrete",
                "integrated_by": ", ".join(dict.fromkeys(plate.rule for plate in plates)),
                "reason": found.reasons.get(variable.name, ""),
            }
        )
    return pd.DataFrame(rows).set_index("variable")


_MOST_DRAWS = 10_000_000


@entry()
def sample_latent(
    dt: xr.DataTree,
    model: Any = None,
    *,
    draws: int = 200,
    random_seed: int | np.random.Generator | None = None,
) -> xr.Dataset:
    """Draw the hidden states, or random effects, of a model whose likelihood is estimated.

    Parameters
    ----------
    dt : DataTree
        From ``sample_evidence`` of the same model.
    model : pymc.Model, optional
        The model; may be left out inside its context.
    draws : int
        Number of draws.
    random_seed : int or numpy.random.Generator, optional
        Chooses the posterior draws that they belong to.

    Returns
    -------
    xarray.Dataset
        With the dimensions ``chain`` (of one) and ``draw``. For each ``pe.StateSpace`` named
        ``y`` the paths ``y_states`` given all data, by ``y_time``, and of the filters that they
        come from the effective sample size ``y_ess`` (a share) and ``y_log_density``, in nats, of
        each observation given those before; for each ``pe.RandomEffects`` the ``y_effects``, by
        ``y_group``. The parameters of the same draws, too.

    Raises
    ------
    TypeError
        If ``dt`` is not a DataTree, or there is no model.
    ValueError
        If ``dt`` does not hold estimates of this model's likelihood.

    Notes
    -----
    Each draw belongs to a posterior draw and to the very estimate of the likelihood that it came
    with, whose particles it is chosen from by their weights: so it is exact for any number of
    particles (Andrieu, Doucet and Holenstein 2010, section 4.1).

    Examples
    --------
    >>> import numpy as np, pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     step = pm.HalfNormal("step", 1)
    ...     walk = pe.StateSpace(
    ...         "y",
    ...         init=lambda: pm.Normal.dist(0, 1),
    ...         transition=lambda level, t: pm.Normal.dist(level, step),
    ...         emission=lambda level, t: pm.Normal.dist(level, 0.5),
    ...         observed=np.array([0.1, 0.4, 0.9, 1.1]),
    ...     )
    ...     dt = pe.sample_evidence(draws=200, random_seed=1, progressbar=False)
    ...     latent = pe.gp.sample_latent(dt, draws=50, random_seed=1)
    >>> latent["y_states"].dims
    ('chain', 'draw', 'y_time')
    """
    check_count("draws", draws, 1, _MOST_DRAWS)
    target = target_of(find_model(model))
    facts = evidence_of(dt, "dt").attrs
    stats = dt[schema.SAMPLE_STATS].to_dataset() if schema.SAMPLE_STATS in dt.children else {}
    if not isinstance(target, EstimatedTarget) or WORDS not in stats:
        raise ValueError(
            "dt must hold estimates of the likelihood of a model with pe.StateSpace or "
            "pe.RandomEffects, got none; pass the result of sample_evidence for such a model."
        )
    target = target.with_settings(_settings(facts, target))
    posterior = posterior_of(dt, target.observed_data(), "dt")
    x = target.rows_of(posterior, "dt")
    words = _words(stats[WORDS], len(x), target.n_seeds)
    rng = np.random.default_rng(resolve_seed(random_seed))
    chosen = rng.choice(len(x), draws, replace=draws > len(x))
    group = dt[schema.POSTERIOR].to_dataset()
    variables: dict[str, Any] = {
        name: (("draw", *group[name].dims[2:]), values.reshape(-1, *values.shape[2:])[chosen])
        for name, values in posterior.items()
    }
    coords = {
        str(name): labels.values
        for name, labels in group.coords.items()
        if name not in schema.SAMPLE_DIMS
    }
    start = 0
    for estimator in target.estimators:
        stop = start + estimator.n_seeds
        own = np.ascontiguousarray(words[chosen, start:stop])
        found, labels = estimator.latent(x[chosen], own)
        variables |= {name: (("draw", *dims), values) for name, (dims, values) in found.items()}
        coords |= labels
        start = stop
    return xr.Dataset(variables, coords).expand_dims(chain=[0])


def _settings(facts: Mapping[str, Any], target: EstimatedTarget) -> list[tuple[int, int]]:
    """Return numbers of particles and of blocks of every estimator, as a run left them."""
    found = []
    for name, least in (("n_particles", 2), ("n_seeds", 1)):
        try:
            numbers = json.loads(facts.get(name, ""))
        except (TypeError, ValueError):  # neither a text, nor one of JSON
            numbers = None
        if not isinstance(numbers, list) or len(numbers) != len(target.estimators):
            raise ValueError(
                f"dt must hold {name!r} for each of the {len(target.estimators)} estimated "
                f"likelihoods of the model, got {described(facts.get(name))}; pass the result of "
                "sample_evidence for this model."
            )
        found.append([check_count(f"{name} in dt", n, least, MOST_PARTICLES) for n in numbers])
    return list(zip(*found, strict=True))


def _words(variable: xr.DataArray, n: int, n_words: int) -> NDArray[np.uint64]:
    """Return the seeds of the estimates, shape ``(n, n_words)``."""
    if variable.dtype.kind not in "iu" or variable.size != n * n_words:
        raise ValueError(
            f"dt must hold {n_words} whole numbers for each of {n} draws as {WORDS!r}, got "
            f"{variable.size} in all, of dtype {variable.dtype}; pass the result of "
            "sample_evidence for this model."
        )
    return variable.values.reshape(n, n_words).astype(np.uint64)
