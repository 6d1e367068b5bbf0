"""Functions that the plots share: the choice of the backend, the size of the figure, and labels.

arviz-plots is imported by the first plot and only here, because it imports a drawing library.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, described
from pm_evidence.core.text import concise, decimals
from pm_evidence.estimators.errors import Spread, half_width

if TYPE_CHECKING:
    from arviz_plots.plot_collection import PlotCollection


Visuals = Mapping[str, Mapping[str, Any] | bool]

BACKENDS = ("matplotlib", "bokeh", "plotly", "none")
MINUS = "\N{MINUS SIGN}"
# Labels of rows whose status is ok, and of the others, which are drawn differently.
SOUND, DOUBTFUL = "ok", "cannot be trusted: see the status"
LOOKS: dict[str, dict[str, dict[str, Any]]] = {
    SOUND: {
        "error_bar": {"color": "C0", "width": 2},
        "point_estimate": {"color": "C0"},
    },
    DOUBTFUL: {
        "error_bar": {"color": "C1", "width": 2, "linestyle": "C1"},
        "point_estimate": {"facecolor": "B0", "edgecolor": "C1", "size": 40},
    },
}


def backend_name(backend: str | None) -> str:
    """Return the name of the backend: ArviZ's default unless one is asked for."""
    from arviz_base import rcParams

    name = check_choice(
        "backend", rcParams["plot.backend"] if backend is None else backend, BACKENDS
    )
    try:
        plot_backend(name)
    except ImportError as error:
        raise ValueError(
            f"backend must be one whose library is installed, got {name!r} ({error}); install "
            f"{name}, or pass backend='matplotlib'."
        ) from error
    return name


def plot_backend(backend: str) -> Any:
    """Return the module of arviz-plots that draws with ``backend``."""
    return import_module(f"arviz_plots.backend.{backend}")


def backend_of(target: Any) -> Any:
    """Return the module of arviz-plots that ``target`` belongs to."""
    module: Any = import_module("arviz_plots.plot_collection")
    return module.backend_from_object(target)


def draw() -> Any:
    """Return the module of visuals of arviz-plots, which work with every backend."""
    return import_module("arviz_plots.visuals")


def new_collection(data: Any, **arguments: Any) -> "PlotCollection":
    """Return a figure with one plot per facet of ``data``."""
    module: Any = import_module("arviz_plots")
    collection: PlotCollection = module.PlotCollection.wrap(data, **arguments)
    return collection


def checked_visuals(visuals: Visuals | None, valid: tuple[str, ...]) -> Visuals:
    """Return ``visuals``."""
    check_mapping("visuals", visuals)
    unknown = [name for name in visuals or {} if name not in valid]
    if unknown:
        raise ValueError(f"visuals must name some of {list(valid)}, got {unknown}; rename them.")
    for name, given in (visuals or {}).items():
        if not isinstance(given, Mapping | bool):
            raise TypeError(
                f"visuals[{name!r}] must be a mapping of arguments or False, got "
                f"{described(given)}; pass for example {{'color': 'C1'}}."
            )
    return visuals or {}


def check_mapping(name: str, value: Any) -> None:
    """Raise TypeError unless a value is None or a mapping with names as keys."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping, got {described(value)}; leave it out for none.")
    for key in value or ():
        if not isinstance(key, str):
            raise TypeError(
                f"{name} must have names as keys, got {described(key)}; put it in quotes."
            )


def figure_arguments(
    given: Mapping[str, Any] | None, backend: str, rows: int, cols: int
) -> dict[str, Any]:
    """Return the arguments of the figure, with a size for ``rows`` by ``cols`` panels."""
    check_mapping("figure_kwargs", given)
    arguments = dict(given or {})
    if backend == "matplotlib":
        # leaves space for long labels and for the legend, which arviz-plots places outside
        arguments.setdefault("layout", "constrained")
    arguments["figsize"] = plot_backend(backend).scale_fig_size(
        arguments.get("figsize"),
        rows=rows,
        cols=cols,
        figsize_units=arguments.get("figsize_units"),
    )
    arguments["figsize_units"] = "dots"
    return arguments


def visual_arguments(visuals: Visuals, name: str, **defaults: Any) -> dict[str, Any] | None:
    """Return the arguments of one visual; None when it is switched off."""
    given = visuals.get(name, True)
    if given is False:
        return None
    return {**defaults, **(given if isinstance(given, Mapping) else {})}


def curve(name: str, x: Any, y: Any) -> xr.Dataset:
    """Return a line of the plot ``name``, in the form that the visuals of arviz-plots take."""
    values = np.stack([np.asarray(x, float), np.asarray(y, float)])
    return xr.Dataset({name: (("plot_axis", "point"), values)}, coords={"plot_axis": ["x", "y"]})


def frame_of(name: str) -> dict[str, Any]:
    """Return the arguments of ``map`` for labels, limits and ticks, which are set once per plot."""
    return {"data": xr.Dataset({name: 0.0}), "ignore_aes": "all", "store_artist": False}


def draw_labels(collection: Any, name: str, visuals: Visuals, **texts: str) -> None:
    """Write the title and the labels of the axes that are given on the plot ``name``."""
    functions = {
        "title": draw().labelled_title,
        "xlabel": draw().labelled_x,
        "ylabel": draw().labelled_y,
    }
    for label, text in texts.items():
        arguments = visual_arguments(visuals, label, text=text)
        if arguments is not None:
            collection.map(functions[label], label, **frame_of(name), **arguments)


def number(value: float, error: float) -> str:
    """Return ``value`` with the digits that its error leaves, and a typographic minus."""
    digits = decimals(error)
    return f"{round(value, digits):.{max(digits, 0)}f}".replace("-", MINUS)


def with_error(value: float, error: float) -> str:
    """Return ``value`` with its error in parentheses, and a typographic minus."""
    return concise(value, error).replace("-", MINUS)


def half_widths(mcse: Sequence[float], dof: Sequence[float]) -> NDArray[np.float64]:
    """Return half the lengths of the 95 % intervals of estimates with these errors."""
    return np.array([half_width(Spread(*each)) for each in zip(mcse, dof, strict=True)])


def set_yticks(da: Any, target: Any, values: Any, labels: list[str], **arguments: Any) -> Any:
    """Set ticks of the y axis with labels; arviz-plots has a function for the x axis only."""
    return backend_of(target).yticks(values, labels, target, **arguments)


def whole_ticks(da: Any, target: Any, axes: str = "x") -> None:
    """Let matplotlib place ticks of some axes at whole numbers only."""
    for axis in axes:
        getattr(target, f"{axis}axis").get_major_locator().set_params(integer=True)


def write_out_numbers(da: Any, target: Any) -> None:
    """Let matplotlib write few ticks in full, and not -1204.3 as -0.3 with an offset."""
    target.ticklabel_format(axis="x", useOffset=False)
    target.locator_params(axis="x", nbins=5)


def text_above(da: Any, target: Any, y: Any, **arguments: Any) -> Any:
    """Write a text above a point of a row."""
    return draw().annotate_xy(da, target, y=np.asarray(y) + 0.28, **arguments)


def add_legend(
    collection: Any, entries: Sequence[tuple[str, Mapping[str, Any]]], **arguments: Any
) -> None:
    """Add a legend below the plot, of lines with these labels and looks."""
    defaults: dict[str, Any] = {}
    if collection.backend == "matplotlib":
        defaults = {"loc": "outside lower center", "frameon": False}
    elif collection.backend == "bokeh":
        defaults = {"side": "below"}
    plot_backend(collection.backend).legend(
        collection,
        [dict(look) for _, look in entries],
        [label for label, _ in entries],
        update_visuals=False,
        **{**defaults, **arguments},
    )


def draw_intervals(
    collection: Any, data: xr.Dataset, sound: NDArray[np.bool_], visuals: Visuals
) -> None:
    """Draw points with their intervals, those that are not sound with open points."""
    name = str(next(iter(data.data_vars)))
    for kind, rows in ((SOUND, sound), (DOUBTFUL, ~sound)):
        part, suffix = data.isel(model=np.flatnonzero(rows)), "" if kind == SOUND else "_doubtful"
        if not part.sizes["model"]:
            continue
        bar = visual_arguments(visuals, "error_bar", **LOOKS[kind]["error_bar"])
        if bar is not None:
            interval = part[["interval"]].rename(interval=name)
            collection.map(draw().line_x, f"error_bar{suffix}", data=interval, **bar)
        point = visual_arguments(visuals, "point_estimate", **LOOKS[kind]["point_estimate"])
        if point is not None:
            points = part[[name]]
            collection.map(draw().scatter_x, f"point_estimate{suffix}", data=points, **point)


def of_statuses() -> list[tuple[str, Mapping[str, Any]]]:
    """Return the entries of a legend that explains open points."""
    return [(kind, looks["error_bar"]) for kind, looks in LOOKS.items()]
