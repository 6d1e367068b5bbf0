"""Annealing schedules on the machines of Kiwaki (2015), section 7: log Z and sample sizes.

LINEAR, SM08, GMS13, VAROPT and its decelerations with bounds of 0.009, 0.006 and 0.003 on the step,
forward only, on machines that ``train.py`` has trained. Three tables are written as csv: the
figures of every run; the effective sample size of the weights that paths have accumulated on the
way (the paper's Fig. 4); and the schedules themselves (Fig. 1).

The effective sample size is that of the paper's Eq. 5, ``M / (1 + var(w / mean(w)))``, with M paths
of weights w: ``pe.estimators.effective_sample_size``. The reference has the base rates of the
training images for all machines (``--base uniform`` for equal rates). The paper does not say which
reference it has.

Run it with ``python examples/papers/kiwaki2015/schedules.py FOLDER``, where FOLDER holds the
files of ``train.py``. All machines and stages take a quarter of an hour of one core for each of
``--seeds``; ``--quick`` takes seconds. Each machine, number of stages and seed is stored when it is
finished, and is not run again; accumulated sample sizes are stored of the first seed.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import pm_evidence as pe
from pm_evidence.testing import exact_log_z

sys.path.append(str(Path(__file__).parents[2]))
from real_data import mnist

RESULTS = Path(__file__).parents[2] / "results"
MACHINES = ("pcd20", "cd1_20", "cd25_20", "pcd500", "cd1_500", "cd25_500")
MIXING = ("pcd500_low", "cd25_500_low")
BOUNDS = (0.009, 0.006, 0.003)
SCHEDULES = {
    "LINEAR": pe.schedules.Linear(),
    "SM08": pe.schedules.SM08(),
    "GMS13": pe.schedules.GMS13(n_knots=10),
    "VAROPT": pe.schedules.VarOpt(),
    **{f"VAROPT {bound:g}": pe.schedules.VarOpt(largest_step=bound) for bound in BOUNDS},
}
# Paths and numbers of stages of small and of large machines.
RUNS = {20: 1000, 500: 512}
STAGES = {20: (1000, 4000, 20_000), 500: (1000, 4000)}
SEED = 20150625
_LARGEST_ENUMERATED = 20
_SMOOTHING = 0.01  # as pe.rbm.RBM does with data
_POINTS = np.linspace(0.0, 1.0, 51)[1:]  # of beta at which accumulated sample sizes are stored
_SHARES = np.linspace(0.0, 1.0, 51)  # of the stages at which beta is stored
_SHORT = 400, 16  # stages and paths of a run that learns a schedule


def machine(file, train, base="data"):
    """Return a machine from the file of its parameters."""
    rates = (train.mean(axis=0) + _SMOOTHING) / (1.0 + 2.0 * _SMOOTHING)
    with np.load(file) as found:
        return pe.rbm.RBM(
            found["W"],
            found["visible_bias"],
            found["hidden_bias"],
            base=rates if base == "data" else base,
        )


def annealed(rbm, schedule, n_stages, runs, seed=0):
    """Return the figures of a run, the sample sizes of accumulated weights by beta, and beta."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)  # the status is in the table
        dt = pe.sample_evidence(
            rbm,
            schedule=schedule,
            method=pe.methods.AIS(n_stages=n_stages, direction="forward"),
            draws=runs,
            target_mcse=None,
            random_seed=SEED + seed,
            progressbar=False,
        )
    found, work = pe.log_evidence(dt), dt["work"]["forward"].values
    beta = dt["annealing"]["beta"].values
    figures = {
        "log_z": found.value,
        "mcse": found.mcse,
        "status": found.status,
        "ess": pe.estimators.effective_sample_size(work) / len(work),
        "sd": work.std(ddof=1),
        "predicted_sd": np.sqrt(pe.to_record(dt).schedule.predicted_variance),
        "largest_step": np.diff(beta).max(),
        "seconds": time.perf_counter() - started,
    }
    # blocks have the same number of paths, apart from the last
    shares = dt["annealing"]["path_ess"].values.mean(axis=0)
    return figures, np.interp(_POINTS, beta[1:], shares), beta


def schedules_of(rbm, n_stages, runs, seed=0):
    """Yield name, figures and accumulated sample sizes of every schedule.

    A bound that no step of VAROPT exceeds changes nothing; such a run is not repeated.
    """
    plain = None
    for name, schedule in SCHEDULES.items():
        bound = getattr(schedule, "largest_step", None)
        if bound is not None and bound * n_stages < 1.0:
            continue  # so many stages do not reach 1
        if bound is None or plain is None or plain[0]["largest_step"] > bound:
            result = annealed(rbm, schedule, n_stages, runs, seed)[:2]
        else:
            result = plain
        if name == "VAROPT":
            plain = result
        yield name, *result


def curves_of(name, rbm, base):
    """Return beta of four schedules at shares of their stages."""
    n_stages, runs = _SHORT
    parts = []
    for schedule in ("LINEAR", "SM08", "GMS13", "VAROPT"):
        beta = annealed(rbm, SCHEDULES[schedule], n_stages, runs)[2]
        key = {"machine": name, "base": base, "n_stages": n_stages, "schedule": schedule, "seed": 0}
        at = np.interp(_SHARES, np.linspace(0.0, 1.0, len(beta)), beta)
        parts.append(pd.DataFrame(key | {"stage": _SHARES, "beta": at}))
    return pd.concat(parts)


def tables_of(name, rbm, n_stages, runs, base, seed=0):
    """Return the figures of all schedules, and the accumulated sample sizes."""
    rows, on_the_way = [], []
    exact = np.nan
    if rbm.n_hidden <= _LARGEST_ENUMERATED:
        exact = exact_log_z(rbm.W, rbm.visible_bias, rbm.hidden_bias)
    for schedule, figures, shares in schedules_of(rbm, n_stages, runs, seed):
        key = {"machine": name, "base": base, "n_stages": n_stages, "schedule": schedule}
        rows.append({**key, "seed": seed, "runs": runs, "exact": exact, **figures})
        on_the_way += [
            {**key, "beta": beta, "share": share}
            for beta, share in zip(_POINTS, shares, strict=True)
        ]
        print(
            f"{name:9s}{n_stages:7d} {schedule:13s}{figures['log_z']:9.3f} "
            f"± {figures['mcse']:.3f}  ESS {runs * figures['ess']:4.0f} of {runs}  "
            f"sd {figures['sd']:.2f}  {figures['seconds']:.1f} s  {figures['status']}",
            flush=True,
        )
    return pd.DataFrame(rows), pd.DataFrame(on_the_way)


def best(table):
    """Return the schedule of the largest sample size for each machine at most stages."""
    last = table[table.n_stages == table.groupby("machine").n_stages.transform("max")]
    last = last.groupby(["machine", "schedule"], as_index=False, sort=False).ess.mean()
    return last.loc[last.groupby("machine").ess.idxmax()].set_index("machine").schedule


def main(
    folder,
    out=RESULTS,
    *,
    names=MACHINES + MIXING,
    runs=None,
    stages=None,
    base="data",
    seeds=1,
    data=None,
):
    """Anneal the machines in ``folder``, write the tables to ``out``, and return the first.

    What the files hold already is kept, and not run again. Seeds come one after the other, so that
    all cells of the tables have about as many of them.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    files = [out / f"kiwaki2015_{kind}.csv" for kind in ("schedules", "path_ess", "beta")]
    train, _ = mnist(data)
    rbms = {name: machine(Path(folder) / f"{name}.npz", train, base) for name in names}
    for seed in range(seeds):
        for name, rbm in rbms.items():
            kind = 20 if rbm.n_hidden <= _LARGEST_ENUMERATED else 500
            own = stages or STAGES[kind]
            for n_stages in own:
                if is_there(files[0], name, base, n_stages, seed):
                    continue
                found = tables_of(name, rbm, n_stages, runs or RUNS[kind], base, seed)
                appended(files[0], found[0])
                if seed == 0 and n_stages == max(own):
                    appended(files[1], found[1])
    for name, rbm in rbms.items():
        if not is_there(files[2], name, base, _SHORT[0], 0):
            appended(files[2], curves_of(name, rbm, base))
    table = pd.read_csv(files[0])
    print(f"\nlargest sample size at most stages\n{best(table[table.base == base]).to_string()}")
    return table


def is_there(file, *key):
    """Return whether a file holds rows of a machine, base, number of stages and seed."""
    if not file.is_file():
        return False
    columns = pd.read_csv(file)[["machine", "base", "n_stages", "seed"]]
    return bool((columns == list(key)).all(axis=1).any())


def appended(file, rows):
    """Append rows to a file."""
    rows.to_csv(file, mode="a", header=not file.is_file(), index=False, float_format="%.5g")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the parameters")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the tables")
    names = MACHINES + MIXING
    parser.add_argument("--only", nargs="+", choices=names, default=list(names))
    parser.add_argument("--seeds", type=int, default=1, help="number of repetitions")
    parser.add_argument("--runs", type=int, help="number of paths")
    parser.add_argument("--stages", type=int, nargs="+", help="numbers of stages")
    parser.add_argument("--base", choices=("data", "uniform"), default="data")
    parser.add_argument("--quick", action="store_true", help="64 paths of 400 stages")
    arguments = parser.parse_args()
    main(
        arguments.folder,
        arguments.out,
        names=arguments.only,
        seeds=arguments.seeds,
        runs=64 if arguments.quick else arguments.runs,
        stages=(400,) if arguments.quick else arguments.stages,
        base=arguments.base,
    )
