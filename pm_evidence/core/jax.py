"""JAX, which is an optional dependency: it is imported here alone, when a run asks for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any


def check_jax() -> None:
    """Raise an error if JAX is not installed; it is not imported."""
    if find_spec("jax") is None:
        raise ImportError(
            "backend='jax' needs the package jax, which is not installed; install it with "
            "pip install 'pm-evidence[jax]' (for a GPU also pip install 'jax[cuda]'), or leave "
            "backend out."
        )


def load_jax() -> Any:
    """Return the module ``jax``."""
    check_jax()
    import jax

    return jax


def uses_single_precision() -> bool:
    """Return whether this process has computed with JAX before, in single precision.

    Whether JAX is imported does not tell this: ArviZ imports it where it is installed.
    """
    jax = load_jax()
    started: bool = jax._src.xla_bridge.backends_are_initialized()
    return started and not jax.config.jax_enable_x64


@contextmanager
def double_precision() -> Iterator[Any]:
    """Compute in double precision, in this thread and context only; gives the module ``jax``.

    The precision that the user has chosen for the rest of the process is left as it is.
    """
    jax = load_jax()
    with jax.enable_x64(True):
        yield jax


@contextmanager
def kept_programs(folder: str) -> Iterator[None]:
    """Keep programs that are compiled here on disk, in the user's folder for them if there is one.

    Those of the user are kept there as well if they take more than a second to compile.
    """
    jax = load_jax()
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", folder)
    with jax._src.config.persistent_cache_min_compile_time_secs(0.0):
        yield


def device_name() -> str:
    """Return the kind of device on which JAX computes, such as ``"cpu"``."""
    return str(load_jax().local_devices()[0].device_kind)
