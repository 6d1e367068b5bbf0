"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["VERSION"]

try:
    VERSION = version("pm_evidence")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0"
