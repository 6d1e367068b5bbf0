"""Estimators on a mixture of two Gaussians: Figure 2 of Carlson et al. (2016).

A mixture of two Gaussians in ten dimensions is tempered from a broad Gaussian with Hamiltonian
Monte Carlo whose settings are learnt for each temperature. RTS, MBAR and four forms of
thermodynamic integration estimate log Z, which is 0, from the same states.

    python examples/papers/carlson2016/figure2.py FOLDER [--repeats N] [--quick]

FOLDER receives the energies of every run, which is not made again, and carlson2016_figure2.csv,
from which page.py draws the figure.

The paper's appendix with the mixture was not available. Here components have weights 1/3 and 2/3,
unit covariance and means of -2 and 2 in every coordinate, 12.6 standard deviations apart; the
reference has standard deviation 5 in every coordinate. The paper does not print the number of
temperatures either: 10, 30 and 100 are compared.
"""

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm

import pm_evidence as pe

N_DIM, CENTRE, REFERENCE_SD = 10, 2.0, 5.0
LOG_WEIGHTS = np.log([1.0 / 3.0, 2.0 / 3.0])
N_TEMPERATURES = (10, 30, 100)
N_CHAINS = 50
SAMPLES = (1000, 1500, 2000, 2500, 3000, 3500, 4000)
REPEATS = 40
SEED = 2


def mixture() -> pm.Model:
    """Return the model: the reference is its prior, and the likelihood is mixture over prior."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, REFERENCE_SD, shape=N_DIM)
        parts = [
            log_weight + pm.logp(pm.Normal.dist(centre, 1.0), x).sum()
            for log_weight, centre in zip(LOG_WEIGHTS, (-CENTRE, CENTRE), strict=True)
        ]
        prior = pm.logp(pm.Normal.dist(0.0, REFERENCE_SD), x).sum()
        pm.Potential("mixture", pm.math.logaddexp(*parts) - prior)
    return model


def run(model: pm.Model, n_temperatures: int, seed: int, n_samples: int) -> dict[str, np.ndarray]:
    """Return energies and temperatures of a run, shape (n_iterations, n_chains), and weights."""
    n_iterations = -(-n_samples // N_CHAINS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)  # short runs on purpose
        dt = pe.sample_evidence(
            model,
            method=pe.methods.SimulatedTempering(n_temperatures=n_temperatures, chains=N_CHAINS),
            schedule="linear",
            draws=n_iterations * N_CHAINS // n_temperatures,
            target_mcse=None,
            random_seed=SEED + seed,
            progressbar=False,
            cores=1,
        )
    record = pe.to_record(dt)
    return {
        "beta": record.beta,
        "energy": np.concatenate([each.energy for each in record.tempered], axis=1),
        "rung": np.concatenate([each.rung for each in record.tempered], axis=1),
        "log_z": np.array(record.facts.tempering_log_z),
    }


def estimates(found: dict[str, np.ndarray], n_samples: int) -> dict[str, float]:
    """Return log Z by all estimators from the first states of a run."""
    beta, log_z = found["beta"], found["log_z"]
    first = slice(n_samples // N_CHAINS)
    energy, rung = found["energy"][first], found["rung"][first]
    estimators = pe.estimators
    values = {
        "RTS": estimators.rts(beta, energy, log_z),
        "MBAR": estimators.mbar(beta, energy, rung),
        "TI Riemann": estimators.ti(beta, energy, rung, rule="riemann"),
        "TI trapezoid": estimators.ti(beta, energy, rung, rule="trapezoid"),
        "TI corrected": estimators.ti(beta, energy, rung, rule="corrected"),
        "TI-RB": estimators.ti_rb(beta, energy, log_z, rule="trapezoid"),
    }
    return {name: estimate.value for name, estimate in values.items()}


def table(folder: Path, n_temperatures: Sequence[int], repeats: int) -> pd.DataFrame:
    """Return bias, standard deviation and RMSE of every estimator."""
    model, rows = mixture(), []
    for size in n_temperatures:
        for seed in range(repeats):
            file = folder / f"figure2_{size}_{seed}.npz"
            if not file.exists():
                np.savez_compressed(file, **run(model, size, seed, max(SAMPLES)))
            with np.load(file) as archive:
                found = dict(archive)
            for n_samples in SAMPLES:
                for name, value in estimates(found, n_samples).items():
                    rows.append((size, n_samples, name, value))
    frame = pd.DataFrame(rows, columns=["n_temperatures", "n_samples", "estimator", "log_z"])
    groups = frame.groupby(["n_temperatures", "n_samples", "estimator"], sort=False).log_z
    return groups.agg(
        repeats="size",
        bias="mean",
        sd="std",
        rmse=lambda values: np.sqrt(np.mean(values**2)),  # log Z is 0
    ).reset_index()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, and write and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--quick", action="store_true", help="two runs of ten temperatures")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    sizes, repeats = ((10,), 2) if options.quick else (N_TEMPERATURES, options.repeats)
    found = table(options.folder, sizes, repeats)
    found.to_csv(options.folder / "carlson2016_figure2.csv", index=False, float_format="%.5g")
    last = found[found.n_samples == max(SAMPLES)]
    print(f"RMSE with {max(SAMPLES):,} samples")
    print(last.pivot(index="estimator", columns="n_temperatures", values="rmse").to_string())


if __name__ == "__main__":
    main()
