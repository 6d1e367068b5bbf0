"""Likelihoods while a machine is trained: Figure 5 of Carlson et al. (2016).

A restricted Boltzmann machine with 500 hidden units is trained on the DNA data (180 binary
features). It is trained first by contrastive divergence with one step, and then by the gradient
that tempered chains estimate, with 100 temperatures, 2,000 chains and 25 sweeps between updates as
in the paper. The same chains track log Z. At some updates annealed importance sampling with 100
paths and 10,000 stages estimates it again.

    python examples/papers/carlson2016/tracking.py FOLDER [--quick]

FOLDER receives the parameters and the history of the training, which is not made again, and
carlson2016_figure5.csv, from which page.py draws the figure. The paper's optimiser (RMSspectral,
step size 1e-5) is replaced by plain stochastic gradient ascent. It does not say which 600 of the
2,000 training rows are its validation data; here they are chosen at random.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import pm_evidence as pe

sys.path.append(str(Path(__file__).parents[2]))
from real_data import dna

SEED = 2016
N_HIDDEN, N_VALIDATION, BATCH = 500, 600, 100


@dataclass(frozen=True)
class Settings:
    """Sizes of the run.

    Parameters
    ----------
    pretraining, updates : int
        Updates of both parts of the training.
    pretraining_rate, rate : float
        Their step sizes.
    n_temperatures, n_chains, n_sweeps, every : int
        See ``pe.rbm.TrackLogZ``.
    checkpoints : int
        Number of updates between two comparisons with annealing.
    n_stages, n_paths : int
        Size of annealing.
    """

    pretraining: int = 7000
    updates: int = 6000
    pretraining_rate: float = 0.05
    rate: float = 0.02
    n_temperatures: int = 100
    n_chains: int = 2000
    n_sweeps: int = 25
    every: int = 20
    checkpoints: int = 1000
    n_stages: int = 10_000
    n_paths: int = 100


FULL = Settings()
QUICK = Settings(100, 40, 0.05, 0.005, 20, 200, 5, 10, 20, 500, 50)


def split(folder: Path | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return training, validation and test rows."""
    rows, test = dna(folder)
    rows = rows[np.random.default_rng(SEED).permutation(len(rows))]
    return rows[N_VALIDATION:], rows[:N_VALIDATION], test


def trained(train: np.ndarray, validation: np.ndarray, settings: Settings) -> pe.rbm.RBM:
    """Return the machine of the largest validation likelihood, with the history of its training."""
    first = pe.rbm.train_rbm(
        train,
        N_HIDDEN,
        n_updates=settings.pretraining,
        learning_rate=settings.pretraining_rate,
        batch_size=BATCH,
        random_seed=SEED,
        progressbar=False,
    )
    track = pe.rbm.TrackLogZ(
        n_temperatures=settings.n_temperatures,
        n_chains=settings.n_chains,
        n_sweeps=settings.n_sweeps,
        every=settings.every,
        keep=range(0, settings.updates + 1, settings.checkpoints),
    )
    return pe.rbm.train_rbm(
        train,
        N_HIDDEN,
        algorithm="tempering",
        n_updates=settings.updates,
        learning_rate=settings.rate,
        batch_size=BATCH,
        track=track,
        validation=validation,
        start=first,
        random_seed=SEED,
    )


def saved(file: Path, train: np.ndarray, validation: np.ndarray, settings: Settings) -> dict:
    """Return parameters of the kept machines and the history, from a file if it was made before."""
    if not file.exists():
        started = time.process_time()
        machine = trained(train, validation, settings)
        history, seconds = machine.history, time.process_time() - started
        points = {
            name: getattr(history, name)
            for name in ("update", "log_z", "log_z_mcse", "train", "validation", "ess", "best")
        }
        kept = {**history.machines, "best": machine}
        parameters = {
            f"{name}_{which}": getattr(each, name)
            for which, each in kept.items()
            for name in ("W", "visible_bias", "hidden_bias")
        }
        np.savez_compressed(file, **points, **parameters, seconds=seconds)
    with np.load(file) as stored:
        return dict(stored)


def machine_of(stored: dict, which: int | str, train: np.ndarray) -> pe.rbm.RBM:
    """Return a kept machine, whose reference has the base rates of the training data."""
    parameters = (stored[f"{name}_{which}"] for name in ("W", "visible_bias", "hidden_bias"))
    return pe.rbm.RBM(*parameters, data=train, base="data")


def annealed(machine: pe.rbm.RBM, settings: Settings) -> pe.LogEvidence:
    """Return log Z by annealed importance sampling, as the paper does: forward, equal steps."""
    dt = pe.sample_evidence(
        machine,
        method=pe.methods.AIS(n_stages=settings.n_stages, direction="forward"),
        schedule="linear",
        draws=settings.n_paths,
        target_mcse=None,
        random_seed=SEED,
        progressbar=False,
    )
    return pe.log_evidence(dt)


def comparison(
    stored: dict, train: np.ndarray, validation: np.ndarray, settings: Settings
) -> pd.DataFrame:
    """Return the tracked values of all points, beside the annealed ones of the checkpoints."""
    rows = []
    for update in range(0, settings.updates + 1, settings.checkpoints):
        machine = machine_of(stored, update, train)
        log_z = annealed(machine, settings)
        likelihoods = [machine.log_likelihood(x, log_z).value for x in (train, validation)]
        rows.append((update, log_z.value, log_z.mcse, log_z.status, *likelihoods))
    names = ["update", "ais", "ais_mcse", "ais_status", "ais_train", "ais_validation"]
    tracked = {name: stored[name] for name in ("update", "log_z", "train", "validation")}
    points = pd.DataFrame({**tracked, "mcse": stored["log_z_mcse"]})
    return points.merge(pd.DataFrame(rows, columns=names), on="update", how="left")


def of_test_set(stored: dict, train: np.ndarray, test: np.ndarray, settings: Settings) -> list[str]:
    """Return lines about the likelihood of the test rows under the best machine."""
    machine = machine_of(stored, "best", train)
    high = machine.log_likelihood(test, annealed(machine, settings))
    low = pe.rbm.raise_log_likelihood(
        machine, test, n_stages=settings.n_stages, random_seed=SEED, progressbar=False
    )
    return [
        f"best validation likelihood after {int(stored['best'])} updates; its test likelihood:",
        f"  {high} by AIS, {low} by RAISE; scatter of the rows {low.examples_mcse:.2f}",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, compare, and write and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true", help="40 updates with 200 chains")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", pe.EvidenceWarning)  # the table holds the statuses
    options.folder.mkdir(parents=True, exist_ok=True)
    settings, name = (QUICK, "quick") if options.quick else (FULL, "full")
    train, validation, test = split()
    stored = saved(options.folder / f"tracking_{name}.npz", train, validation, settings)
    print(f"trained in {float(stored['seconds']):.0f} s of processor time")
    table = comparison(stored, train, validation, settings)
    table.to_csv(options.folder / "carlson2016_figure5.csv", index=False, float_format="%.6g")
    print(table.dropna().to_string(index=False, float_format="{:.2f}".format))
    print("\n".join(of_test_set(stored, train, test, settings)))


if __name__ == "__main__":
    main()
