"""The public names for objects of users."""

import pm_evidence as pe
from pm_evidence import extending


def test_every_name_is_there_and_documented():
    for name in extending.__all__:
        assert getattr(extending, name).__doc__ or name == "Report", name


def test_native_targets_are_at_the_top_too():
    assert pe.NativeTarget is extending.NativeTarget
