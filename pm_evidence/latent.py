"""What the evidence was integrated over: hidden states and random effects, given all data."""

import json
from typing import Any

import numpy as np
import xarray as xr

from pm_evidence.core.checks import check_count
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.random import resolve_seed
from pm_evidence.results import schema
from pm_evidence.results.datatree import evidence_of
from pm_evidence.results.observed import posterior_of
from pm_evidence.targets.at_hand import find_model, target_of
from pm_evidence.targets.estimated import WORDS, EstimatedTarget

__all__ = ["sample_latent"]


@interruptible()
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
    ...     latent = pe.sample_latent(dt, draws=50, random_seed=1)
    >>> latent["y_states"].dims
    ('chain', 'draw', 'y_time')
    """
    check_count("draws", draws, 1)
    target = target_of(find_model(model))
    facts = evidence_of(dt, "dt").attrs
    stats = dt[schema.SAMPLE_STATS].to_dataset() if schema.SAMPLE_STATS in dt.children else {}
    if not isinstance(target, EstimatedTarget) or WORDS not in stats:
        raise ValueError(
            "dt must hold estimates of the likelihood of a model with pe.StateSpace or "
            "pe.RandomEffects, got none; pass the result of sample_evidence for such a model."
        )
    numbers = (json.loads(facts[name]) for name in ("n_particles", "n_blocks"))
    target = target.with_settings(list(zip(*numbers, strict=True)))
    posterior = posterior_of(dt, target.observed_data())
    x = target.unconstrained.values(posterior)
    words = stats[WORDS].values.reshape(len(x), -1).astype(np.uint64)
    rng = np.random.default_rng(resolve_seed(random_seed))
    chosen = rng.choice(len(x), draws, replace=draws > len(x))
    group = dt[schema.POSTERIOR].to_dataset()
    variables: dict[str, Any] = {
        name: (_dims(group[name]), values.reshape(-1, *values.shape[2:])[chosen])
        for name, values in posterior.items()
    }
    coords = {
        str(name): labels.values
        for name, labels in group.coords.items()
        if name not in schema.SAMPLE_DIMS
    }
    start = 0
    for estimator in target.estimators:
        stop = start + estimator.n_blocks
        own = np.ascontiguousarray(words[chosen, start:stop])
        found, labels = estimator.latent(x[chosen], own)
        variables |= {name: (("draw", *dims), values) for name, (dims, values) in found.items()}
        coords |= labels
        start = stop
    return xr.Dataset(variables, coords).expand_dims(chain=[0])


def _dims(variable: xr.DataArray) -> tuple[Any, ...]:
    return ("draw", *variable.dims[len(schema.SAMPLE_DIMS) :])
