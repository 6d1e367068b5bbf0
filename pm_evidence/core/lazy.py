"""Names of a module that stand in other modules, which are imported when a name is asked for."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_from(
    module: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a module, from the module that each name is in."""

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(places[name]), name)

    return get, lambda: sorted({*vars(import_module(module)), *places})
