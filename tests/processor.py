"""The settings under which numbers are the same, bit for bit, on every processor of one family.

Compiled code, NumPy, its linear algebra and the mathematical functions of the C library use the
instructions of the processor that they find, and round in other ways with them. A chain of which
one proposal is decided by the last digit then goes elsewhere. These settings leave the instructions
that all processors of the family have. They are read when a process starts, so that they have to be
given to it: ``env $(python tests/processor.py) python -m pytest``. With the name of a processor,
code is compiled for it, and everything else is left as it is.
"""

import platform
import sys
from importlib.metadata import version

from numpy._core._multiarray_umath import __cpu_dispatch__

PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "pymc", "pytensor", "arviz-stats")


def least() -> dict[str, str]:
    """Return environment variables for the instructions that every processor has."""
    settings = {
        **compiled_for("generic"),
        "NUMBA_DISABLE_INTEL_SVML": "1",
        "NPY_DISABLE_CPU_FEATURES": ",".join(__cpu_dispatch__),
    }
    if platform.machine() in ("x86_64", "AMD64"):
        settings["OPENBLAS_CORETYPE"] = "Nehalem"  # the oldest one that NumPy's wheels run on
        settings["OPENBLAS_L2_SIZE"] = "512"  # sums are divided by the size of the cache
        settings["GLIBC_TUNABLES"] = "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"
    return settings


def compiled_for(name: str) -> dict[str, str]:
    """Return environment variables with which numba compiles for a processor of this name."""
    return {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ""}


def made_with() -> dict[str, str]:
    """Return what numbers depend on besides the processor: its family, and versions."""
    return {
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        **{name: version(name) for name in PACKAGES},
    }


if __name__ == "__main__":
    chosen = compiled_for(sys.argv[1]) if sys.argv[1:] else least()
    print(" ".join(f"{name}={value}" for name, value in chosen.items()))
