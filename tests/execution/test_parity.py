"""The same seed gives the same bits, wherever a run takes place and whoever dies on the way."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pm_evidence as pe
from tests.execution import tasks
from tests.models import shared

ROOT = Path(__file__).parents[2]
# What Dask warns of, and what its event loop leaves open, is no failure of ours.
on_dask = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::ResourceWarning",
    "ignore::UserWarning",
)


@pytest.fixture(scope="module")
def continuous():
    return shared("positive").model


@pytest.fixture(scope="module")
def cluster():
    """Dask on this machine: two worker processes, and no dashboard."""
    pytest.importorskip("distributed")
    from dask.distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as local,
        Client(local) as client,
    ):
        yield client


def run(model, **options):
    options = {"draws": 320, "target_mcse": None, "random_seed": 11, "progressbar": False} | options
    return pe.sample_evidence(model, **options)


def assert_same_bits(one, other):
    """Everything but times."""
    assert one.groups == other.groups
    for group in ("posterior", "sample_stats", "log_evidence", "work", "annealing"):
        assert one[group].dataset.identical(other[group].dataset.assign_attrs(one[group].attrs)), (
            group
        )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("schools", {}, marks=pytest.mark.slow),
        ("mixed", {}),
        ("normal", {"method": "ais"}),
        ("states", {"method": pe.methods.AISEL()}),
        ("groups", {"method": pe.methods.AISEL(resampling=None, renewal=0.3), "draws": 40}),
    ],
)
@pytest.mark.filterwarnings("ignore::pm_evidence.EvidenceWarning")  # of so few draws
def test_threads(name, options):
    """Also of estimated likelihoods, of which the pilot chooses n_particles."""
    model = shared(name).model
    reference = run(model, cores=1, **options)
    assert_same_bits(run(model, cores=3, **options), reference)
    other = run(model, **options, random_seed=12)
    assert pe.log_evidence(other).value != pe.log_evidence(reference).value


def test_processes(pool):
    """Of an estimated likelihood, n_particles goes along, which the pilot chose."""
    for name in ("mixed", "states"):
        model = shared(name).model
        assert_same_bits(run(model, executor=pool), run(model, cores=1))


@pytest.mark.slow
@on_dask
def test_dask(cluster):
    """The executor that ``Client.get_executor`` gives."""
    model = shared("mixed").model
    assert_same_bits(run(model, executor=cluster.get_executor()), run(model, cores=1))


ANY_PROCESS = """
import hashlib, warnings
warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
import numpy as np, pm_evidence as pe
from tests.models import shared

estimated = shared("states").model
digest = hashlib.sha256()
for model in (shared("schools").model, estimated, pe.lattices.Ising(8)):
    method = pe.methods.AIS(n_stages=30) if model is not estimated else pe.methods.AISEL()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)  # so few draws
        options = {"draws": 800, "target_mcse": None, "random_seed": 4, "progressbar": False}
        dt = pe.sample_evidence(model, method=method, **options)
    for group in ("log_evidence", "work", "annealing"):
        for name, values in sorted(dt[group].dataset.data_vars.items()):
            if values.dtype.kind in "fiu":
                digest.update(np.ascontiguousarray(values.values).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_process_that_compiles(tmp_path):
    """It gets what later ones get, which find its machine code on disk, and other addresses."""
    environ = os.environ | {
        "NUMBA_CACHE_DIR": str(tmp_path / "ours"),
        "PYTENSOR_FLAGS": f"base_compiledir={tmp_path / 'pytensor'}",
        "PYTHONPATH": str(ROOT),
    }
    runs = [
        subprocess.run(
            [sys.executable, "-c", ANY_PROCESS],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-1]
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


def check_refused(model, executor):
    """An error of the kernel itself is raised here as it was there, and is not tried again."""
    kernel = tasks.Refuses(pe.kernels.HMC(), os.getpid())
    with pytest.raises(pe.NumericalError, match="refuses to move"):
        run(model, kernel=kernel, executor=executor)
    assert executor.submit(pow, 2, 3).result() == 8  # it is left running


def test_model_error_in_a_worker(pool, continuous):
    check_refused(continuous, pool)


def dying_kernel(tmp_path):
    """The kernel, and the mark that it leaves when a worker dies of it."""
    marker = tmp_path / "dead"
    return tasks.DiesOnce(pe.kernels.HMC(), str(marker), os.getpid()), marker


@pytest.mark.slow
@on_dask
def test_dask_worker_killed_in_mid_run(continuous, cluster, tmp_path):
    """Dask starts another worker, and runs the lost block there."""
    kernel, marker = dying_kernel(tmp_path)
    survived = run(continuous, kernel=kernel, executor=cluster.get_executor())
    assert marker.exists()
    assert_same_bits(survived, run(continuous, kernel=pe.kernels.HMC(), cores=1))


# --- Ctrl-C ---

SCRIPT = """
import multiprocessing, sys, threading
import pm_evidence as pe
from tests.execution import tasks
from tests.models import shared

if __name__ == "__main__":
    kernel = tasks.Announces(pe.kernels.HMC(), sys.argv[1])
    try:
        options = {"draws": 6400, "target_mcse": None, "progressbar": False}
        pe.sample_evidence(shared("schools").model, kernel=kernel, cores=2, **options)
    except KeyboardInterrupt:
        left = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
        print("interrupted", left, multiprocessing.active_children(), flush=True)
        raise
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["pilot", "blocks"])
def test_ctrl_c(place, tmp_path):
    """It ends after the moves that are under way, and leaves nothing behind.

    Every move takes a second, so that the whole run would take half an hour.
    """
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script), place],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a shell's background jobs ignore Ctrl-C, and hand that on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        for line in process.stdout:
            if line.strip() == place:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert "interrupted [] []" in out, out + err
    assert "KeyboardInterrupt" in err
    assert process.returncode in (130, -signal.SIGINT)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # nobody is left in its session
