"""The version is that of the installed package, and stored results carry it."""

import importlib
from importlib import metadata

import pm_evidence
from pm_evidence.core import version


def test_the_version_is_that_of_the_distribution():
    assert version.VERSION == metadata.version("pm-evidence") == pm_evidence.__version__


def test_a_source_tree_that_is_not_installed_can_be_imported(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    with monkeypatch.context() as patch:
        patch.setattr(metadata, "version", missing)
        assert importlib.reload(version).VERSION == "0"
    importlib.reload(version)
    assert pm_evidence.__version__ == version.VERSION
