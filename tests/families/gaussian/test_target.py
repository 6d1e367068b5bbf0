"""The Gaussian toy: its exact results, and the estimates of a whole run.

Everything about it is known in closed form, so it is where the samplers and the estimators are
seen to be right without a model to compile. Estimates over seeds are held to 4 standard errors, a
false-alarm rate of 6e-5 each; single runs to 4 of their own mcse. Seeds are fixed.
"""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.contracts import Plan
from pm_evidence.estimators.bar import bar_log_evidence
from pm_evidence.families.gaussian import Autoregression, MovingGaussian
from pm_evidence.schedules import linear

GAUSSIANS = {
    "habeck": pe.mixtures.Gaussian(),
    "fast to slow": pe.mixtures.Gaussian(tau=(0.2, 0.8)),
    "widening": pe.mixtures.Gaussian(0.0, 1.0, -3.0, 2.5, tau=0.3),
    "only moving": pe.mixtures.Gaussian(0.0, 2.0, 4.0, 2.0),
}
KERNEL = Autoregression()
N_STAGES, N_PATHS, N_SEEDS = 20, 500, 60
MCSES = 4.0
every_gaussian = pytest.mark.parametrize("name", GAUSSIANS)


def sample(target, **kwargs):
    return pe.sample_evidence(
        target, random_seed=1, progressbar=False, **{"target_mcse": None} | kwargs
    )


# --- the target ---


def test_evidence_is_the_ratio_of_the_integrals():
    """It is that of densities whose peaks have height one."""
    x = np.linspace(-400.0, 400.0, 800_001)
    for gaussian in GAUSSIANS.values():
        path = MovingGaussian(gaussian)
        state = path.at(x[:, None])
        reference = -0.5 * ((x - gaussian.start_mean) / gaussian.start_sd) ** 2
        ratio = np.exp(reference + path.log_ratio(state, 0.0, 1.0)).sum() / np.exp(reference).sum()
        assert np.log(ratio) == pytest.approx(gaussian.log_evidence, abs=1e-9)


def test_one_correlation_holds_everywhere_and_two_at_the_ends():
    assert [pe.mixtures.Gaussian(tau=0.3).tau_at(beta) for beta in (0.0, 0.4, 1.0)] == [0.3] * 3
    two = pe.mixtures.Gaussian(tau=(0.2, 0.8))
    assert [two.tau_at(beta) for beta in (0.0, 0.5, 1.0)] == pytest.approx([0.2, 0.5, 0.8])


def test_what_is_wrong_is_named():
    wrong = [(name, x) for name in ("start_sd", "sd") for x in (0.0, -1.0, np.inf, np.nan, "1")]
    for name, value in wrong:
        with pytest.raises(ValueError, match=rf"^{name} must be a finite number above 0, got"):
            pe.mixtures.Gaussian(**{name: value})
    for name in ("start_mean", "mean"):
        for value in (np.inf, np.nan, "1", None):
            with pytest.raises(ValueError, match=rf"^{name} must be a finite number, got"):
                pe.mixtures.Gaussian(**{name: value})
    for tau in (1.0, -0.1, np.nan, "a", [0.1, 0.2], (0.5, 1.0), (0.1, 0.2, 0.3), ()):
        with pytest.raises(ValueError, match="tau must be a number from 0 to below 1, or two of"):
            pe.mixtures.Gaussian(tau=tau)
    with pytest.raises(ValueError, match="kernel must be"):
        sample(pe.mixtures.Gaussian(), kernel="hmc")


# --- forward and reverse paths ---


def works(gaussian, n_paths, seed, *, shift=0.0, kernel=KERNEL):
    """Work of forward paths, and of reverse ones from draws that are ``shift`` sd off."""
    path = MovingGaussian(gaussian)
    plan = Plan(linear(N_STAGES), (kernel,) * N_STAGES)
    forward = pe.methods.AIS().run_block(path, plan, 0, n_paths, seed)
    rng = np.random.default_rng([99, seed])
    start = rng.normal(gaussian.mean + shift * gaussian.sd, gaussian.sd, size=(n_paths, 1))
    return forward.work, pe.methods.AIS().run_reverse(path, plan, 0, start, None, seed).work


def z_score(values):
    return values.mean() / (values.std(ddof=1) / len(values) ** 0.5)


def crooks_z(gaussian, **kwargs):
    """Deviation from E_f[g(-W - log Z)] = E_r[g(W + log Z)], g the logistic, in errors.

    It is what Crooks' theorem says of a bounded function: no tail can hide a failure.
    """
    forward, reverse = works(gaussian, 40_000, seed=5, **kwargs)
    f = 1.0 / (1.0 + np.exp(forward + gaussian.log_evidence))
    r = 1.0 / (1.0 + np.exp(-reverse - gaussian.log_evidence))
    return (f.mean() - r.mean()) / np.sqrt((f.var() + r.var()) / len(f))


def bar_z(gaussian, **kwargs):
    """Mean error of Bennett's estimate over seeds, in errors."""
    found = [bar_log_evidence(*works(gaussian, N_PATHS, seed, **kwargs)) for seed in range(N_SEEDS)]
    return z_score(np.array(found) - gaussian.log_evidence)


@every_gaussian
def test_both_directions_obey_the_fluctuation_theorem(name):
    """Reverse runs that are not the mirror image of forward ones bias all two-sided estimates."""
    assert abs(crooks_z(GAUSSIANS[name])) < 4.0


@every_gaussian
def test_bennetts_estimate_is_right_on_average(name):
    assert abs(bar_z(GAUSSIANS[name])) < 4.0


class BesideTheMean(Autoregression):
    """A planted error: a kernel that draws to a place beside the mean."""

    def advance(self, path, state, beta, streams):
        moved, info = super().advance(path, state, beta, streams)
        return path.at(moved.x + 0.1 * path.target.sd_at(beta)), info


def test_a_wrong_kernel_is_noticed():
    assert abs(crooks_z(pe.mixtures.Gaussian(), kernel=BesideTheMean())) > 4.0


def test_starts_beside_the_target_are_noticed():
    # of a slow kernel, which does not forget them at once
    assert abs(crooks_z(pe.mixtures.Gaussian(tau=0.8), shift=0.5)) > 4.0


# --- whole runs ---


@every_gaussian
def test_a_run_finds_the_evidence(name):
    gaussian = GAUSSIANS[name]
    dt = sample(gaussian)
    found = pe.log_evidence(dt)
    assert (found.estimator, found.status) == ("bar", "ok")
    assert abs(found.value - gaussian.log_evidence) < MCSES * found.mcse
    assert found.mcse < 0.1
    lower, upper = (pe.log_evidence(dt, estimator=f"{end}_bound") for end in ("lower", "upper"))
    assert lower.value < gaussian.log_evidence < upper.value
    x = dt.posterior["x"].to_numpy()
    assert x.mean() == pytest.approx(gaussian.mean, abs=0.1 * gaussian.sd)
    assert x.std() == pytest.approx(gaussian.sd, rel=0.1)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "smc"},
        {"method": pe.methods.AIS(direction="forward")},
        {"method": pe.methods.AIS(n_stages=30), "schedule": "linear"},
        {"schedule": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], "draws": 3000},
    ],
    ids=["smc", "forward", "linear", "own schedule"],
)
def test_other_ways_to_run_it(options):
    found = pe.log_evidence(sample(pe.mixtures.Gaussian(tau=0.2), **options))
    assert found.status == "ok"
    assert abs(found.value + np.log(10.0)) < MCSES * found.mcse


def test_nothing_to_do_is_no_contradiction():
    """Work that is rounding noise says that reference and target are the same."""
    found = pe.log_evidence(sample(pe.mixtures.Gaussian(0.0, 1.0, 0.0, 1.0)))
    assert found.status == "ok" and abs(found.value) < 1e-9


def test_later_rounds_are_larger():
    """The islands of all rounds lengthen the chains, all alike."""
    dt = sample(pe.mixtures.Gaussian(), target_mcse=0.02)
    found = pe.log_evidence(dt)
    assert found.status == "ok" and found.mcse <= 0.02
    assert abs(found.value + np.log(10.0)) < MCSES * found.mcse
    first = sample(pe.mixtures.Gaussian(), target_mcse=None)
    assert dt.posterior["x"].sizes["chain"] == first.posterior["x"].sizes["chain"]
    assert dt.posterior["x"].sizes["draw"] > first.posterior["x"].sizes["draw"]
    assert dt.work["forward"].size > first.work["forward"].size


def test_reverse_starts_of_the_user():
    states = np.random.default_rng(1).normal(size=300)
    target = pe.mixtures.Gaussian()
    found = pe.log_evidence(
        sample(target, method=pe.methods.AIS(reverse_start=states, n_stages=100))
    )
    assert abs(found.value - target.log_evidence) < 4.0 * found.mcse
    with pytest.raises(ValueError, match="reverse_start must be finite numbers in one row"):
        sample(target, method=pe.methods.AIS(reverse_start=states[:, None]))
