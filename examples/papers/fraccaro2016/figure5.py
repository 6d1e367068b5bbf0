"""Particles of adaptive resample-move: Figure 5 of Fraccaro, Paquet and Winther (2016).

The states of a restricted Boltzmann machine that is built unit by unit, after 200 and after all 784
visible units. The machine is PCD(500) of figure4.py. The particles after 200 units are the last
ones of the machine without the other units.

    python examples/papers/fraccaro2016/figure5.py FOLDER [--quick]

FOLDER receives pcd500.npz where there is none yet, and the figure.
"""

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

import pm_evidence as pe
from examples.papers.fraccaro2016.figure4 import machine, sampler

N_UNITS, PARTICLES, SHOWN, WIDTH = (200, 784), 1000, 16, 28
SEED = 5


def particles(rbm: pe.rbm.RBM, n_units: int, n: int) -> np.ndarray:
    """Return images with some particles in a machine of the first units, NaN for the others."""
    order = pe.paths.UnitByUnitPath(rbm).units[:n_units]
    partial = pe.rbm.RBM(
        rbm.W[order], rbm.visible_bias[order], rbm.hidden_bias, data=rbm.data[:, order], base="data"
    )
    method = sampler("arm", "pcd", 2)
    options = {"target_mcse": None, "random_seed": SEED, "progressbar": False, "path": "units"}
    dt = pe.sample_evidence(partial, method=method, draws=PARTICLES, **options)
    states = dt["posterior"]["v"].values.reshape(-1, n_units)
    chosen = np.random.default_rng(SEED).choice(len(states), n, replace=False)
    images = np.full((n, rbm.n_visible), np.nan)
    images[:, order] = states[chosen]
    return images


def draw(parts: dict[int, np.ndarray], file: Path) -> None:
    """Draw the images, with units that are not there in grey."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    colours = mpl.colormaps["gray"].with_extremes(bad="0.5")
    figure = plt.figure(figsize=(9, 4.8), layout="constrained")
    panels = figure.subfigures(1, len(parts))
    for part, (n_units, images) in zip(panels, parts.items(), strict=True):
        part.suptitle(f"{n_units} visible units")
        rows = int(np.sqrt(len(images)))
        for axis, image in zip(part.subplots(rows, rows).flat, images, strict=True):
            axis.imshow(image.reshape(WIDTH, WIDTH), cmap=colours, vmin=0.0, vmax=1.0)
            axis.set_axis_off()
    figure.savefig(file, dpi=80)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the particles and the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true", help="a machine that is hardly trained")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore", pe.EvidenceWarning)  # states are shown, and no estimate
    given.folder.mkdir(parents=True, exist_ok=True)
    rbm = machine("pcd", given.folder, quick=given.quick)
    n_units = (20, 40) if given.quick else N_UNITS
    draw({n: particles(rbm, n, SHOWN) for n in n_units}, given.folder / "fraccaro2016_figure5.png")


if __name__ == "__main__":
    main()
