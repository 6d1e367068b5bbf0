"""Models with known log evidence, for tests of any evidence code, and checks of kernels.

``exact_systems`` are PyMC models whose log evidence is known. ``exact_log_z`` and ``exact_moments``
are references for restricted Boltzmann machines with one small layer. ``check_invariance`` and
``check_reversal`` test a kernel on exact draws; ``check_path``, ``check_kernel``, ``check_target``
and ``check_sampler`` test everything that a run needs of such an object of the user's.

Examples
--------
>>> from pm_evidence.testing import exact_systems
>>> system = exact_systems()["normal_mean"]
>>> round(system.log_evidence, 4)
-7.192
"""

from pm_evidence.testing.boltzmann import (
    BoltzmannMoments,
    exact_log_z,
    exact_moments,
    log_marginal,
    sine_rbm,
)
from pm_evidence.testing.checks import (
    KernelReport,
    check_invariance,
    check_kernel,
    check_path,
    check_reversal,
    check_sampler,
    check_target,
)
from pm_evidence.testing.systems import ExactSystem, exact_systems, gaussian

__all__ = [
    "BoltzmannMoments",
    "ExactSystem",
    "KernelReport",
    "check_invariance",
    "check_kernel",
    "check_path",
    "check_reversal",
    "check_sampler",
    "check_target",
    "exact_log_z",
    "exact_moments",
    "exact_systems",
    "gaussian",
    "log_marginal",
    "sine_rbm",
]
