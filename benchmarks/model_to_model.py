"""Bayes factors by annealing from one model to the other, against two separate evidences.

Both are run with their defaults on pairs whose Bayes factor is known, in one process on one core.
For ``bayes_factor`` the time includes that of the posterior draws; that with posterior draws which
are there already, those of the two evidences, is shown beside it. The models are compiled before.
``python benchmarks/model_to_model.py [pair ...]``
"""

import time
from collections.abc import Callable

import numpy as np
from common import start

import pm_evidence as pe
from tests.systems.pairs import ModelPair, model_pairs

QUIET = {"progressbar": False, "cores": 1}
HEADER = (
    f"{'pair':22s} {'method':24s} {'RMSE':>8s} {'mcse':>8s} {'CPU s':>7s} {'evaluations':>12s} "
    f"{'RMSE^2 x s':>11s} {'ratio':>6s} {'ok':>5s}"
)
Run = Callable[[int], tuple[float, float, int, bool]]


def of_pair(pair: ModelPair, repeats: int) -> None:
    """Print the errors and costs of the three ways to the Bayes factor of a pair."""
    models = pair.build()
    results: list[tuple[object, object]] = []

    def two(seed: int) -> tuple[float, float, int, bool]:
        runs = [pe.sample_evidence(model, random_seed=seed, **QUIET) for model in models]
        results.append((runs[0], runs[1]))
        spent = sum(int(dt["log_evidence"].attrs["n_evaluations"]) for dt in runs)
        found = pe.bayes_factor(*runs)
        return found.log_bf, found.mcse, spent, found.status == "ok"

    def between(seed: int, idata: object = None) -> tuple[float, float, int, bool]:
        found = pe.bayes_factor(*models, idata=idata, random_seed=seed, **QUIET)
        return found.log_bf, found.mcse, found.n_evaluations, found.status == "ok"

    def with_draws(seed: int) -> tuple[float, float, int, bool]:
        return between(seed, results[seed % len(results)])

    two(0), between(0)  # compiles the models
    results.clear()
    ways: dict[str, Run] = {
        "two evidences": two,
        "between models": between,
        "  with draws at hand": with_draws,
    }
    usual = np.nan
    for name, way in ways.items():
        started = time.process_time()
        rows = [way(seed) for seed in range(1, repeats + 1)]
        seconds = (time.process_time() - started) / repeats
        value, mcse, spent, ok = (np.array(column) for column in zip(*rows, strict=True))
        square = float(np.mean((value - pair.log_bf) ** 2))
        usual = square * seconds if np.isnan(usual) else usual
        print(
            f"{pair.name:22s} {name:24s} {square**0.5:8.4f} {mcse.mean():8.4f} {seconds:7.2f} "
            f"{spent.mean():12,.0f} {square * seconds:11.2e} {usual / (square * seconds):6.1f} "
            f"{ok.mean():5.0%}",
            flush=True,
        )


def main() -> None:
    """Compare the ways for the pairs that are asked for."""
    options = start(__doc__, repeats=20)
    print(HEADER)
    for name, pair in model_pairs().items():
        if not options.names or any(part in name for part in options.names):
            of_pair(pair, options.repeats)


if __name__ == "__main__":
    main()
