"""Are the intervals right? Repeated runs of exact systems, with the call that users make.

Of each system at least 90 % of the runs have to be "ok". Of these

- nominal 95 % intervals cover the exact value in 90 to 99 %, the upper bound for error bars that
  are too wide;
- none is more than five of its errors off, apart from 1 % of all runs, or 10 % where there are
  three modes, of which one run in twenty was seen to miss one;
- the mean of Z agrees with the exact value within 4 of its standard errors, whatever the error
  bars say.

200 runs are made of most systems, fewer where a run takes long; the bounds of coverage are then
wider, as far as chance asks for it. How often the rule of coverage fails by chance with a true
coverage of 95 %, and how often it catches a lower one:

====  ==========  ======  ======
runs  fails 95 %  86 %    80 %
====  ==========  ======  ======
200   0.16 %      94 %    100 %
100   0.43 %      76 %    99 %
40    0.34 %      32 %    71 %
====  ==========  ======  ======

So a list of 33 systems fails by chance with a probability of about 8 %; seeds are fixed, and a
right program that passed once passes again. All runs take about 40 minutes of one core.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import pm_evidence as pe
from tests.repeated_runs import FAR, Rules, repeat_model, repeat_system
from tests.systems.deceptive import build_infinite
from tests.systems.exact import exact_systems

N_SEEDS, LEAST_SEEDS = 200, 40
RULES = Rules(N_SEEDS)
# Seconds of the processor that the runs of a system may take in all, and those of a run where 200
# of them would take longer. What takes more than two seconds gets the least number of runs.
BUDGET = 80.0
COST = {
    "bimodal_10": 1.3,
    "change_point": 1.3,
    "correlated_gaussian_50": 2.5,
    "eight_schools_half_cauchy_centred": 1.0,
    "hidden_markov": 1.2,
    "normal_inverse_gamma": 0.9,
    "one_way_centred": 1.7,
    "one_way_noncentred": 0.8,
    "ordered_three": 0.6,
    "spike_and_slab": 0.9,
}
THREE_MODES = {"three_widths_5", "three_widths_8"}
# Shares of runs that may be far off, where they are not 1 %. The searches of 500 runs missed a mode
# of far_widths_10 in 1.6 %.
MOST_FAR = dict.fromkeys(THREE_MODES, 0.1) | {"far_widths_10": 0.02}

# The left-out ones differ from one of these in a feature of PyMC that prior and density tests see,
# or take many times longer: many_means takes 100 s a run, and 7 GB.
SYSTEMS = [
    "normal_mean",
    "beta_binomial",
    "half_cauchy_scale",
    "von_mises",
    "uniform_width",
    "normal_inverse_gamma",
    "eight_schools_half_cauchy_centred",
    "eight_schools_half_normal_noncentred",
    "student_t_prior",
    "student_t_groups",
    "ordered_three",
    "label_switching",
    "bimodal",
    "bimodal_10",
    "correlated_gaussian_50",
    "potential_and_data",
    "ising_chain",
    "poisson_captures",
    "hidden_markov",
    "spike_and_slab",
    "change_point",
    "missing_poisson",
    "phase_transition",
    # on which a run may be wrong without a sign in its own draws
    "banana",
    "separated",
    "one_way_centred",
    "one_way_noncentred",
    "spike_20",
    "two_widths_4",
    "two_widths_6",
    "two_widths_10",
    "three_widths_5",
    "three_widths_8",
    "near_widths_8",
    "far_widths_10",
]
# Of these every estimator of a run both ways is checked as well.
TWO_SIDED = [
    "bimodal",
    "eight_schools_half_cauchy_noncentred",
    "gaussian_10",
    "hidden_markov",
    "spike_and_slab",
    "student_t_groups",
]


def n_seeds(name):
    """Return how many runs are made: 200, or as many as ``BUDGET`` allows, but 40 at least."""
    return int(np.clip(BUDGET / COST.get(name, 0.1), LEAST_SEEDS, N_SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_coverage(name):
    rules = replace(RULES, most_far=MOST_FAR.get(name, 0.01))
    rules.check(repeat_system(name, range(n_seeds(name))), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO_SIDED)
def test_two_sided_coverage(name):
    """Every estimator of a run both ways, wherever its status is "ok".

    Nineteen of twenty estimates that are more than five of their errors off must not say "ok".
    """
    system = exact_systems()[name]
    model = system.build()
    rows = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        for seed in range(N_SEEDS):
            dt = pe.sample_evidence(
                model,
                method="ais",
                draws=300,
                target_mcse=None,
                random_seed=seed,
                progressbar=False,
            )
            for estimator in dt["log_evidence"]["estimator"].values:
                found = pe.log_evidence(dt, estimator=str(estimator))
                error = found.value - system.log_evidence
                covered = found.lower <= system.log_evidence <= found.upper
                far = abs(error) > 5 * found.mcse
                rows.setdefault(str(estimator), []).append((found.status == "ok", covered, far))
    print(f"\n{name}\n{'estimator':20s}    ok  cover|ok  far  far|ok")
    failures = []
    for estimator, row in rows.items():
        ok, covered, far = np.array(row).T
        share = covered[ok].mean() if ok.any() else np.nan
        print(f"{estimator:20s} {ok.mean():5.0%} {share:9.1%} {far.sum():4d} {(far & ok).sum():7d}")
        # with fewer runs the rule would fail by chance too often
        if ok.sum() >= 0.5 * N_SEEDS and not RULES.lowest <= share <= RULES.highest + 0.005:
            failures.append((estimator, "coverage", share))
        if (far & ok).sum() > max(0.05 * far.sum(), 2):
            failures.append((estimator, "far", (far & ok).sum()))
    assert not failures


@pytest.mark.slow
def test_a_spike_that_is_hardly_met():
    """A spike of a 500th of the prior's width in 5 dimensions, with three quarters of the evidence.

    Nothing leads there, so that no method is right in all runs. Of these 20 runs 16 were right, and
    4 wrong without a sign. Fewer than 8 would be a grave loss: of a true share of 65 % that has a
    probability of 0.6 %.
    """
    repeated = repeat_system("spike_5", range(20))
    right = np.abs(repeated.error) <= FAR * repeated.mcse
    told = np.sum(right | ~repeated.ok)
    print(f"\nspike_5: {told} of 20 runs right or not ok, {np.sum(~repeated.ok)} of them not ok")
    assert told >= 8


@pytest.mark.slow
def test_an_infinite_evidence_is_never_ok():
    """Whatever number comes out, no run may stand by it."""
    assert not repeat_model(build_infinite(), 0.0, range(20)).ok.any()
