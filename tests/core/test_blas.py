"""Linear algebra on one thread."""

from threadpoolctl import threadpool_info, threadpool_limits

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
