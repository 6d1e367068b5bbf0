"""What the plots share: the choice of backend, the size of the figure, and where they draw.

arviz-plots is imported on the first plot, and only here: it brings its drawing library along.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arviz_plots.plot_collection import PlotCollection

__all__ = [
    "Visuals",
    "backend_name",
    "backend_of",
    "checked_visuals",
    "draw",
    "figure_arguments",
    "new_collection",
    "plot_backend",
    "visual_arguments",
]

Visuals = Mapping[str, Mapping[str, Any] | bool]


def backend_name(backend: str | None) -> str:
    """Return the name of the backend: ArviZ's default unless one is asked for."""
    from arviz_base import rcParams

    return str(rcParams["plot.backend"] if backend is None else backend)


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
    """Return ``visuals``; raise ValueError where it names a part that is not in ``valid``."""
    unknown = [name for name in visuals or {} if name not in valid]
    if unknown:
        raise ValueError(f"visuals must name some of {list(valid)}, got {unknown}; rename them.")
    return visuals or {}


def figure_arguments(
    given: Mapping[str, Any] | None, backend: str, rows: int, cols: int
) -> dict[str, Any]:
    """Return the arguments of the figure, with a size for ``rows`` by ``cols`` panels."""
    arguments = dict(given or {})
    if backend == "matplotlib":
        # Leaves room for long labels and for the legend, which arviz-plots puts outside.
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
