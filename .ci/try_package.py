"""Install the wheel and the sdist of a folder, and run a model with each, outside the source tree.

    python .ci/try_package.py dist

Each is installed without its dependencies into a new environment that takes these from the one that
runs the script.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# A model with an exact answer, the table, and what the tests do not see: a missing file or module.
MODEL = """
import sys
from importlib.metadata import version

import pymc as pm

import pm_evidence as pe

assert pe.__file__.startswith(sys.prefix), pe.__file__
assert pe.__version__ == version("pm_evidence") == sys.argv[1], pe.__version__
with pm.Model() as model:
    mu = pm.Normal("mu", 0, 1)
    pm.Normal("y", mu, 1, observed=[0.5, 1.5])
dt = pe.sample_evidence(model, random_seed=1, progressbar=False)
evidence = pe.log_evidence(dt)
assert evidence.status == "ok", evidence
assert abs(evidence.value + 2.9705163) < 5 * evidence.mcse, evidence
print(pe.compare({"normal": dt, "the same": dt}))
"""
NAMES = """
import pm_evidence as pe
import pm_evidence.testing

assert all(hasattr(pe, name) for name in pe.__all__)
"""


# Beside the package itself.
IN_SDIST = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}


def check_contents(file):
    """Check that a file holds the package, its metadata and licence, and nothing else."""
    if file.suffix == ".whl":
        names = [Path(name).parts for name in zipfile.ZipFile(file).namelist()]
        assert {top.split("-")[0] for top, *_ in names} == {"pm_evidence"}, file.name
        assert any(parts[-2:] == ("licenses", "LICENSE") for parts in names), file.name
    else:
        with tarfile.open(file) as sdist:
            tops = {Path(name).parts[1] for name in sdist.getnames()}
        assert tops - {".gitignore"} == IN_SDIST | {"pm_evidence"}, tops


def environment(folder):
    """Make an environment that sees the packages of this one, and return its interpreter."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.check_output([python, "-c", asked], text=True).strip()
    here = sysconfig.get_path("purelib")
    Path(packages, "dependencies.pth").write_text(here + "\n", encoding="utf-8")
    return python


def try_package(file, version, code):
    """Install one file, and run code with it."""
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder, "venv"))
        install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        install += ["--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed"]
        subprocess.run([*install, str(file)], check=True, cwd=folder)
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        subprocess.run([python, "-c", code, version], check=True, cwd=folder, env=clean)


def main():
    """Try the wheel with a model, and the sdist by its names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    built = Path(sys.argv[1]).resolve()
    for pattern, code in (("*.whl", MODEL), ("*.tar.gz", NAMES)):
        (file,) = built.glob(pattern)
        assert project["version"] in file.name, file.name
        check_contents(file)
        try_package(file, project["version"], code)
        print(f"{file.name} can be installed and used.")


if __name__ == "__main__":
    main()
