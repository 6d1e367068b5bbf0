"""The public names for objects of users, and the version, which stored results carry."""

import importlib
from importlib import metadata

import pm_evidence as pe
from pm_evidence import extending
from pm_evidence.core import version


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
