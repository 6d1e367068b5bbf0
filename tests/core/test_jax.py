"""JAX is optional, imported late, and its settings belong to the user."""

import os
import subprocess
import sys
import textwrap

import pytest

from pm_evidence.core import jax as core_jax
from pm_evidence.core.jax import check_jax, device_name, double_precision, load_jax


def run(code, **variables):
    """The output of a fresh process."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    env = os.environ | variables
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


MODEL = """
    import logging
    import pymc as pm
    heard = []
    logging.getLogger("pymc").setLevel("INFO")
    logging.getLogger("pymc.pm_evidence").addFilter(heard.append)
    from pm_evidence.targets.model.cache import target_of
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", x, 1, observed=[1.0])
    target_of(model, backend="jax").differentiable
"""


@pytest.mark.slow
def test_a_run_without_jax_does_not_load_it():
    """PyTensor's part of it takes a second, and settles the precision of the process.

    That JAX itself is not imported is a contract of import-linter: ArviZ imports it where it is.
    Later on, the precision is that of PyTensor, which sets it only once: PyMC's own JAX samplers
    rely on it.
    """
    assert run(f"""
    import sys, pymc as pm, pm_evidence as pe
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", x, 1, observed=[1.0])
    pe.sample_evidence(model, draws=40, target_mcse=None, progressbar=False, random_seed=1)
    print("pytensor.link.jax.dispatch" in sys.modules)
    from pm_evidence.core.jax import load_jax, uses_single_precision
    print(uses_single_precision(), load_jax().config.jax_enable_x64)
    {MODEL}
    print(load_jax().config.jax_enable_x64, len(heard))
    """) == ["False", "False", "False", "True", "0"]


@pytest.mark.slow
def test_programs_are_kept_on_disk(tmp_path):
    """A new process reads them; where the user has chosen a folder, they are there."""
    counted = f"""
    import jax
    hits = []
    jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
    {MODEL}
    print(float(target_of(model, backend="jax").evaluate([[0.5]]).log_density.sum()))
    print(hits.count("/jax/compilation_cache/cache_hits"), jax.config.jax_compilation_cache_dir)
    """
    keep = {"PYTENSOR_FLAGS": f"base_compiledir={tmp_path}"}
    value, none, folder = run(counted, **keep)
    assert none == "0" and folder.startswith(str(tmp_path))
    again, some, _ = run(counted, **keep)
    assert int(some) >= 1 and again == value
    own = str(tmp_path / "own")
    assert run(counted, JAX_COMPILATION_CACHE_DIR=own)[2] == own


@pytest.mark.slow
def test_single_precision_of_the_user_is_kept():
    """The results of the user's own JAX code must not change; PyTensor would change them."""
    answer = run(f"""
    import jax
    jax.numpy.ones(2)
    {MODEL}
    print(jax.config.jax_enable_x64, jax.numpy.ones(2).dtype, len(heard))
    """)
    assert answer == ["False", "float32", "1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", ["", "import jax; jax.config.update('jax_enable_x64', True); jax.numpy.ones(2)"]
)
def test_double_precision_of_pytensor_is_kept(first):
    """Also if JAX is first imported here, or was used in this precision before."""
    answer = run(f"""
    {first}
    {MODEL}
    import jax
    print(jax.config.jax_enable_x64, len(heard))
    """)
    assert answer == ["True", "0"]


def test_double_precision_is_that_of_a_context():
    before = load_jax().config.jax_enable_x64
    with double_precision() as jax:
        assert jax.numpy.ones(2).dtype == "float64"
    assert load_jax().config.jax_enable_x64 == before


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(core_jax, "find_spec", lambda name: None)
    for use in (check_jax, load_jax, device_name):
        with pytest.raises(ImportError, match=r"pip install 'pm-evidence\[jax\]'"):
            use()
