"""Progress: reports inform and never print."""

from pm_evidence.core.progress import Progress, silent


def test_silent_is_silent(capsys):
    """Numerical code must not print."""
    assert silent(Progress(0, 1, 0.5, 0.9, 0.8, -3.0)) is None
    assert capsys.readouterr() == ("", "")
