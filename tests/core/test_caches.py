"""The package works where nothing but temporary files can be written, as in containers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import caching

import pm_evidence
from pm_evidence.core import version as caches
from pm_evidence.core.version import source_key

SOURCE = Path(pm_evidence.__file__).parent
CHILD = """
import pymc as pm
import pm_evidence as pe
from pm_evidence.core.numerics import total
from pm_evidence.targets.model.target import PyMCTarget
import numpy as np
with pm.Model() as model:
    mu = pm.Normal("mu", 0, 1)
    pm.Normal("y", mu, 1, observed=[0.5, 1.5])
target = PyMCTarget(model)
print(target.density.evaluate(np.zeros((1, 1)))[0].tolist(), total(np.ones(3)))
"""
NOWHERE = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
import numpy as np
from pm_evidence.core.numerics import total
total(np.ones(3))
"""


@pytest.fixture
def read_only(tmp_path):
    """A copy of the package and a home, and what runs Python where neither can be written to."""
    command = []
    if os.geteuid() == 0:  # whom permissions do not stop unless capabilities are given up
        if shutil.which("setpriv") is None:
            pytest.skip("root needs setpriv to give up its capabilities")
        command = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
    site, home = tmp_path / "site", tmp_path / "home"
    shutil.copytree(SOURCE, site / "pm_evidence", ignore=shutil.ignore_patterns("*.nb[ci]"))
    home.mkdir()
    folders = [p for p in (tmp_path, *tmp_path.rglob("*")) if p.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "PYTENSOR", "XDG"))}
    environment = kept | {"HOME": str(home), "PYTHONPATH": str(site)}

    def run(code, *arguments):
        return subprocess.run(
            [*command, sys.executable, "-c", code, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd="/",
        )

    run.home = home
    yield run
    for folder in folders:
        folder.chmod(0o755)


@pytest.mark.slow
def test_the_package_works_without_a_place_for_compiled_code_and_says_so_once(read_only):
    """The import failed, because numba found no place for its cache; PyTensor's did later."""
    done = read_only(CHILD)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(" 3.0")
    assert done.stderr.count("Compiled code cannot be stored on disk") == 1
    assert "PYTENSOR_FLAGS=base_compiledir" in done.stderr
    assert list(read_only.home.iterdir()) == []


def test_without_any_folder_the_error_says_what_to_set(read_only):
    done = read_only(NOWHERE, read_only.home)
    assert done.returncode != 0
    assert "pm_evidence needs a folder for compiled code" in done.stderr
    assert "NUMBA_CACHE_DIR=FOLDER" in done.stderr


def test_the_functions_of_others_are_left_alone():
    locator = caches._located(caching.UserWideCacheLocator, str)
    assert locator.from_function(pytest.raises, pytest.__file__) is None


TWO_FILES = {
    "inner.py": "import numba as nb\n@nb.njit(cache=True)\ndef f(x):\n    return x + 1.0\n",
    "outer.py": (
        "import numba as nb\nfrom pm_evidence.inner import f\n"
        "@nb.njit(cache=True)\ndef g(x):\n    return f(x)\n"
    ),
}


def test_a_change_of_a_called_function_is_not_overlooked(tmp_path):
    """numba looks at the file of the caller alone, and would run the code of the old function."""
    package = tmp_path / "pm_evidence"
    (package / "core").mkdir(parents=True)
    for name in ("__init__.py", "version.py"):
        shutil.copy(SOURCE / "core" / name, package / "core")
    (package / "__init__.py").touch()
    for name, text in TWO_FILES.items():
        (package / name).write_text(text)

    def result():
        code = """
from pm_evidence.core import version as caches
caches.register()
from pm_evidence.outer import g
print(g(1.0))
"""
        # Python takes a changed file of equal length for the old one within the same second (-B).
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-B", "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            cwd=tmp_path,
        )
        return float(done.stdout)

    assert result() == 2.0
    first = source_key(package)
    (package / "inner.py").write_text(TWO_FILES["inner.py"].replace("1.0", "2.0"))
    assert source_key(package) != first
    assert result() == 3.0


def test_only_files_with_compiled_functions_count(tmp_path):
    """An edit elsewhere leaves the compiled code in use."""
    for name, text in TWO_FILES.items():
        (tmp_path / name).write_text(text)
    first = source_key(tmp_path)
    (tmp_path / "plain.py").write_text("x = 1\n")
    assert source_key(tmp_path) == first


def test_an_installed_package_is_known_by_the_hashes_of_its_files(tmp_path):
    """They stand in one file: two builds of one version differ there."""
    info = tmp_path / "pm_evidence-1.0.dist-info"
    info.mkdir()
    keys = set()
    for line in ("pm_evidence/a.py,sha256=x,9", "pm_evidence/a.py,sha256=y,9"):
        (info / "RECORD").write_text(line)
        keys.add(source_key(tmp_path / "pm_evidence"))
    assert len(keys) == 2
