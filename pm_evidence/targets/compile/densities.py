"""The kinds of densities of a model, which differ in what evaluates them."""

from pm_evidence.targets.compile.jax_density import JaxDensity
from pm_evidence.targets.compile.numba_density import CompiledDensity
from pm_evidence.targets.compile.numpy_density import NumpyDensity

type Density = CompiledDensity | JaxDensity | NumpyDensity
