"""Runs to draw, and what a figure holds."""

import numpy as np
import pytest

from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord, StageTrace
from pm_evidence.results import to_datatree

BAR = LogEvidence(-31.3, 0.1, "bar", lower=-31.5, upper=-31.1)


def stored(record, evidence=(BAR,), recommended=None):
    """A stored run without draws."""
    return to_datatree(
        record,
        evidence,
        recommended=recommended or evidence[0].estimator,
        posterior={},
        fingerprint="",
        random_seed=1,
        versions={},
    )


def make_run(
    forward=(31.0, 32.0),
    reverse=(30.5, 31.5),
    *,
    beta=(0.0, 0.25, 0.5, 1.0),
    energy=((40.0, 35.0, 32.0), (37.0, 33.0, 30.0)),
    sd=2.0,
    evidence=(BAR,),
    recommended=None,
):
    """A stored run; ``reverse`` None for one in one direction."""
    n_stages = len(beta) - 1
    ones = np.ones(n_stages)

    def blocks(index, work):
        mean = np.asarray(energy[index], dtype=float)
        trace = StageTrace(mean, sd**2 * ones, ones, ones)
        return [BlockRecord(index, np.asarray(work, dtype=float), trace)]

    both = {
        Role.FORWARD: blocks(0, forward),
        Role.REVERSE: () if reverse is None else blocks(1, reverse),
    }
    return stored(RunRecord("ais", np.asarray(beta), both), evidence, recommended)


def drawn(target, function):
    """What a plot of the backend "none" holds of one kind."""
    return [element for element in target if element["function"] == function]


def horizontal_lines(target):
    """Heights of lines across a plot of the backend "none", which calls them vertical, too."""
    lines = [*drawn(target, "hline"), *drawn(target, "vline")]
    return [float(line["y"]) for line in lines if "y" in line]


def only_plot(collection):
    """The plot of a figure that has one."""
    return collection.get_viz("plot")


def legend_texts(collection):
    """The entries of the legend of a matplotlib figure, from top to bottom."""
    (legend,) = collection.get_viz("figure").legends
    return [text.get_text() for text in legend.get_texts()]


def assert_readable(collection):
    """Every text lies inside the figure, and none on another."""
    figure, axes = collection.get_viz("figure"), only_plot(collection)
    figure.draw_without_rendering()
    low, high = axes.get_xlim()
    xticks = [tick for tick in axes.get_xticklabels() if low <= tick.get_position()[0] <= high]
    low, high = axes.get_ylim()
    yticks = [tick for tick in axes.get_yticklabels() if low <= tick.get_position()[1] <= high]
    texts = [*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label, *yticks]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    assert_texts_fit(figure, texts)
    assert_texts_fit(figure, [*xticks, axes.xaxis.label])
    assert axes.xaxis.get_offset_text().get_text() == ""


def assert_texts_fit(figure, texts):
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    canvas = figure.bbox
    for box in boxes:
        assert box.x0 >= canvas.x0 - 1
        assert box.x1 <= canvas.x1 + 1
        assert box.y0 >= canvas.y0 - 1
        assert box.y1 <= canvas.y1 + 1
    overlaps = [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b)]
    assert not overlaps


def need_backend(backend):
    """Leave the test out where a backend of arviz-plots is not installed."""
    for module in (backend, "webcolors") if backend == "plotly" else (backend,):
        pytest.importorskip(module)
