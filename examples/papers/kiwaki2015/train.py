"""The restricted Boltzmann machines of Kiwaki (2015), section 7, trained on MNIST.

Machines with 20 and with 500 hidden units, trained by persistent contrastive divergence and by
contrastive divergence with 1 and with 25 steps. For those with 20 hidden units the script prints
the exact log Z, and the average log likelihood of the test images.

The paper trains the small machines with a fixed learning rate and 250,000 updates, and the large
ones with settings drawn at random; it does not print them. Here PCD(20) and CD1(20) have 250,000
updates, and the other machines as many as fit, with them, into a quarter of an hour of one core:
15,000 for CD25(20), 20,000 for PCD(500), 10,000 for CD1(500) and 2,000 for CD25(500). The images
are those of MNIST with pixels above 127 set to 1. Learning rates of the small machines were chosen
so that log Z comes near that of the paper (208.6, 194.0 and 207.1 nats, its Table 1). Chains of
PCD(500) and CD25(500) hardly mix. Those whose names end in "low" have lower rates, fewer updates
and a larger weight decay, and mix.

Run it with ``python examples/papers/kiwaki2015/train.py FOLDER``, which writes FOLDER/pcd20.npz and
seven more files with the arrays ``W``, ``visible_bias`` and ``hidden_bias``. ``--quick`` makes one
update in 500.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

import pm_evidence as pe
from pm_evidence.testing import exact_log_z, log_marginal

sys.path.append(str(Path(__file__).parents[2]))
from real_data import mnist

SEED = 20150624
# Number of hidden units, and options of the training.
SETTINGS = {
    "pcd20": (20, {"algorithm": "pcd", "n_updates": 250_000, "learning_rate": 0.002}),
    "cd1_20": (20, {"n_updates": 250_000, "learning_rate": 0.01}),
    "cd25_20": (20, {"steps": 25, "n_updates": 15_000, "learning_rate": 0.03}),
    "pcd500": (500, {"algorithm": "pcd", "n_updates": 20_000, "learning_rate": 0.02}),
    "cd1_500": (500, {"n_updates": 10_000, "learning_rate": 0.05}),
    "cd25_500": (500, {"steps": 25, "n_updates": 2000, "learning_rate": 0.1}),
    "pcd500_low": (
        500,
        {"algorithm": "pcd", "n_updates": 2500, "learning_rate": 0.005, "weight_decay": 1e-3},
    ),
    "cd25_500_low": (
        500,
        {"steps": 25, "n_updates": 600, "learning_rate": 0.01, "weight_decay": 1e-3},
    ),
}
_WEIGHT_DECAY = 1e-4  # of the machines with 500 hidden units
_LARGEST_ENUMERATED = 20
_QUICK = 500


def trained(name, data, *, quick=False):
    """Return one of the machines, trained on ``data``, shape (n_rows, n_visible)."""
    n_hidden, options = SETTINGS[name]
    if n_hidden > _LARGEST_ENUMERATED:
        options = {"weight_decay": _WEIGHT_DECAY, **options}
    if quick:
        options = {**options, "n_updates": options["n_updates"] // _QUICK}
    seed = np.random.default_rng([SEED, list(SETTINGS).index(name)])
    return pe.rbm.train_rbm(data, n_hidden, **options, random_seed=seed, progressbar=False)


def exact_figures(rbm, test):
    """Return log Z, and the average log likelihood of ``test``; NaN for a large machine."""
    parameters = rbm.W, rbm.visible_bias, rbm.hidden_bias
    if rbm.W.shape[1] > _LARGEST_ENUMERATED:
        return np.nan, np.nan
    log_z = exact_log_z(*parameters)
    return log_z, log_marginal(test, *parameters).mean() - log_z


def base_rate(train, test):
    """Return the average log likelihood of ``test`` under independent pixels."""
    p = (train.sum(axis=0) + 0.5) / (len(train) + 1.0)
    return float((test @ np.log(p) + (1 - test) @ np.log1p(-p)).mean())


def main(out, *, quick=False, names=tuple(SETTINGS), folder=None):
    """Train, save the parameters in the folder ``out``, print a table and return it."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    train, test = mnist(folder)
    print(f"independent pixels: {base_rate(train, test):.2f} nats per test image", flush=True)
    rows = {}
    for name in names:
        started = time.process_time()
        rbm = trained(name, train, quick=quick)
        seconds = time.process_time() - started
        np.savez(
            out / f"{name}.npz",
            W=rbm.W,
            visible_bias=rbm.visible_bias,
            hidden_bias=rbm.hidden_bias,
        )
        rows[name] = (seconds, *exact_figures(rbm, test))
        print(f"{name}: trained in {seconds:.0f} s of processor time", flush=True)
    table = pd.DataFrame.from_dict(
        rows, orient="index", columns=["seconds", "log_z", "test_log_likelihood"]
    )
    print(f"\n{table.to_string(float_format='{:.3f}'.format, na_rep='not enumerated')}")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of the parameters")
    parser.add_argument("--quick", action="store_true", help="one update in 500")
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--missing", action="store_true", help="those whose file is not there")
    arguments = parser.parse_args()
    some = arguments.only
    if arguments.missing:
        some = [name for name in some if not (arguments.out / f"{name}.npz").is_file()]
    main(arguments.out, quick=arguments.quick, names=some)
