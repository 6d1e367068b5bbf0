"""Linear algebra on one thread."""

import sys
from types import ModuleType

from threadpoolctl import threadpool_info, threadpool_limits

from pm_evidence.core import rows as blas
from pm_evidence.core.rows import one_blas_thread


def n_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_one_thread_within_and_as_before_after():
    with threadpool_limits(limits=2):
        before = n_threads()
        with one_blas_thread():
            assert set(n_threads()) == {1}
            with one_blas_thread():
                assert set(n_threads()) == {1}
            assert set(n_threads()) == {1}
        assert n_threads() == before != []


def test_libraries_are_searched_again_after_an_import_only(monkeypatch):
    """A search takes milliseconds, and a module may have loaded another library."""
    searched = []
    search = blas.ThreadpoolController
    monkeypatch.setattr(blas, "ThreadpoolController", lambda: searched.append(1) or search())
    blas._libraries.cache_clear()
    for _ in range(3):
        with one_blas_thread():
            pass
    assert len(searched) == 1
    monkeypatch.setitem(sys.modules, "loads_a_library", ModuleType("loads_a_library"))
    with one_blas_thread():
        pass
    assert len(searched) == 2
