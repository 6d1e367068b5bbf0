"""Many runs of a system, and how their estimates and intervals compare with the exact value."""

import time
import warnings
from dataclasses import dataclass

import numpy as np

import pm_evidence as pe
from pm_evidence.results.compare import BayesFactor
from tests.systems.exact import deceptive_systems, exact_systems

FAR = 5.0  # errors

HEADER = f"{'system':38s}  CPU s  cover mean z  sd z    mcse      sd   z(Z)   far    ok"


@dataclass(frozen=True)
class Repeated:
    """Many runs: estimates relative to the exact value, errors in nats, intervals, and costs."""

    error: np.ndarray
    mcse: np.ndarray
    covered: np.ndarray
    ok: np.ndarray
    seconds: np.ndarray

    @property
    def coverage(self):
        return self.covered[self.ok].mean()

    @property
    def far(self):
        """Share of runs that are "ok" and more than five of their errors off."""
        return self.beyond(FAR)

    def beyond(self, distance):
        """Share of runs that are "ok" and off by more than so many of their errors."""
        return np.mean(self.ok & (np.abs(self.error) > distance * self.mcse))

    @property
    def z(self):
        return self.error[self.ok] / self.mcse[self.ok]

    @property
    def z_of_mean(self):
        """Deviation of the mean of Z, in standard errors."""
        ratio = np.exp(self.error[self.ok])
        return (ratio.mean() - 1.0) / (ratio.std(ddof=1) / len(ratio) ** 0.5)

    def row(self, name):
        error, mcse = self.error[self.ok], self.mcse[self.ok]
        return (
            f"{name:38s} {np.median(self.seconds):6.2f} {self.coverage:6.1%} {self.z.mean():+6.2f} "
            f"{self.z.std():5.2f} {mcse.mean():7.4f} {error.std():7.4f} {self.z_of_mean:+6.1f} "
            f"{self.far:5.1%} {self.ok.mean():5.0%}"
        )


@dataclass(frozen=True)
class Rules:
    """What so many runs of a system have to fulfil; bounds of coverage are wider for fewer runs."""

    n_runs: int
    least_ok: float = 0.90  # share of all runs
    lowest: float = 0.90  # coverage of those that are "ok"
    highest: float = 0.99
    least_spread: float = 0.0  # standard deviation of errors divided by mcse
    distant: float = 3.5
    most_distant: float = 1.0  # share of all runs that are "ok" and off by more errors than that
    most_far: float = 0.01
    largest_mcse: float = np.inf  # on average
    largest_bias: float = 4.0  # deviation of the mean of Z in its standard errors

    def check(self, found, name="planted"):
        print(f"\n{HEADER}\n{found.row(name)}")
        n = found.ok.sum()
        spare = 0.0 if n >= self.least_ok * self.n_runs else 3.0 * np.sqrt(0.95 * 0.05 / n)
        assert found.ok.mean() >= self.least_ok
        assert min(self.lowest, 0.95 - spare) <= found.coverage <= max(self.highest, 0.95 + spare)
        assert found.z.std() >= self.least_spread
        assert found.beyond(self.distant) <= self.most_distant and found.far <= self.most_far
        assert found.mcse[found.ok].mean() <= self.largest_mcse
        assert abs(found.z_of_mean) < self.largest_bias


def repeat_system(name, seeds, estimator=None, **options):
    """Run a system many times; its model is compiled once."""
    system = (exact_systems() | deceptive_systems())[name]
    return repeat_model(system.build(), system.log_evidence, seeds, estimator, **options)


def repeat_model(model, exact, seeds, estimator=None, route=None, **options):
    """Run a model once for each seed, with these options; it is compiled once.

    Of each run the estimate of ``estimator`` is taken, by default the recommended one. With
    ``route``, runs that ended on another route are left out.
    """

    def run(seed):
        return pe.sample_evidence(model, random_seed=seed, progressbar=False, **options)

    return repeat(run, exact, seeds, estimator, route)


def repeat(run, exact, seeds, estimator=None, route=None):
    """Call a function that returns a result, or a Bayes factor, once for each seed."""
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        for seed in seeds:
            started = time.process_time()
            dt = run(seed)
            seconds = time.process_time() - started
            if isinstance(dt, BayesFactor):
                found, value = dt, dt.log_bf
            elif route in (None, dt["log_evidence"].attrs.get("route")):
                found = pe.log_evidence(dt, estimator=estimator)
                value = found.value
            else:
                continue
            inside = found.lower <= exact <= found.upper
            rows.append((value - exact, found.mcse, inside, found.status == "ok", seconds))
    error, mcse, covered, ok, seconds = np.array(rows).T
    return Repeated(error, mcse, covered.astype(bool), ok.astype(bool), seconds)
