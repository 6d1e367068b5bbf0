"""Bridge sampling by this package and by the R package bridgesampling, from the same draws.

The draws are four chains of 1,000 of ``pm.sample``, in the unconstrained space, and both packages
evaluate the same compiled log density. R takes its defaults, with a normal density and with warped
draws (``warp3``). Its error is the root of the relative mean squared error that it states for the
former, and the spread of five repetitions, which share the given draws, for the latter.
Needs ``Rscript`` with bridgesampling and coda: ``apt install r-cran-bridgesampling``.
``python benchmarks/bridgesampling.py [names]``
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pymc as pm
from common import start

import pm_evidence as pe
from pm_evidence.paths.geometric import Posterior
from pm_evidence.runs.references import rows_and_variables
from pm_evidence.targets.model.cache import target_of
from tests.systems.exact import exact_systems

SCRIPT = Path(__file__).with_suffix(".R")
CHAINS, DRAWS = 4, 1000
SYSTEMS = (
    "normal_inverse_gamma",
    "student_t_groups",
    "half_cauchy_scale",
    "beta_binomial",
    "zero_sum",
    "ordered_two",
    "gaussian_10",
    "correlated_gaussian_50",
    "student_t_prior",
    "dirichlet_multinomial",
)
HEADER = (
    f"{'system':24s} {'d':>3s} {'ours':>9s} {'mcse':>7s} "
    f"{'R, normal':>10s} {'error':>7s} {'R, warp3':>10s} {'error':>7s}"
)


def by_r(posterior: Posterior, x: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return log evidence and error by each method of R, from rows of draws, chain by chain."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "draws.csv"
        np.savetxt(table, x, delimiter=",", fmt="%.17g")
        command = ["Rscript", str(SCRIPT), str(table), str(CHAINS)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            for line in process.stdout:
                if line.startswith("="):
                    _, method, value, error = line.split()
                    found[method] = float(value), float(error)
                    continue
                point = np.array([line.split()], float)
                (log_density,) = posterior.log_density(point)
                process.stdin.write(f"{log_density:.17g}\n")
                process.stdin.flush()
        if process.returncode:
            raise RuntimeError(f"Rscript ended with {process.returncode}")
    return found


def compare(name: str) -> None:
    """Print what both packages find, as differences from the exact value."""
    system = exact_systems()[name]
    model, exact = system.build(), system.log_evidence
    with model:
        idata = pm.sample(
            DRAWS, chains=CHAINS, cores=1, random_seed=3, progressbar=False, quiet=True
        )
    ours = pe.log_evidence(pe.bridge_sampling(idata, model, random_seed=1, progressbar=False))
    target = target_of(model)
    x, _ = rows_and_variables(target, idata, "idata")
    theirs = by_r(Posterior(target), x)
    numbers = "".join(f"{value - exact:+11.4f} {error:7.4f}" for value, error in theirs.values())
    print(
        f"{name:24s} {target.n_dim:3d} {ours.value - exact:+9.4f} {ours.mcse:7.4f}{numbers}",
        flush=True,
    )


def main() -> None:
    """Compare the systems that are asked for."""
    options = start(__doc__, repeats=1)
    if shutil.which("Rscript") is None:
        sys.exit("Rscript is not on PATH: install R with the package bridgesampling.")
    print(HEADER)
    for name in options.names or SYSTEMS:
        compare(name)


if __name__ == "__main__":
    main()
