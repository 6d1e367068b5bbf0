"""Initial iterations with and without Rao-Blackwellization: Figure 1 of Carlson et al. (2016).

A machine with 10 hidden units, whose log Z at every temperature is known exactly, is tempered with
100 equal steps of beta. As in the paper, ``log_z`` starts at zero, and every iteration consists of
50 Gibbs sweeps of 100 chains. Temperatures are drawn given the states of both layers, as the
package does, and given the visible units alone, with the hidden units summed out; there also with
the steps of stochastic MBAR.

    python examples/papers/carlson2016/figure1.py FOLDER [--quick]

FOLDER receives the parameters of the machine and carlson2016_figure1.csv, from which page.py draws
the figure.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pm_evidence.testing import exact_log_z

sys.path.append(str(Path(__file__).parent))
from algorithm1 import both_layers, hidden_summed_out, initial_iterations, new_chains
from machines import machine

SEED = 1
N_TEMPERATURES, N_CHAINS, N_SWEEPS = 100, 100, 50
# Number of iterations until the last one that is drawn; the table also holds later ones.
N_ITERATIONS = 12
SHOWN = (1, 2, 4, 6, 8)
VARIANTS = {
    "visible": {"densities": hidden_summed_out},
    "both": {"densities": both_layers},
    "visible_counts": {"densities": hidden_summed_out, "rao_blackwell": False},
    "both_counts": {"densities": both_layers, "rao_blackwell": False},
    "stochastic_mbar": {"densities": hidden_summed_out, "stochastic": True},
}


def exact_curve(rbm, beta):
    """Return the log normalising constants at all temperatures, relative to the reference."""
    base = rbm.base_bias[: rbm.n_visible]
    parameters = rbm.W, rbm.visible_bias, rbm.hidden_bias
    log_z = np.array([exact_log_z(*parameters, beta=b, base=base) for b in beta])
    # the reference is normalised: its hidden units are 0 or 1 with equal probability
    offset = np.logaddexp(0.0, base).sum() + rbm.n_hidden * np.log(2.0)
    return log_z - (1.0 - beta) * offset


def iterations(rbm, variant, n_temperatures=N_TEMPERATURES, n_sweeps=N_SWEEPS):
    """Return the result of every iteration of a variant."""
    beta = np.linspace(0.0, 1.0, n_temperatures)
    chains = new_chains(rbm, beta, N_CHAINS, [SEED, 0])
    return list(
        initial_iterations(
            chains,
            np.random.default_rng([SEED, 1]),
            N_ITERATIONS,
            n_sweeps,
            **VARIANTS[variant],
        )
    )


def table(rbm, n_temperatures=N_TEMPERATURES, n_sweeps=N_SWEEPS):
    """Return log Z and log shares by variant, iteration and temperature (from 1)."""
    exact = exact_curve(rbm, np.linspace(0.0, 1.0, n_temperatures))
    parts = []
    for variant in VARIANTS:
        for i, found in enumerate(iterations(rbm, variant, n_temperatures, n_sweeps), start=1):
            part = {
                "variant": variant,
                "iteration": i,
                "k": np.arange(1, n_temperatures + 1),
                "log_z": found.log_z,
                "log_share": found.log_share,
                "exact": exact,
            }
            parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the iterations, and write and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="folder of real data")
    parser.add_argument("--quick", action="store_true", help="an untrained machine, few sweeps")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    rbm = machine("cd1_10", options.folder, quick=options.quick, data=options.data)
    found = table(rbm, *((20, 5) if options.quick else ()))
    found.to_csv(options.folder / "carlson2016_figure1.csv", index=False, float_format="%.6g")
    last = found[found.k == found.k.max()]
    print(f"exact log Z: {last.exact.iloc[0]:.3f}")
    print(last.pivot(index="iteration", columns="variant", values="log_z").round(2).to_string())


if __name__ == "__main__":
    main()
