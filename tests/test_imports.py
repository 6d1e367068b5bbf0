"""What is imported, and when; public names for objects of users, and the version.

Short runs must not wait for what they do not use.
"""

import importlib
import json
import os
import subprocess
import sys
from importlib import metadata

import numba as nb
import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence import extending
from pm_evidence.core import version
from pm_evidence.core.random import fill_normal, streams, uniform

# What `import pm_evidence` may import of itself.
AT_ONCE = {
    "pm_evidence",
    "pm_evidence.core",
    "pm_evidence.core.version",
}
HEAVY = {"arviz", "arviz_base", "arviz_stats", "arviz_plots", "dask", "distributed", "numba", "jax"}
HEAVY |= {"matplotlib", "plotly", "bokeh", "h5netcdf", "zarr", "sparse", "rich", "pymc", "xarray"}
HEAVY |= {"pandas", "scipy", "pytensor"}


def in_a_new_process(code, **environment):
    """Return what a program prints as its last line, in JSON; it must say nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1])


# Where it is installed, xarray imports dask.array, which imports numba through sparse.
BLOCKED = """
import sys
sys.modules["sparse"] = sys.modules["dask"] = None
"""

ALONE = """
import json, sys
before = set(sys.modules)
import pm_evidence
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_importing_the_package_imports_hardly_anything():
    """Whoever imports it in a script that does not use it would wait for all of it."""
    new = in_a_new_process(ALONE)
    assert {name for name in new if name.split(".")[0] == "pm_evidence"} <= AT_ONCE
    assert not {name.split(".")[0] for name in new} & HEAVY


NAMES = """
import json, sys
import pm_evidence as pe
missing = [name for name in pe.__all__ if not hasattr(pe, name)]
listed = set(dir(pe)) >= set(pe.__all__)
try:
    pe.sample_evidenze
except AttributeError as error:
    print(json.dumps([missing, listed, str(error)]))
"""


def test_every_name_is_found_when_it_is_asked_for():
    """A name that is missing would be an AttributeError in the middle of a user's work."""
    missing, listed, error = in_a_new_process(NAMES)
    assert not missing and listed
    assert error == "module 'pm_evidence' has no attribute 'sample_evidenze'"


EVERYTHING = """
import gc, importlib, json, pkgutil, sys
import pm_evidence, pm_evidence.plots, pm_evidence.results
for module in pkgutil.walk_packages(pm_evidence.__path__, "pm_evidence."):
    importlib.import_module(module.name)
from pm_evidence.core.codegen.numba import Later
later = [each for each in gc.get_objects() if isinstance(each, Later)]
print(json.dumps({
    "modules": sorted(name for name in sys.modules if "." not in name),
    "n_later": len(later),
    "built": [getattr(each, "__qualname__", "?") for each in later if each._made is not None],
}))
"""


def test_importing_every_module_compiles_nothing():
    """And drags no plots or clusters along."""
    seen = in_a_new_process(BLOCKED + EVERYTHING)
    assert seen["n_later"] > 100  # the search does find them
    assert seen["built"] == []
    allowed = {"numba", "rich", "pymc", "xarray", "pandas", "scipy", "pytensor", "zarr"}
    assert not (HEAVY - allowed) & set(seen["modules"]) - {"dask", "sparse"}


RUN = """
import gc, json
import numpy as np, pymc as pm
import pm_evidence as pe
with pm.Model() as model:
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfNormal("tau", 5)
    theta = pm.Normal("theta", mu, tau, shape=4)
    pm.Normal("y", theta, 1.0, observed=[0.5, 1.5, -0.3, 2.0])
dt = pe.sample_evidence(model, random_seed=1, progressbar=False, cores=1)
from pm_evidence.core.codegen.numba import Later
later = [each for each in gc.get_objects() if isinstance(each, Later)]
print(json.dumps({
    "numba": "numba" in sys.modules,
    "built": [getattr(each, "__qualname__", "?") for each in later if each._made is not None],
    "backend": dt["log_evidence"].attrs["backend"],
    "route": dt["log_evidence"].attrs["route"],
    "value": float(pe.log_evidence(dt).value).hex(),
}))
"""


@pytest.fixture(scope="module")
def small_run():
    return in_a_new_process(BLOCKED + RUN)


def test_a_small_run_needs_no_numba(small_run):
    """Its import takes longer than the run, and each function that is compiled takes seconds."""
    assert small_run["backend"] == "numpy" and small_run["route"] == "importance"
    assert small_run["built"] == []
    assert not small_run["numba"]


def test_a_small_run_is_the_same_in_every_process(small_run):
    """The order of sets, and of dictionaries by id, is another one in each process."""
    again = in_a_new_process(BLOCKED + RUN, PYTHONHASHSEED="17")
    assert again["value"] == small_run["value"]


# --- compiled functions that wait for numba ---


@nb.njit
def of_a_user(stream, out):
    extending.fill_normal(stream, out)
    return extending.uniform(stream)


def test_a_users_own_function_calls_ours():
    """Kernels of users are compiled with our generators in them, which stand for compiled ones."""
    stream = streams(np.random.SeedSequence(3), 1)[0]
    own, out, expected = stream.copy(), np.empty(5), np.empty(5)
    drawn = of_a_user(own, out)
    fill_normal(stream, expected)
    assert np.array_equal(out, expected)
    assert drawn == uniform(stream)
    assert np.array_equal(own, stream)


def test_a_later_function_is_documented_as_itself():
    """Pages and editors would show what stands for it instead."""
    assert fill_normal.__name__ == "fill_normal" and "standard normal" in fill_normal.__doc__
    assert callable(fill_normal.py_func)


# --- names and version ---


def test_every_name_is_there_and_documented():
    for name in extending.__all__:
        assert getattr(extending, name).__doc__ or name == "Report", name


def test_the_version_is_that_of_the_distribution():
    assert version.VERSION == metadata.version("pm-evidence") == pe.__version__


def test_a_source_tree_that_is_not_installed_can_be_imported(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    with monkeypatch.context() as patch:
        patch.setattr(metadata, "version", missing)
        assert importlib.reload(version).VERSION == "0"
    importlib.reload(version)
    assert pe.__version__ == version.VERSION
