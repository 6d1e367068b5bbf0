"""Six estimators on a Gaussian that moves and narrows: Figures 1 and 2 of Habeck (2017).

N(20, 10^2) is carried into N(0, 1), whose log evidence is -log 10 nats, in K steps; the kernel is
an autoregression. Two ways of going between:

    geometric  densities f0^(1-beta) f1^beta; steps of equal relative entropy; five moves a stage,
               whose correlation goes from 0.9 to 0.995. These are the settings of Figure 1 in the
               author's repository, https://github.com/michaelhabeck/paths; the paper names none.
    straight   mean and standard deviation in straight lines, equal steps, correlation 0.5: the
               target ``pe.mixtures.Gaussian()`` as it comes.

Run it with ``python examples/papers/habeck2017/gaussian.py``; it prints a table of errors and
writes ``figure1.png``, ``figure2.png`` and the table, ``figure2.csv``. ``--quick`` makes few
repetitions.
"""

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

import pm_evidence as pe
from pm_evidence.core.contracts import Plan
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import Facts, Role, RunRecord
from pm_evidence.estimators.of_run import estimates
from pm_evidence.families.gaussian import Autoregression, MovingGaussian
from pm_evidence.schedules import linear

SEED = 20170612
RESULTS = Path(__file__).parent / "results"

N_PATHS = 100  # in each direction, of every estimate
TABLE = (10, 20, 50, 100, 200)
FULL = (5, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200)

EXACT = pe.mixtures.Gaussian().log_evidence
_MOST_ITERATIONS = 100

# The estimators in the order of the panels of Figure 2.
PANELS = {
    "cumulant_forward": "forward cumulant",
    "cumulant": "combined cumulant",
    "jarzynski": "forward AIS",
    "jarzynski_reverse": "reverse AIS",
    "bar": "BAR",
    "histogram": "histogram",
}
BLUE, GREEN, RED = "#1f78b4", "#33a02c", "#e31a1c"


# --- the two paths ---

STRAIGHT = MovingGaussian(pe.mixtures.Gaussian(tau=0.5))


@dataclass(frozen=True)
class Geometric:
    """The geometric path between the ends of a Gaussian, and what its kernel asks of a target.

    It has what ``AIS`` needs of a path and nothing more.
    """

    ends: pe.mixtures.Gaussian
    n_moves: int

    @property
    def target(self):
        return self

    def sd_at(self, beta):
        ends = self.ends
        return ((1.0 - beta) / ends.start_sd**2 + beta / ends.sd**2) ** -0.5

    def mean_at(self, beta):
        ends = self.ends
        pull = (1.0 - beta) * ends.start_mean / ends.start_sd**2 + beta * ends.mean / ends.sd**2
        return self.sd_at(beta) ** 2 * pull

    def moments(self, beta):
        return self.mean_at(beta), self.sd_at(beta)

    def tau_at(self, beta):
        # autoregressions of one mean and sd make one autoregression, whose tau is their product
        return self.ends.tau_at(beta) ** self.n_moves

    def draw(self, n, seed):
        return MovingGaussian(self.ends).draw(n, seed)

    def at(self, draws):
        return MovingGaussian(self.ends).at(draws)

    def energy(self, state, beta):
        x, ends = state.x[:, 0], self.ends
        at_target = (x - ends.mean) / ends.sd
        at_reference = (x - ends.start_mean) / ends.start_sd
        return 0.5 * (at_target**2 - at_reference**2)

    def log_ratio(self, state, start, stop):
        return (start - stop) * self.energy(state, start)


GEOMETRIC = Geometric(pe.mixtures.Gaussian(tau=(0.9, 0.995)), n_moves=5)


def equal_entropy(path, n_stages):
    """Return a schedule whose stages all have the relative entropy KL(p_k || p_{k+1})."""
    beta = linear(n_stages)
    for _ in range(_MOST_ITERATIONS):
        mean, sd = path.target.mean_at(beta), path.target.sd_at(beta)
        wide = sd[1:] / sd[:-1]
        entropy = 0.5 * (wide**-2 + (np.diff(mean) / sd[1:]) ** 2 - 1.0) + np.log(wide)
        # that of small steps is their length squared; cut the length into equal parts
        length = np.append(0.0, np.cumsum(np.sqrt(entropy)))
        beta = np.interp(np.linspace(0.0, length[-1], n_stages + 1), length, beta)
        if np.ptp(entropy) < 1e-9 * entropy.mean():
            return beta
    raise RuntimeError(f"no schedule of {n_stages} equal stages was found.")


@dataclass(frozen=True)
class Setting:
    """A path and its schedules."""

    path: Any
    schedule: Any

    def plan(self, n_stages):
        return Plan(self.schedule(n_stages), (Autoregression(),) * n_stages)


SETTINGS = {
    "geometric": Setting(GEOMETRIC, lambda n_stages: equal_entropy(GEOMETRIC, n_stages)),
    "straight": Setting(STRAIGHT, linear),
}


# --- exact results ---


def stationary(path, beta):
    """Return mean, standard deviation and kernel correlation of every p_k, shape (3, K + 1)."""
    target = path.target
    return np.array([(target.mean_at(b), target.sd_at(b), target.tau_at(b)) for b in beta]).T


def marginals(mean, sd, tau):
    """Return mean and sd of the states after every kernel: a linear recursion."""
    m, v = [mean[0]], [sd[0] ** 2]
    for mean_k, sd_k, tau_k in zip(mean[1:], sd[1:], tau[1:], strict=True):
        m.append((1.0 - tau_k) * mean_k + tau_k * m[-1])
        v.append((1.0 - tau_k**2) * sd_k**2 + tau_k**2 * v[-1])
    return np.array(m), np.sqrt(v)


def expected_work(path, beta):
    """Return the expectation of forward work, and of the same work on reverse paths, in nats."""
    p = stationary(path, beta)

    def total(mean, sd):
        """Sum E_{k+1} - E_k over the states that stage k takes its work at."""
        after = (sd**2 + (mean - p[0, 1:]) ** 2) / p[1, 1:] ** 2
        before = (sd**2 + (mean - p[0, :-1]) ** 2) / p[1, :-1] ** 2
        return 0.5 * float(np.sum(after - before))

    mean, sd = marginals(*p)
    back_mean, back_sd = (values[::-1] for values in marginals(*p[:, ::-1]))
    return total(mean[:-1], sd[:-1]), total(back_mean[1:], back_sd[1:])


def log_moment(path, beta, power):
    """Return log E[exp(-power W)] over forward paths; infinite where the moment is.

    What the stages from k on contribute, given the state before them, is
    exp(-(a x^2 / 2 + b x + c)): from the last stage backwards, each kernel integrates it over a
    normal density and each step of the work adds its own terms.
    """
    mean, sd, tau = stationary(path, beta)
    a = b = c = 0.0
    for k in range(len(beta) - 2, -1, -1):
        a += power * (sd[k + 1] ** -2 - sd[k] ** -2)
        b -= power * (mean[k + 1] / sd[k + 1] ** 2 - mean[k] / sd[k] ** 2)
        c += 0.5 * power * ((mean[k + 1] / sd[k + 1]) ** 2 - (mean[k] / sd[k]) ** 2)
        # the first state is drawn from the reference: a kernel that forgets
        slope = tau[k] if k else 0.0
        shift, variance = (1.0 - slope) * mean[k], (1.0 - slope**2) * sd[k] ** 2
        d = 1.0 + a * variance
        if d <= 0.0:
            return np.inf
        c += 0.5 * (np.log(d) - variance * b**2 / d) + (0.5 * a * shift + b) * shift / d
        a, b = a * slope**2 / d, (a * shift + b) * slope / d
    return -c


def weight_variances(path, beta):
    """Return the relative variance of a forward path's weight, and of a reverse path's.

    Divided by the number of paths it is the squared error of either AIS estimate, for many paths.
    By Crooks' theorem the reverse one needs E[exp(W)] over forward paths only.
    """
    log_z = log_moment(path, beta, 1.0)
    forward = np.expm1(log_moment(path, beta, 2.0) - 2.0 * log_z)
    return float(forward), float(np.expm1(log_moment(path, beta, -1.0) + log_z))


def stages_of_finite_variance(setting, most=200):
    """Return the least K from which on the weights of reverse paths have a variance."""
    return next(
        (
            k + 1
            for k in range(most, 0, -1)
            if np.isinf(weight_variances(setting.path, setting.schedule(k))[1])
        ),
        1,
    )


# --- simulation ---


def simulate(setting, n_stages, n_paths, seed=SEED):
    """Return blocks of forward paths, and of reverse paths from exact draws of the target."""
    plan, path = setting.plan(n_stages), setting.path
    forward = pe.methods.AIS().run_block(path, plan, n_stages, n_paths, seed)
    rng = np.random.default_rng([seed, n_stages])
    start = rng.normal(path.target.mean_at(1.0), path.target.sd_at(1.0), size=(n_paths, 1))
    return forward, pe.methods.AIS().run_reverse(path, plan, n_stages, start, None, seed)


def repeat(setting, n_stages, repetitions, seed=SEED):
    """Return every estimate of every repetition as a table, with the work of all paths.

    The status is the one that ``pe.sample_evidence`` would give, which holds the two directions
    against each other.
    """
    forward, reverse = simulate(setting, n_stages, repetitions * N_PATHS, seed)
    beta, rows = setting.schedule(n_stages), []
    for r in range(repetitions):
        part = slice(r * N_PATHS, (r + 1) * N_PATHS)
        blocks = {
            role: (replace(block, work=block.work[part]),)
            for role, block in ((Role.FORWARD, forward), (Role.REVERSE, reverse))
        }
        record = RunRecord("ais", beta, blocks, facts=Facts(reverse_start="exact"))
        rows += [
            (
                n_stages,
                found.estimator,
                found.value - EXACT,
                found.mcse,
                found.status,
                found.lower <= EXACT <= found.upper,
            )
            for found in estimates(record)
            if found.status != "bound"
        ]
    columns = ["K", "estimator", "error", "mcse", "status", "covered"]
    return pd.DataFrame(rows, columns=columns), (forward.work, reverse.work)


def summary(runs):
    """Return bias, standard deviation and verdicts by K and estimator."""
    ok = runs["status"] == "ok"
    runs = runs.assign(ok=ok, covered_ok=runs["covered"].where(ok).astype(float))
    groups = runs[runs["estimator"].isin(PANELS)].groupby(["K", "estimator"], sort=False)
    table = groups.agg(
        bias=("error", "mean"),
        sd=("error", "std"),
        coverage=("covered", "mean"),
        ok=("ok", "mean"),
        coverage_ok=("covered_ok", "mean"),
    )
    return table.reindex(list(PANELS), level="estimator")


# --- figures ---


def figure1(setting, works, path, n_paths):
    """Draw the work densities, the lag of the paths, and the bounds."""
    from matplotlib import pyplot as plt

    figure, (density, lag, bounds) = plt.subplots(1, 3, figsize=(10.5, 3.4), layout="constrained")
    line = setting.path

    bins = np.arange(-2.5, 20.01, 0.1)
    for block, color, name in zip(
        simulate(setting, 10, n_paths), (BLUE, GREEN), ("$p_f(W)$", "$p_r(W)$"), strict=True
    ):
        # a share of all paths, also of those beyond the picture
        height = np.histogram(block.work, bins)[0] / (n_paths * np.diff(bins))
        density.stairs(height, bins, fill=True, color=color, alpha=0.3)
        density.stairs(height, bins, color=color, label=name)
    density.axvline(-EXACT, color="k", ls="--", label=r"$-\log Z$")
    density.set(xlim=(-2.5, 20.0), ylim=(0.0, None), xlabel="work W", ylabel="density")

    p = stationary(line, setting.schedule(10))
    index = np.arange(p.shape[1])
    for (mean, sd), color, name in ((p[:2], BLUE, "$p_k$"), (marginals(*p), GREEN, "$q_k$")):
        lag.fill_between(index, mean - sd, mean + sd, color=color, alpha=0.25)
        lag.plot(index, mean, color=color, label=name)
    lag.set(xlim=(0, 10), xlabel="index k", ylabel="x")

    stages = np.unique(np.geomspace(5, max(works), 40).astype(int))
    work = np.array([expected_work(line, setting.schedule(k)) for k in stages])
    for column, color, name in ((0, BLUE, "f"), (1, GREEN, "r")):
        label = rf"$-\langle W\rangle_{name}$"
        bounds.plot(stages, -work[:, column], color=color, label=label)
        means = [-pair[column].mean() for pair in works.values()]
        bounds.plot(list(works), means, "o", ms=3.5, color=color)
    jarzynski = [log_mean_exp(-pair[0]) for pair in works.values()]
    bounds.plot(
        list(works), jarzynski, "s-", ms=3.5, color=RED, label=r"$\log\langle e^{-W}\rangle_f$"
    )
    bounds.axhline(EXACT, color="k", ls="--", label=r"$\log Z$")
    low = -expected_work(line, setting.schedule(10))[0]
    bounds.set(xlim=(0, 204), ylim=(1.1 * low, 1.0), xlabel="K", ylabel="nats")

    for axes, letter in zip((density, lag, bounds), "ABC", strict=True):
        axes.set_title(letter, loc="left", fontweight="bold")
        axes.legend(frameon=False)
    figure.savefig(path, dpi=100)


def figure2(runs, path):
    """Draw the error of every estimator against K, with a band of one standard deviation."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        2, 3, figsize=(9.0, 5.2), sharex=True, sharey=True, layout="constrained"
    )
    table = summary(runs)
    for panel, name, letter in zip(axes.flat, PANELS, "ABCDEF", strict=True):
        rows = table.xs(name, level="estimator")
        low, high = rows["bias"] - rows["sd"], rows["bias"] + rows["sd"]
        panel.axhline(0.0, color="k", lw=0.8, ls="--")
        panel.fill_between(rows.index, low, high, color=RED, alpha=0.2)
        panel.plot(rows.index, rows["bias"], color=RED)
        panel.set_title(f"{letter}  {PANELS[name]}", loc="left")
    axes[0, 0].set(xlim=(0, 200), ylim=(-0.3, 0.3))
    figure.supxlabel("K")
    figure.supylabel("error of log Z (nats)")
    figure.savefig(path, dpi=100)


# --- all of it ---


def main(out=RESULTS, *, quick=False, path="geometric"):
    """Repeat, print the table, draw both figures; return the table."""
    mpl.use("Agg")
    started = time.perf_counter()
    setting, repetitions = SETTINGS[path], 20 if quick else 1000
    parts, works = [], {}
    for n_stages in TABLE if quick else FULL:
        part, works[n_stages] = repeat(setting, n_stages, repetitions)
        parts.append(part)
    runs = pd.concat(parts)
    table = summary(runs)

    print(f"Path {path}: {repetitions} repetitions with {N_PATHS} paths in each direction (nats)\n")
    print(table.loc[list(TABLE)].to_string(float_format="{:.3f}".format, na_rep=""))
    print("\nRelative variance of a path's weight, exact, and the bounds that it goes with\n")
    for n_stages in TABLE:
        forward, reverse = weight_variances(setting.path, setting.schedule(n_stages))
        lower, upper = (-w for w in expected_work(setting.path, setting.schedule(n_stages)))
        print(
            f"K = {n_stages:3d}: forward {forward:7.3f}, reverse {reverse:9.3f}; "
            f"log Z between {lower:7.3f} and {upper:6.3f}"
        )
    least = stages_of_finite_variance(setting)
    print(f"The weights of reverse paths have a variance from K = {least} on.")

    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    figure1(setting, works, out / "figure1.png", n_paths=20_000 if quick else 1_000_000)
    figure2(runs, out / "figure2.png")
    table.to_csv(out / "figure2.csv", float_format="%.5g")
    print(f"\nThe figures are in {out}. All took {time.perf_counter() - started:.0f} s.")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=RESULTS, help="folder of the figures")
    parser.add_argument("--quick", action="store_true", help="few repetitions")
    parser.add_argument("--path", choices=SETTINGS, default="geometric", help="how to go between")
    arguments = parser.parse_args()
    main(arguments.out, quick=arguments.quick, path=arguments.path)
