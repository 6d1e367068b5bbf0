"""Does volatility have a life of its own? Five models of daily returns, compared.

The returns r_t, in percent a day, have a standard deviation exp(h_t / 2) that varies. In stochastic
volatility (SV) models the log variance h_t is hidden, moves at random, and returns to its mean:

    SV            r_t = exp(h_t / 2) eps_t,  h_t = mu + phi (h_(t-1) - mu) + sigma eta_t,  eps, eta
                  ~ Normal(0, 1);  h_0 ~ its stationary distribution
    SV-t          eps_t ~ Student's t with nu degrees of freedom, scaled to variance 1
    SV-leverage   correlation rho between eps_t and the step eta_(t+1) that follows: falling prices
                  raise the volatility of the next day if rho < 0
    GARCH         no randomness of its own: the variance is v_t = (1 - phi) exp(mu) + phi (share
                  r_(t-1)^2 + (1 - share) v_(t-1)),  v_0 = exp(mu)
    GARCH-t       the same with Student's t

GARCH(1, 1) is written in terms of its mean variance exp(mu) and of its persistence phi, so that
these mean the same in all models and have the same priors. The alpha and beta of the books are
phi share and phi (1 - share).

    mu     ~ Normal(0, 2)           typical volatility between 0.14 % and 7 % a day
    phi    ~ Beta(20, 1.5)          volatility forgets half of a shock within 3 to 130 days
    sigma  ~ HalfNormal(0.3)        the size of the daily shocks of log variance
    nu - 2 ~ Gamma(2, rate 0.1)     tails from very heavy to nearly normal
    rho    ~ Uniform(-1, 1)
    share  ~ Beta(2, 8)             weight of yesterday's return against the days before

The 945 hidden log variances are integrated out by a particle filter.

Run it with ``python examples/stochastic_volatility.py``; it writes plots to ``examples/results``.
``--data pound_dollar`` (the pound in dollars, 1981 to 1985) reads real data from the folder that
the environment variable PM_EVIDENCE_DATA names; ``--data sp500`` (2015 to 2018) takes them from the
package arch, ``pip install arch``.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import matplotlib as mpl
import matplotlib.ticker
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from real_data import ENVIRONMENT_VARIABLE, pound_dollar

import pm_evidence as pe

SEED = 20260731
RESULTS = Path(__file__).parent / "results"
SP500 = slice("2014-12-31", "2018-12-31")
QUANTILES = (0.05, 0.5, 0.95)


# data -------------------------------------------------------------------------------------------


def sp500():
    """Return 1006 daily log returns of the S&P 500, 2015 to 2018, in percent and less their mean.

    Raises
    ------
    ModuleNotFoundError
        If the package arch, which they come with, is not installed.
    """
    from arch.data import sp500 as source

    price = source.load()["Adj Close"].loc[SP500].to_numpy(float)
    returns = 100 * np.diff(np.log(price))
    return returns - returns.mean()


def load(data):
    """Return returns in percent by the name of the data set."""
    if data == "pound_dollar":
        return pound_dollar()["ret_demeaned"].to_numpy(float)
    return sp500()


# models -----------------------------------------------------------------------------------------


def level_and_persistence():
    """Return mu and phi, which all models have."""
    return pm.Normal("mu", 0, 2), pm.Beta("phi", 20, 1.5)


def degrees_of_freedom():
    """Return nu, above 2, so that the variance is finite."""
    return pm.Deterministic("nu", 2 + pm.Gamma("nu_minus_2", 2, 0.1))


def scaled_t(nu, deviation):
    """Student's t with a given standard deviation."""
    return pm.StudentT.dist(nu=nu, mu=0, sigma=deviation * pt.sqrt((nu - 2) / nu))


def gaussian_sv(returns):
    """Stochastic volatility with normal errors."""
    with pm.Model() as model:
        mu, phi = level_and_persistence()
        sigma = pm.HalfNormal("sigma", 0.3)
        pe.StateSpace(
            "returns",
            init=lambda: pm.Normal.dist(mu, sigma / pt.sqrt(1 - phi**2)),
            transition=lambda h, t: pm.Normal.dist(mu + phi * (h - mu), sigma),
            emission=lambda h, t: pm.Normal.dist(0, pt.exp(h / 2)),
            observed=returns,
        )
    return model


def student_sv(returns):
    """Stochastic volatility with Student-t errors."""
    with pm.Model() as model:
        mu, phi = level_and_persistence()
        sigma = pm.HalfNormal("sigma", 0.3)
        nu = degrees_of_freedom()
        pe.StateSpace(
            "returns",
            init=lambda: pm.Normal.dist(mu, sigma / pt.sqrt(1 - phi**2)),
            transition=lambda h, t: pm.Normal.dist(mu + phi * (h - mu), sigma),
            emission=lambda h, t: scaled_t(nu, pt.exp(h / 2)),
            observed=returns,
        )
    return model


def leverage_sv(returns):
    """Stochastic volatility whose steps are correlated with the return before.

    Given h_(t-1), the return r_(t-1) says what eps_(t-1) was, and eta_t given eps_(t-1) is normal
    with mean rho eps_(t-1) and variance 1 - rho^2. So the transition may use the return before,
    and this is exact. (Data that are drawn from this model, as in prior predictive sampling, would
    still look back on the observed returns.)
    """
    past = pt.constant(returns)
    with pm.Model() as model:
        mu, phi = level_and_persistence()
        sigma = pm.HalfNormal("sigma", 0.3)
        rho = pm.Uniform("rho", -1, 1)

        def transition(h, t):
            error = past[t - 1] * pt.exp(-h / 2)
            mean = mu + phi * (h - mu) + rho * sigma * error
            return pm.Normal.dist(mean, sigma * pt.sqrt(1 - rho**2))

        pe.StateSpace(
            "returns",
            init=lambda: pm.Normal.dist(mu, sigma / pt.sqrt(1 - phi**2)),
            transition=transition,
            emission=lambda h, t: pm.Normal.dist(0, pt.exp(h / 2)),
            observed=returns,
        )
    return model


def recursion(shock, decay):
    """Return s with s_0 = shock_0 and s_t = decay s_(t-1) + shock_t, without a loop over t.

    After k rounds s_t is the sum of decay^j shock_(t-j) over j < 2^k, so that 10 rounds do for
    1,024 times. With its gradient this runs twice as fast as pytensor.scan, and compiles sooner.
    """
    n, step = shock.type.shape[0], 1
    while step < n:
        later = shock[step:] + decay**step * shock[:-step]
        shock = pt.concatenate([shock[:step], later])
        step *= 2
    return shock


def garch_deviation(returns, mu, phi, share):
    """Return the standard deviation of every return given those before."""
    level = pt.exp(mu)
    shocks = (1 - phi) * level + phi * share * pt.constant(returns[:-1] ** 2)
    return pt.sqrt(recursion(pt.concatenate([level[None], shocks]), phi * (1 - share)))


def garch(returns):
    """GARCH(1, 1) with normal errors."""
    with pm.Model() as model:
        mu, phi = level_and_persistence()
        share = pm.Beta("share", 2, 8)
        deviation = garch_deviation(returns, mu, phi, share)
        pm.Normal("returns", 0, deviation, observed=returns)
    return model


def student_garch(returns):
    """GARCH(1, 1) with Student-t errors."""
    with pm.Model() as model:
        mu, phi = level_and_persistence()
        share = pm.Beta("share", 2, 8)
        deviation = garch_deviation(returns, mu, phi, share)
        nu = degrees_of_freedom()
        scale = deviation * pt.sqrt((nu - 2) / nu)
        pm.StudentT("returns", nu=nu, mu=0, sigma=scale, observed=returns)
    return model


def full_sv(returns):
    """Gaussian SV with every log variance as a variable of the model, for comparison."""
    with pm.Model() as model:
        mu, phi = level_and_persistence()
        sigma = pm.HalfNormal("sigma", 0.3)
        first = pm.Normal.dist(0, sigma / pt.sqrt(1 - phi**2))
        deviation = pm.AR("h", rho=phi, sigma=sigma, init_dist=first, steps=len(returns) - 1)
        pm.Normal("returns", 0, pt.exp((mu + deviation) / 2), observed=returns)
    return model


MODELS = {
    "SV": gaussian_sv,
    "SV-t": student_sv,
    "SV-leverage": leverage_sv,
    "GARCH": garch,
    "GARCH-t": student_garch,
}


# volatility -------------------------------------------------------------------------------------


def volatility(model, dt, draws=200, seed=SEED):
    """Return quantiles of the volatility given all returns, and the draws that they come from.

    Returns
    -------
    quantiles : ndarray, shape (n_quantiles, n_times)
        Of exp(h / 2), in percent a day.
    latent : Dataset
        Paths of h, and how the filters that found them fared.
    """
    latent = pe.gp.sample_latent(dt, model, draws=draws, random_seed=seed)
    deviation = np.exp(latent["returns_states"] / 2)
    return deviation.quantile(QUANTILES, dim=["chain", "draw"]).values, latent


def garch_path(returns, mu, phi, share):
    """Return the standard deviation under GARCH by the recursion itself, in NumPy."""
    variance = np.full(len(returns), np.exp(mu))
    for t in range(1, len(returns)):
        past = share * returns[t - 1] ** 2 + (1 - share) * variance[t - 1]
        variance[t] = (1 - phi) * np.exp(mu) + phi * past
    return np.sqrt(variance)


# checks -----------------------------------------------------------------------------------------


def features(returns):
    """Return what volatility models are about, of series of shape ``(..., n_times)``."""
    size = np.abs(returns)
    centred = size - size.mean(axis=-1, keepdims=True)
    square = (centred**2).mean(axis=-1)
    return {
        "standard deviation (%)": returns.std(axis=-1),
        "kurtosis": (returns**4).mean(axis=-1) / (returns**2).mean(axis=-1) ** 2,
        "autocorrelation of |r|, lag 1": (centred[..., 1:] * centred[..., :-1]).mean(-1) / square,
        "autocorrelation of |r|, lag 20": (centred[..., 20:] * centred[..., :-20]).mean(-1)
        / square,
    }


def prior_features(model, draws=500, seed=SEED):
    """Return features of data drawn from the prior."""
    with model:
        prior = pm.sample_prior_predictive(draws=draws, random_seed=seed)
    return features(prior["prior_predictive"]["returns"].values.reshape(draws, -1))


# tables and plots -------------------------------------------------------------------------------


def parameters(trees):
    """Return posterior means and standard deviations, one column for each model."""
    rows = ["mu", "phi", "sigma", "share", "nu", "rho"]
    table = pd.DataFrame("", index=rows, columns=list(trees))
    for name, dt in trees.items():
        posterior = dt["posterior"]
        for row in rows:
            if row in posterior:
                draws = posterior[row]
                table.loc[row, name] = f"{float(draws.mean()):.3f} ± {float(draws.std()):.3f}"
    return table


def plot_volatility(returns, quantiles, garch_deviation, path):
    """Plot |returns|, the volatility of SV with its band, and that of GARCH."""
    from matplotlib import pyplot as plt

    low, middle, high = quantiles
    days, size = np.arange(len(returns)), np.abs(returns)
    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    axes.plot(days, size, ".", color="0.6", ms=3, label="|return|")
    axes.fill_between(days, low, high, color="C0", alpha=0.3, lw=0, label="SV, 90 %")
    axes.plot(days, middle, color="C0", lw=1.5, label="SV, median")
    axes.plot(days, garch_deviation, color="C1", lw=1, label="GARCH, at the posterior mean")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    # returns of nearly nothing are left out
    axes.set(xlabel="trading day", ylabel="percent a day", xlim=(0, len(returns)))
    axes.set_ylim(low.min() / 4, 2.2 * size.max())
    axes.legend(ncols=4, loc="upper left", frameon=False)
    return _saved(figure, path)


def plot_filter(returns, latent, path):
    """Plot how the filter fared: effective sample size and log-likelihood increments."""
    from matplotlib import pyplot as plt

    share, increments = (
        latent[f"returns_{name}"].mean(["chain", "draw"]).values for name in ("ess", "log_density")
    )
    days = np.arange(len(returns))
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(9, 5), sharex=True, layout="constrained")
    upper.plot(days, share, color="C0", lw=0.8)
    upper.axhline(0.5, color="0.4", lw=0.8, ls="--")
    upper.text(0.01, 0.04, "resampled below the dashed line", transform=upper.transAxes, size=9)
    upper.set(ylabel="effective sample size\n(share of particles)", ylim=(0, 1.02))
    lower.plot(days, increments, color="C3", lw=0.8)
    lower.set(ylabel="log density of the return\ngiven those before (nats)", xlabel="trading day")
    lower.set_xlim(0, len(days))
    for t in np.sort(np.argsort(increments)[:3]):
        lower.annotate(
            f"{returns[t]:+.1f} %", (t, increments[t]), xytext=(4, 0), textcoords="offset points",
            size=9, va="center",
        )  # fmt: skip
    return _saved(figure, path)


def plot_prior(simulated, observed, path):
    """Plot features of data drawn from the priors, with those of the data as lines."""
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(9, 5.5), layout="constrained")
    for axes, feature in zip(panels.ravel(), observed, strict=True):
        positive = feature in ("standard deviation (%)", "kurtosis")
        values = np.concatenate([drawn[feature] for drawn in simulated.values()])
        if positive:
            bins = np.geomspace(values.min(), np.quantile(values, 0.99), 40)
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
        else:
            bins = np.linspace(*np.quantile(values, [0.002, 0.998]), 40)
        for name, drawn in simulated.items():
            axes.hist(drawn[feature], bins, histtype="step", lw=1.3, label=f"{name}, prior")
        axes.axvline(observed[feature], color="k", lw=1.3, ls="--", label="data")
        axes.set(xlabel=feature, yticks=[])
    panels[0, 0].legend(frameon=False)
    return _saved(figure, path)


def _saved(figure, path):
    from matplotlib import pyplot as plt

    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


# the comparison ---------------------------------------------------------------------------------


def sample_all(returns, **kwargs):
    """Return the evidence of every model as a DataTree, and print each when it is there."""
    trees = {}
    for i, (name, build) in enumerate(MODELS.items()):
        start, cpu = time.perf_counter(), time.process_time()
        trees[name] = pe.sample_evidence(
            build(returns), random_seed=SEED + i, target_mcse=0.05, **kwargs
        )
        evidence = pe.log_evidence(trees[name])
        print(
            f"{name:<12} log evidence {evidence.value:9.2f} ± {evidence.mcse:.2f}, status "
            f"{evidence.status}; {time.perf_counter() - start:.0f} s "
            f"({time.process_time() - cpu:.0f} s of processor time)",
            flush=True,
        )
    return trees


def main(data=None, results=RESULTS, draws=None, **kwargs):
    """Compare the models, print what came out, and plot it."""
    mpl.use("Agg")
    data = data or ("pound_dollar" if os.environ.get(ENVIRONMENT_VARIABLE) else "sp500")
    try:
        returns = load(data)
    except (FileNotFoundError, ModuleNotFoundError) as error:
        sys.exit(
            f"stochastic_volatility.py needs returns. {error}\nOr choose the other data set with "
            "--data sp500 (needs: pip install arch) or --data pound_dollar."
        )
    results = Path(results)
    results.mkdir(parents=True, exist_ok=True)
    print(f"{len(returns)} daily returns ({data}); seconds include compiling.\n")
    trees = sample_all(returns, draws=draws, progressbar=sys.stdout.isatty(), **kwargs)

    table = pe.compare(trees)
    columns = ["rank", "log_evidence", "mcse", "log_bf", "log_bf_mcse", "prob", "status"]
    print(f"\n{table[columns].rename_axis(None).round(3).to_string()}")
    for name, warning in table["warning"].items():
        if warning:
            print(f"{name}: {warning}")
    print(f"\nPosterior mean ± standard deviation\n\n{parameters(trees).to_string()}")

    model = gaussian_sv(returns)
    quantiles, latent = volatility(model, trees["SV"])
    means = [float(trees["GARCH"]["posterior"][name].mean()) for name in ("mu", "phi", "share")]
    deviation = garch_path(returns, *means)
    least = float(latent["returns_ess"].min())
    print(f"\nThe filter's effective sample size is never below {100 * least:.1f} % of particles.")
    observed = features(returns)
    simulated = {name: prior_features(MODELS[name](returns)) for name in ("SV", "SV-t")}
    for feature, value in observed.items():
        below = [f"{name} {np.mean(drawn[feature] < value):.2f}" for name, drawn in
                 simulated.items()]  # fmt: skip
        print(f"{feature}: data {value:.2f}; share of prior draws below: {', '.join(below)}")
    made = [
        plot_volatility(returns, quantiles, deviation, results / f"sv_volatility_{data}.png"),
        plot_filter(returns, latent, results / f"sv_filter_{data}.png"),
        plot_prior(simulated, observed, results / f"sv_prior_{data}.png"),
    ]
    print("\nPlots: " + ", ".join(path.name for path in made) + f" in {results}.")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=["pound_dollar", "sp500"])
    parser.add_argument("--draws", type=int, help="of the first round of each run, in all")
    arguments = parser.parse_args()
    main(arguments.data, draws=arguments.draws)
