"""Posterior summaries: ArviZ's numbers, with errors that are those of how the draws were made."""

from functools import cache, partial

import arviz as az
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import pm_evidence as pe
from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord
from pm_evidence.runs.result import posterior_draws
from pm_evidence.runs.rounds import Run
from tests.api.refusals import check_refusals
from tests.models import GROUPS, shared

# The posterior of mu in two of the shared models; in the second, each group has a variance of two.
Y = np.array([1.2, 0.4, 2.1, 1.7, 0.9])
NORMAL = stats.norm(Y.sum() / 5.25, 5.25**-0.5)
EFFECTS = stats.norm(GROUPS.sum() / 2.0 / 2.5, 2.5**-0.5)


def sample(model, seed, **kwargs):
    return pe.sample_evidence(
        model, random_seed=seed, progressbar=False, cores=1, **{"target_mcse": None} | kwargs
    )


# Each with a shared model, the posterior of mu, and the kind of draws.
CASES = {
    "smc": ("normal", NORMAL, "islands", {"draws": 320}),
    "smc in rounds": ("normal", NORMAL, "islands", {"draws": 320, "target_mcse": 0.0025}),
    "ais both ways": ("normal", NORMAL, "islands", {"method": "ais", "draws": 100}),
    "ais forward": (
        "normal",
        NORMAL,
        "paths",
        {"method": pe.methods.AIS(direction="forward"), "draws": 200},
    ),
    "aisel": ("groups", EFFECTS, "islands", {"draws": 320}),
}


@cache
def result(name="smc"):
    model, _, _, kwargs = CASES[name]
    return sample(shared(model).model, 1, **kwargs)


def two_variables(n_islands=4, n=50):
    """Draws of which each island is at its own place, as a stored result."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n_islands, n, 2)) + np.arange(n_islands)[:, None, None]
    posterior = xr.Dataset(
        {
            "x": (("chain", "draw", "side"), x),
            "k": (("chain", "draw"), rng.integers(0, 3, size=(n_islands, n))),
            "up": (("chain", "draw"), x[..., 0] > 1.0),
        },
        coords={"side": ["left", "right"]},
        attrs={"drawn_from": "islands"},
    )
    origin = np.repeat(np.arange(n_islands), n).reshape(n_islands, n)
    draws = xr.Dataset({"origin": (("chain", "draw"), origin)})
    return xr.DataTree.from_dict({"posterior": posterior, "sample_stats": draws})


# --- the numbers ---


def test_all_but_the_errors_is_arviz():
    dt = two_variables()
    table = pe.summary(dt, ["x", "k"], round_to="none")
    plain = az.summary(dt, var_names=["x", "k"], kind="stats", round_to="none")
    errors = ["ess_mean", "mcse_mean", "mcse_sd", "mcse_eti89_lb", "mcse_eti89_ub"]
    assert list(table.columns) == [*plain.columns, *errors]
    np.testing.assert_array_equal(table[plain.columns].to_numpy(), plain.to_numpy())
    other = pe.summary(dt, ci_kind="hdi", ci_prob=0.5, coords={"side": "left"})
    assert list(other.index) == ["x", "k", "up"] or "x[left]" in other.index
    assert {"hdi50_lb", "hdi50_ub"} <= set(other.columns)
    assert not any(name.startswith("mcse_hdi") for name in other.columns)


def test_error_from_the_spread_of_islands():
    dt = two_variables()
    table = pe.summary(dt, "x", round_to="none")
    means = dt["posterior"]["x"].mean("draw").to_numpy()
    expected = means.std(axis=0, ddof=1) / 2.0
    np.testing.assert_allclose(table["mcse_mean"], expected, rtol=1e-12)
    np.testing.assert_allclose(table["ess_mean"], (table["sd"] / expected) ** 2, rtol=0.01)


def test_errors_of_standard_deviations_and_quantiles():
    """Against the spread over many data sets of 16 normal islands of 40 draws. Seed 2."""
    rng, tables = np.random.default_rng(2), []
    origin = xr.Dataset({"origin": (("chain", "draw"), np.repeat(range(16), 40).reshape(16, 40))})
    for _ in range(100):
        x = rng.normal(3.0, 2.0, (16, 40)) + rng.normal(0.0, 0.5, (16, 1))
        posterior = xr.Dataset({"x": (("chain", "draw"), x)}, attrs={"drawn_from": "islands"})
        dt = xr.DataTree.from_dict({"posterior": posterior, "sample_stats": origin})
        tables.append(pe.summary(dt, ci_prob=0.8, round_to="none"))
    found = pd.concat(tables)
    for name in ("mean", "sd", "eti80_lb", "eti80_ub"):
        stated = np.sqrt(np.mean(found[f"mcse_{name}"] ** 2))
        assert stated == pytest.approx(found[name].std(), rel=0.2), name


def test_functions_of_the_posterior():
    dt = two_variables()
    funcs = {
        "ratio": lambda d: d["x"].sel(side="left") / (10.0 + d["k"]),
        "square": lambda d: d["x"] ** 2,
    }
    table = pe.summary(dt, [], funcs=funcs, round_to="none")
    assert list(table.index) == ["ratio", "square[left]", "square[right]"]
    values = funcs["ratio"](dt["posterior"].to_dataset())
    assert table.loc["ratio", "mean"] == pytest.approx(float(values.mean()), rel=1e-12)
    error = float(values.mean("draw").std("chain", ddof=1)) / 2.0
    assert table.loc["ratio", "mcse_mean"] == pytest.approx(error, rel=1e-12)
    assert list(pe.summary(dt, funcs=funcs).index)[:4] == ["x[left]", "x[right]", "k", "up"]


def test_digits_are_those_that_errors_leave():
    dt = two_variables()
    auto, plain = pe.summary(dt, "x"), pe.summary(dt, "x", round_to="none")
    error = plain["mcse_mean"]
    assert (abs(auto["mean"] - plain["mean"]) <= 0.15 * error).all()
    assert (auto["ess_mean"] == auto["ess_mean"].round()).all()
    assert (pe.summary(dt, "x", round_to=3)["mean"] == plain["mean"].round(3)).all()


# --- of real runs ---


@pytest.mark.parametrize("name", CASES)
def test_every_run_says_where_its_draws_come_from(name, tmp_path):
    """Also in a file; and the draws of one origin are those of one island or path."""
    _, exact, kind, _ = CASES[name]
    dt = result(name)
    assert dt["posterior"].attrs["drawn_from"] == kind
    dt.to_netcdf(tmp_path / "run.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "run.nc", engine="h5netcdf") as back:
        table = pe.summary(back, round_to="none")
    assert table.equals(pe.summary(dt, round_to="none"))
    row = table.loc["mu"]
    assert abs(row["mean"] - exact.mean()) < 5 * row["mcse_mean"]
    assert abs(row["sd"] - exact.std()) < 5 * row["mcse_sd"]
    work = dt["work"]
    blocks = work["island_block" if "island" in work else "forward_block"].values
    if kind == "islands":
        assert np.isin(dt["sample_stats"]["origin"], blocks).all()
    else:
        origin = dt["sample_stats"]["origin"].values[0]
        x = dt["posterior"]["mu"].values[0]
        first = dict(zip(origin, x, strict=True))
        assert all(first[number] == value for number, value in zip(origin, x, strict=True))


def assert_covered(means, errors, dofs, exact):
    """Intervals and errors are neither too short nor too long.

    False alarms in one of a thousand on each side; the errors are estimates themselves, whose own
    scatter is counted with 15 %.
    """
    distance, n = np.abs(np.array(means) - exact), len(means)
    within = np.sum(distance < stats.t.ppf(0.975, dofs) * np.array(errors))
    assert stats.binom.ppf(1e-3, n, 0.95) <= within, (within, n)
    square = np.mean(distance**2) / np.mean(np.square(errors))
    low, high = stats.chi2.ppf([1e-3, 1 - 1e-3], n) / n
    assert low / 1.15 < square < high * 1.15, square


def run_many(name, seeds):
    """Run a case with these seeds, and compare with the posterior mean that is known."""
    model, exact, _, kwargs = CASES[name]
    found = []
    for seed in seeds:
        dt = sample(shared(model).model, seed, **kwargs)
        row = pe.summary(dt, "mu", round_to="none").loc["mu"]
        dof = len(np.unique(dt["sample_stats"]["origin"])) - 1
        found.append((row["mean"], row["mcse_mean"], dof))
    assert_covered(*np.array(found).T, exact.mean())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smc", "ais forward", "aisel"])
def test_intervals_cover_the_exact_mean(name):
    """Twenty seeds show an error that is half as large as it should be."""
    run_many(name, range(20))


def weighted_islands(rng):
    """Islands whose evidence varies, and whose draws lie higher where they found more."""
    g = rng.normal(size=40)
    draws = [rng.normal(0.5 * x, 1.0, (25, 1)) for x in g]
    work = 0.18 - 0.6 * g  # mean weight 1
    return [
        BlockRecord(i, work[i : i + 1], None, draws=draws[i], relative_variance=1e-6)
        for i in range(40)
    ]


def weighted_paths(rng):
    """Paths that end in a wider density than the posterior."""
    x = rng.normal(0.0, 1.5, (1000, 1))
    weight = stats.norm.logpdf(x[:, 0], 0.3, 1.0) - stats.norm.logpdf(x[:, 0], 0.0, 1.5)
    return [BlockRecord(0, -weight, None, draws=x, log_weight=weight)]


def fitted(rng):
    """Islands in the wrong place, and draws from a fitted density with the right weights."""
    (paths,) = weighted_paths(rng)
    bridge = (paths.work, np.empty(0))
    wrong = np.zeros((500, 1))
    return [BlockRecord(0, np.zeros(1), None, draws=wrong, fit_draws=paths.draws, bridge=bridge)]


@pytest.mark.parametrize(
    ("blocks", "kind", "sd"),
    [
        (weighted_islands, "islands", 1.25**0.5),
        (weighted_paths, "paths", 1.0),
        (fitted, "importance", 1.0),
    ],
)
def test_errors_of_resampled_draws(blocks, kind, sd):
    """Draws that were resampled by weights, in 100 repetitions; the mean is 0.3. Seed 3."""
    rng, found = np.random.default_rng(3), []
    verdicts = [LogEvidence(0.0, 0.1, "importance"), LogEvidence(0.0, 0.1, "bridge", "missed_mass")]
    for seed in range(100):
        record = RunRecord("smc", np.array([0.0, 1.0]), {Role.FORWARD: blocks(rng)})
        drawn = posterior_draws(Run(pe.methods.SMC(), 500, 1, None, seed), record, verdicts)
        assert drawn.drawn_from == kind
        posterior = {"x": (("chain", "draw"), drawn.draws[..., 0])}
        dt = xr.DataTree.from_dict(
            {
                "posterior": xr.Dataset(posterior, attrs={"drawn_from": kind}),
                "sample_stats": xr.Dataset({"origin": (("chain", "draw"), drawn.origin)}),
            }
        )
        row = pe.summary(dt, round_to="none").loc["x"]
        dof = len(np.unique(drawn.origin)) - 1
        found.append([(row[name], row[f"mcse_{name}"], dof) for name in ("mean", "eti89_ub")])
    of_mean, (end, error, _) = np.array(found)[:, 0], np.array(found)[:, 1].T
    assert_covered(*of_mean.T, 0.3)
    distance = end - 0.3 - sd * stats.norm.ppf(0.945)
    assert np.mean(error**2) == pytest.approx(np.mean(distance**2), rel=0.45)


# --- what is refused ---


def test_results_without_what_is_needed():
    dt = two_variables()
    part = dt.copy()
    part["sample_stats"] = xr.DataTree(dt["sample_stats"].to_dataset().isel(draw=slice(10)))
    # evidence attached to the draws of pm.sample says nothing of how those were made
    idata = az.from_dict({"posterior": {"mu": np.zeros((2, 5))}, "observed_data": {"y": Y}})
    origin = r"^dt must hold the origin of its posterior draws.*arviz\.summary for"
    cases = [
        (3, TypeError, r"^dt must be an xarray\.DataTree, got int"),
        (dt.drop_nodes("posterior"), ValueError, "^dt must have the group 'posterior'"),
        (dt.drop_nodes("sample_stats"), ValueError, origin),
        (pe.attach_evidence(idata, result()), ValueError, "got draws of another sampler"),
        (part, ValueError, "origin of each of its 50 entries along 'draw', got 10"),
    ]
    check_refusals(pe.summary, [({"dt": tree}, *said) for tree, *said in cases])


def test_arguments_that_cannot_be_used():
    averaged = {"a": lambda d: d["x"].mean("draw")}
    names = r"^var_names must be among 'x', 'k', 'up', got \['nu"
    cases = [
        ({"var_names": ["nu"]}, ValueError, names),
        ({"var_names": []}, ValueError, "^var_names must name at least one variable"),
        ({"funcs": 3}, TypeError, "^funcs must be a mapping of names to functions, got 3"),
        ({"funcs": {"a": 3}}, TypeError, "^funcs must be a mapping of names to functions"),
        ({"funcs": {"a": lambda d: 3.0}}, ValueError, r"^funcs\['a'\] must return a DataArray"),
        ({"funcs": averaged}, ValueError, r"^funcs\['a'\] must return .* do not average"),
        ({"round_to": "all"}, ValueError, "^round_to must be a number of decimals, 'auto' or"),
        ({"ci_kind": "both"}, ValueError, "ci_kind"),
    ]
    check_refusals(partial(pe.summary, two_variables()), cases)
