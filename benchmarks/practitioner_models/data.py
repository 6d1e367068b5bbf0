"""Real data of the models, from the folder that PM_EVIDENCE_DATA names."""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import real_data
from real_data import load_csv

__all__ = ["coal", "galaxies", "german_credit", "nile", "pima", "pound_dollar", "radon"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def german_credit() -> tuple[Floats, Integers]:
    """Return a column of ones with 24 standardised covariates, and 1 for a bad credit."""
    table = load_csv("german_credit_numeric")
    covariates = table.drop(columns="class").to_numpy(float)
    covariates = (covariates - covariates.mean(axis=0)) / covariates.std(axis=0)
    design = np.column_stack([np.ones(len(table)), covariates])
    return design, (table["class"] == 2).to_numpy(np.int64)


def pima(with_age: bool) -> tuple[Floats, Integers]:
    """Return the design of either model of Friel and Wyse (2012), and diabetes as 0 and 1."""
    table = load_csv("pima_friel_wyse_532_std")
    columns = ["npreg", "glu", "bmi", "ped", *(["age"] if with_age else [])]
    design = np.column_stack([np.ones(len(table)), table[columns].to_numpy(float)])
    return design, table["y"].to_numpy(np.int64)


def radon() -> tuple[Floats, Floats, Integers]:
    """Return log radon, 1 for a measurement in a basement, and the county from 0 to 84."""
    table = load_csv("radon_hlmdiag")
    county = np.unique(table["county"], return_inverse=True)[1].astype(np.int64)
    return table["log.radon"].to_numpy(float), table["basement"].to_numpy(float), county


def nile() -> Floats:
    """Return the annual flow of the Nile, 1871 to 1970, in 1e10 cubic metres."""
    return load_csv("nile")["value"].to_numpy(float) / 100


def coal() -> tuple[Floats, Integers]:
    """Return years, from 1851 to 1962, and their numbers of disasters in British coal mines."""
    table = load_csv("coal_annual")
    return table["year"].to_numpy(float), table["count"].to_numpy(np.int64)


def galaxies() -> Floats:
    """Return 82 velocities in 1000 km/s, with the 78th as it was first published."""
    return load_csv("galaxies")["velocity_corrected"].to_numpy(float) / 1000


def pound_dollar() -> Floats:
    """Return daily returns of the pound in dollars, 1981 to 1985, in percent, with mean zero."""
    return real_data.pound_dollar()["ret_demeaned"].to_numpy(float)
