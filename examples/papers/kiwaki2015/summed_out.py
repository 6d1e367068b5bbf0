"""Weights with the hidden units summed out, beside those of both layers, on the same paths.

Annealed importance sampling of restricted Boltzmann machines weights a path by the states of both
layers, or by the visible units alone, with the hidden ones summed out at every temperature
(Salakhutdinov and Murray 2008). Sums have the smaller variance, and take two logs of sums over the
hidden units more at each stage.

    python examples/papers/kiwaki2015/summed_out.py FOLDER [--only pcd20 cd1_20] [--stages 1000]

FOLDER holds the files of ``train.py``, and "published" is the machine of Salakhutdinov and Murray.
Prints the standard deviations of both log weights, their log Z, and the ratio of the variances.
"""

import argparse
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

import pm_evidence as pe
from pm_evidence.core.random import streams
from pm_evidence.families.rbm.gibbs import BaseRatePath, BlockGibbs

sys.path.append(str(Path(__file__).parents[2]))
sys.path.append(str(Path(__file__).parent))
from real_data import mnist, published_rbm
from schedules import MACHINES, machine

SEED = 2008
NAMES = (*MACHINES, "published")


def log_sums(inputs, beta):
    """Return ``sum_j log(1 + exp(beta x_j))`` of every state, shape (n,)."""
    return np.logaddexp(0.0, np.float32(beta) * inputs).sum(axis=1, dtype=float)


def log_weights(rbm, n_stages, n_paths, seed=SEED):
    """Return log weights of both layers, and of the visible units, along equal steps of beta."""
    path, kernel = BaseRatePath(rbm), BlockGibbs()
    draws, moves = np.random.SeedSequence(seed).spawn(2)
    state, chains = path.draw(n_paths, draws), streams(moves, n_paths)
    beta = np.linspace(0.0, 1.0, n_stages + 1)
    slope = rbm.visible_bias - rbm.base_bias[: rbm.n_visible]
    both, summed = np.zeros(n_paths), np.zeros(n_paths)
    for start, stop in pairwise(beta):
        visible = state.to_draws()[:, : rbm.n_visible].astype(np.float32)
        inputs = visible @ rbm.W.astype(np.float32) + rbm.hidden_bias.astype(np.float32)
        both += path.log_ratio(state, start, stop)
        summed += (stop - start) * (visible @ slope + path.log_base_z)
        summed += log_sums(inputs, stop) - log_sums(inputs, start)
        state, _ = kernel.advance(path, state, stop, chains)
    return both, summed


def main(folder, names=NAMES, n_stages=1000, n_paths=384, data=None):
    """Print the figures of every machine."""
    train, _ = mnist(data)
    for name in names:
        if name == "published":
            rbm = pe.rbm.RBM(*published_rbm(data), data=train, base="data")
        else:
            rbm = machine(Path(folder) / f"{name}.npz", train)
        found = log_weights(rbm, n_stages, n_paths)
        sds = [weight.std(ddof=1) for weight in found]
        log_z = [np.logaddexp.reduce(weight) - np.log(n_paths) for weight in found]
        print(
            f"{name:9s}{n_stages:7d}  sd {sds[0]:.2f} {sds[1]:.2f}  "
            f"log Z {log_z[0]:.2f} {log_z[1]:.2f}  ratio {(sds[1] / sds[0]) ** 2:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the parameters")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--stages", type=int, default=1000)
    parser.add_argument("--paths", type=int, default=384)
    given = parser.parse_args()
    main(given.folder, given.only, given.stages, given.paths)
