"""All exact systems by name."""

from functools import cache

from pm_evidence.testing import (
    conjugate,
    constrained,
    correlations,
    deceptive,
    discrete,
    features,
    gaussians,
    heavy_tailed,
    hierarchical,
    imputed,
    mixed,
    multimodal,
    ordered,
    potentials,
)
from pm_evidence.testing.system import TAGS, ExactSystem

_FAMILIES = (
    conjugate,
    gaussians,
    constrained,
    correlations,
    ordered,
    heavy_tailed,
    hierarchical,
    multimodal,
    potentials,
    discrete,
    mixed,
    imputed,
    features,
)


@cache
def _all_systems() -> tuple[ExactSystem, ...]:
    # Computed once, on the first call and not on import: some values are quadratures.
    return tuple(system for family in _FAMILIES for system in family.systems())


def exact_systems(*tags: str) -> dict[str, ExactSystem]:
    """Return the systems that have all the given tags.

    Parameters
    ----------
    *tags : str
        Keys of :data:`TAGS`; none for every system.

    Returns
    -------
    dict of str to ExactSystem
        By name, in a fixed order. No model is built and PyMC is not imported.

    Raises
    ------
    ValueError
        A tag is unknown.

    Examples
    --------
    >>> systems = exact_systems("hierarchical", "heavy-tailed")
    >>> round(systems["eight_schools_half_cauchy_centred"].log_evidence, 4)
    -31.3113
    """
    unknown = set(tags) - TAGS.keys()
    if unknown:
        raise ValueError(
            f"tags must be among {sorted(TAGS)}, got {sorted(unknown)}; pick from the list."
        )
    return {system.name: system for system in _all_systems() if system.tags.issuperset(tags)}


def deceptive_systems() -> dict[str, ExactSystem]:
    """Return systems on which a run can be wrong without any sign in its own draws.

    They are funnels, a narrow ridge, heavy tails, spikes in slabs, modes of unequal width, and a
    model with a thousand means.
    They do not belong to `exact_systems`, on which every kernel and sampler is tested.

    Returns
    -------
    dict of str to ExactSystem
        By name, in a fixed order.
    """
    return {system.name: system for system in deceptive.systems()}
