"""Draw the pictures that explain, by exact numbers: ``python docs/explanations.py``."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from scipy import stats

mpl.use("Agg")
FIGURES = Path(__file__).parent / "figures"
BLUE, ORANGE = "tab:blue", "tab:orange"


def save(figure, name):
    """Save a picture, small enough for a repository."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(FIGURES / f"{name}.png", dpi=100, metadata={"Software": None})
    plt.close(figure)


def occam():
    """Two models share their probability out among the data that could have been seen."""
    counts = np.arange(21)
    fixed, free = stats.binom.pmf(counts, 20, 0.5), np.full(21, 1 / 21)
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    axes.bar(counts - 0.2, fixed, 0.4, color=BLUE, label="simple: the coin is fair")
    axes.bar(counts + 0.2, free, 0.4, color=ORANGE, label="flexible: any bias is as plausible")
    for seen, height in ((11, 0.185), (16, 0.085)):
        factor = fixed[seen] / free[seen]
        text = (
            f"{factor:.1f} : 1\nfor simple" if factor > 1 else f"{1 / factor:.1f} : 1\nfor flexible"
        )
        axes.annotate(
            f"{seen} heads\n{text}", (seen, max(fixed[seen], free[seen])), (seen + 1.2, height),
            arrowprops={"arrowstyle": "->", "color": "0.4"}, fontsize=9, va="bottom",
        )  # fmt: skip
    axes.set(xlabel="heads in 20 tosses", ylabel="probability of the data")
    axes.set_ylim(0, 0.25)
    axes.legend(loc="upper left", fontsize=9, frameon=False)
    save(figure, "evidence_occam")


def prior_width():
    """A wider prior leaves the posterior as it is, and lowers the evidence."""
    y, widths = np.array([0.9, 1.6, 0.2, 1.1, 1.4]), np.geomspace(0.1, 1000, 200)
    precision = y.size + 1 / widths**2
    mean, sd = y.sum() / precision, precision**-0.5
    log_evidence = np.array(
        [stats.multivariate_normal.logpdf(y, np.zeros(5), np.eye(5) + width**2) for width in widths]
    )
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(6.4, 4.6), sharex=True, layout="constrained"
    )
    above.fill_between(widths, mean - 2 * sd, mean + 2 * sd, color=BLUE, alpha=0.25, lw=0)
    above.plot(widths, mean, color=BLUE)
    above.set(ylabel="mean of the data", title="The posterior (mean and 95 % interval) settles")
    below.plot(widths, log_evidence, color=ORANGE)
    below.annotate(
        "2.3 nats lower for\neach factor of ten",
        (60, np.interp(60, widths, log_evidence)), (100, -9),
        arrowprops={"arrowstyle": "->", "color": "0.4"}, fontsize=9, va="bottom",
    )  # fmt: skip
    below.set(xscale="log", xlabel="standard deviation of the prior", ylabel="log evidence, nats")
    below.set_title("The evidence does not")
    for axes in (above, below):
        axes.title.set_fontsize(10)
    save(figure, "evidence_prior_width")


def scale():
    """What a Bayes factor does to even odds, with the words of Kass and Raftery (1995)."""
    log_bf = np.linspace(-7, 7, 401)
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    edges, words = (0, 1, 3, 5, 7), ("weak", "positive", "strong", "very\nstrong")
    for k, word in enumerate(words):
        for sign, colour in ((-1, ORANGE), (1, BLUE)):
            start, stop = sorted((sign * edges[k], sign * edges[k + 1]))
            axes.axvspan(start, stop, color=colour, alpha=0.08 + 0.11 * k, lw=0)
            axes.text((start + stop) / 2, 1.04, word, ha="center", va="bottom", fontsize=8)
    axes.plot(log_bf, 1 / (1 + np.exp(-log_bf)), color="0.1")
    ticks = (-5, -3, -1, 0, 1, 3, 5)
    axes.set_xticks(ticks, [f"{t:+d}\n{_odds(t)}" if t else "0\n1 : 1" for t in ticks], fontsize=8)
    axes.set(xlim=(-7, 7), ylim=(0, 1), xlabel="log Bayes factor (nats), and as odds, A : B")
    axes.set_ylabel("probability of A, if\nboth were as probable before")
    save(figure, "evidence_scale")


def _odds(log_bf):
    odds = np.exp(abs(log_bf))
    text = f"{odds:.1f}" if odds < 10 else f"{odds:.0f}"
    return f"{text} : 1" if log_bf > 0 else f"1 : {text}"


def line():
    """Draws on their way from the prior to the posterior, and the steps of a run."""
    grid = np.linspace(-9, 9, 721)
    prior = stats.norm.logpdf(grid, 0, 3)
    likelihood = np.log(
        0.7 * stats.norm.pdf(grid, 3, 0.5) + 0.3 * stats.norm.pdf(grid, -2.5, 0.8) + 1e-12
    )
    rng = np.random.default_rng(1)
    figure = plt.figure(figsize=(7.2, 4.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.25, 1])
    panels = top.subplots(1, 4, sharex=True)
    for axes, beta in zip(panels, (0.0, 0.05, 0.3, 1.0), strict=True):
        density = np.exp(prior + beta * likelihood)
        density /= density.sum() * (grid[1] - grid[0])
        draws = np.interp(rng.random(40), np.cumsum(density) * (grid[1] - grid[0]), grid)
        axes.fill_between(grid, density, color=BLUE, alpha=0.25, lw=0)
        axes.plot(draws, -0.07 * density.max() * (1 + rng.random(40)), "o", ms=2, color=BLUE)
        name = {0.0: "prior\n", 1.0: "posterior\n"}.get(beta, "\n")
        axes.set_title(f"{name}beta = {beta:g}", fontsize=9)
        axes.set(xticks=[], yticks=[])
        axes.spines["left"].set_visible(False)
    fitted = 0.7 * stats.t.pdf(grid, 5, 2.9, 0.55) + 0.3 * stats.t.pdf(grid, 5, -2.3, 0.85)
    panels[-1].plot(grid, fitted, "--", lw=1.2, color=ORANGE)
    panels[-1].text(-8.5, fitted.max() * 0.75, "fitted\ndensity", color=ORANGE, fontsize=9)
    axes = bottom.subplots()
    axes.axis("off")
    axes.set(xlim=(0, 5), ylim=(0, 2))
    rows = (
        (("model", "yours"), ("path", "prior to posterior"), ("schedule", "steps of beta"),
         ("kernel", "MCMC moves"), ("sampler", "islands, paths")),
        (("record", "weights, draws"), ("estimators", "several, compared"),
         ("log evidence", "error, status"), ("DataTree", "saved as a whole"),
         ("table, plot", "models compared")),
    )  # fmt: skip
    for y, row in zip((1.5, 0.45), rows, strict=True):
        for x, (name, what) in enumerate(row):
            box = {"boxstyle": "round,pad=0.35", "fc": "white", "ec": "0.4"}
            axes.text(x + 0.5, y, name, ha="center", va="center", fontsize=9, bbox=box)
            axes.text(x + 0.5, y - 0.34, what, ha="center", va="center", fontsize=8, color="0.35")
            if x < 4 or y > 1:
                axes.text(x + 1.0, y, "→", ha="center", va="center", fontsize=11)
    save(figure, "how_it_works")


if __name__ == "__main__":
    occam()
    prior_width()
    scale()
    line()
