"""What is learnt of a target is asked for in one place, and kept by the run."""

from pm_evidence.core.kept import keeping, kept


def test_without_a_run_it_is_computed():
    assert kept("trial", lambda: 3) == 3


def test_a_run_returns_what_it_keeps():
    with keeping(lambda name, compute: (name, compute() + 1)):
        assert kept("trial", lambda: 3) == ("trial", 4)
    assert kept("trial", lambda: 3) == 3
