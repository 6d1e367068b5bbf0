"""What is learnt of a target before its run, which a run with a checkpoint keeps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["keeping", "kept"]

Keep = Callable[[str, Callable[[], Any]], Any]

_KEEP: ContextVar[Keep | None] = ContextVar("keep", default=None)


def kept(name: str, compute: Callable[[], Any]) -> Any:
    """Return what a function returns, or returned in an earlier process of the same run.

    Parameters
    ----------
    name : str
        What it is; a run learns no two things of the same name.
    compute : callable
        The function; its result does not depend on the seed of the run.
    """
    keep = _KEEP.get()
    return compute() if keep is None else keep(name, compute)


@contextmanager
def keeping(keep: Keep) -> Iterator[None]:
    """Let ``keep`` return what `kept` asks for in this thread."""
    token = _KEEP.set(keep)
    try:
        yield
    finally:
        _KEEP.reset(token)
