"""The restricted Boltzmann machines of Figures 1, 3 and 4 of Carlson et al. (2016).

``cd25_500`` is the published machine of Salakhutdinov and Murray (2008). The others are trained
here on MNIST (pixels above 127 set to 1): ``cd1_10`` by contrastive divergence with one step, and
``pcd_100`` by persistent contrastive divergence. The paper trains its machine with 100 hidden units
by another method (Carlson et al. 2015), and does not say how it trains the one with 10.
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import pm_evidence as pe

sys.path.append(str(Path(__file__).parents[2]))
from real_data import mnist, published_rbm

SEED = 20160619
# Number of hidden units, and options of the training.
TRAINED = {
    "cd1_10": (10, {"n_updates": 20_000, "learning_rate": 0.02}),
    "pcd_100": (
        100,
        {"algorithm": "pcd", "n_updates": 20_000, "learning_rate": 0.02, "linear_decay": True},
    ),
}
_QUICK = 100  # updates


def machine(
    name: str, folder: Path, *, quick: bool = False, data: Path | None = None
) -> pe.rbm.RBM:
    """Return a machine whose reference has the base rates of the training images.

    Parameters
    ----------
    name : {"cd25_500", "cd1_10", "pcd_100"}
        Which one.
    folder : Path
        Parameters of trained machines are kept here, and are not trained again.
    quick : bool
        Whether training ends after 100 updates.
    data : Path, optional
        The folder of real data.
    """
    train = mnist(data)[0]
    if name not in TRAINED:
        return pe.rbm.RBM(*published_rbm(data), data=train, base="data")
    file = folder / f"{name}{'_quick' if quick else ''}.npz"
    if not file.exists():
        n_hidden, options = TRAINED[name]
        if quick:
            options = {**options, "n_updates": _QUICK}
        rng = np.random.default_rng([SEED, n_hidden])
        rbm = pe.rbm.train_rbm(train, n_hidden, **options, random_seed=rng, progressbar=False)
        np.savez(file, W=rbm.W, visible_bias=rbm.visible_bias, hidden_bias=rbm.hidden_bias)
    with np.load(file) as found:
        parameters = found["W"], found["visible_bias"], found["hidden_bias"]
    return pe.rbm.RBM(*parameters, data=train, base="data")


def test_images(n: int, data: Path | None = None) -> np.ndarray:
    """Return the first ``n`` test images as 0 and 1."""
    return mnist(data)[1][:n]


def kept(file: Path, make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the arrays of a file, which ``make`` returns where there is none yet."""
    if not file.exists():
        started = time.process_time()
        np.savez(file, **make())
        print(f"{file.stem}: {time.process_time() - started:.0f} s", flush=True)
    with np.load(file) as archive:
        return dict(archive)
