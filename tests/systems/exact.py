"""All systems with known evidence by name: those of the package, and many more."""

from functools import cache

from pm_evidence.testing import ExactSystem
from pm_evidence.testing import exact_systems as of_package
from tests.systems import conjugate, deceptive, discrete, multimodal, quadrature

_FAMILIES = (conjugate, quadrature, multimodal, discrete)


@cache
def exact_systems() -> dict[str, ExactSystem]:
    """Return the systems on which every kernel and sampler is tested."""
    own = {system.name: system for family in _FAMILIES for system in family.systems()}
    return of_package() | own


@cache
def deceptive_systems() -> dict[str, ExactSystem]:
    """Return systems on which a run can be wrong without any sign in its own draws.

    They are funnels, a narrow ridge, heavy tails, spikes in slabs, modes of unequal width, and a
    model with a thousand means.
    """
    return {system.name: system for system in deceptive.systems()}
