"""Forward annealing against annealing both ways, at equal total cost.

Both use the same schedule and kernels, and make one round. The forward run has as many more paths
as make up for what the other spends on reverse paths and on the islands that these start from,
counted in density evaluations. ``python benchmarks/two_sided.py [system ...]``
"""

import argparse
import warnings

import numpy as np
import pymc as pm

import pm_evidence as pe
from tests.systems.exact import exact_systems

SYSTEMS = [
    "bimodal",
    "bimodal_10",
    "correlated_gaussian_50",
    "eight_schools_half_cauchy_noncentred",
    "gaussian_10",
    "hidden_markov",
    "label_switching",
    "random_walk",
    "spike_and_slab",
    "student_t_groups",
]


def run(model: pm.Model, direction: str, draws: int, n_stages: int, seed: int) -> tuple[float, int]:
    """Return the recommended log evidence of one run, and its density evaluations."""
    dt = pe.sample_evidence(
        model,
        method=pe.methods.AIS(direction=direction, n_stages=n_stages),
        draws=draws,
        target_mcse=None,
        random_seed=seed,
        progressbar=False,
    )
    return pe.log_evidence(dt).value, int(dt["log_evidence"].attrs["n_evaluations"])


def compare(name: str, draws: int, repeats: int) -> None:
    """Print the errors of both at equal cost."""
    system = exact_systems()[name]
    model = system.build()
    dt = pe.sample_evidence(
        model, method="ais", draws=draws, target_mcse=None, random_seed=0, progressbar=False
    )
    n_stages = dt["annealing"].sizes["stage"]
    cost = [run(model, direction, draws, n_stages, 0)[1] for direction in ("both", "forward")]
    paths = round(draws * cost[0] / cost[1])
    errors = {
        direction: np.array(
            [run(model, direction, n, n_stages, seed)[0] for seed in range(1, repeats + 1)]
        )
        - system.log_evidence
        for direction, n in (("both", draws), ("forward", paths))
    }
    square = {direction: float(np.mean(values**2)) for direction, values in errors.items()}
    print(
        f"{name:38s} {n_stages:6d} {draws:5d} {paths:5d} {cost[0]:10.3g} "
        f"{square['forward'] ** 0.5:8.4f} {square['both'] ** 0.5:8.4f} "
        f"{square['both'] / square['forward']:6.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("systems", nargs="*", default=SYSTEMS)
    parser.add_argument("--draws", type=int, default=1000, help="paths in each direction")
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args()
    warnings.simplefilter("ignore", pe.EvidenceWarning)
    print(f"{options.repeats} runs each; root mean square errors in nats, ratio of their squares")
    print(f"{'system':38s} stages paths alone evaluations forward     both  ratio")
    for name in options.systems:
        compare(name, options.draws, options.repeats)


if __name__ == "__main__":
    main()
