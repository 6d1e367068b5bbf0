"""Many runs of a system, and how their estimates and intervals compare with the exact value."""

import time
import warnings
from dataclasses import dataclass

import numpy as np

import pm_evidence as pe

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


def repeat_model(model, exact, seeds, estimator=None, route=None, **options):
    """Run a model once for each seed, with these options; it is compiled once.

    Of each run the estimate of ``estimator`` is taken, by default the recommended one. With
    ``route``, runs that ended on another route are left out.
    """

    def run(seed):
        return pe.sample_evidence(model, random_seed=seed, progressbar=False, **options)

    return repeat(run, exact, seeds, estimator, route)


def repeat(run, exact, seeds, estimator=None, route=None):
    """Call a function that returns a result once for each seed."""
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        for seed in seeds:
            started = time.process_time()
            dt = run(seed)
            seconds = time.process_time() - started
            if route not in (None, dt["log_evidence"].attrs.get("route")):
                continue
            found = pe.log_evidence(dt, estimator=estimator)
            inside = found.lower <= exact <= found.upper
            rows.append((found.value - exact, found.mcse, inside, found.status == "ok", seconds))
    error, mcse, covered, ok, seconds = np.array(rows).T
    return Repeated(error, mcse, covered.astype(bool), ok.astype(bool), seconds)
