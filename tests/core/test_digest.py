"""Digests that are the same in every process."""

import subprocess
import sys
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType

import numpy as np

from pm_evidence.core import digest
from pm_evidence.core.digest import Digest, digest_of


@dataclass(frozen=True)
class Options:
    """Two options, and one that is computed."""

    n: int = 1
    name: str = "a"
    made: int = field(default=0, init=False)


class Target:
    """A target of a user's own."""

    def __init__(self, scale, private=0.0):
        self.scale, self._private = scale, private

    @cached_property
    def table(self):
        """Computed when it is first asked for."""
        return self.scale * np.arange(3)


def power(n):
    return lambda x: x**n


DIFFERENT = [
    None,
    0,
    False,
    0.0,
    -0.0,
    "0",
    b"0",
    (),
    (0,),
    ((0,), ()),
    {"a": 1, "b": 2},
    {"a": 1, "b": 3},
    {1, 2},
    np.zeros(2),
    np.zeros(2, np.float32),
    np.zeros((2, 1)),
    np.array(["a", None], object),
    Options(),
    Options(2),
    Options,
    Target,
    Target(1.0),
    Target(2.0),
    Target(1.0, private=1.0),
    power(2),
    power(3),
    np.random.PCG64,
]


def test_other_values_have_other_digests():
    assert len({digest_of(value) for value in DIFFERENT}) == len(DIFFERENT)


def test_equal_values_have_equal_digests():
    for one, other in (
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({3, 1, 2}, {2, 3, 1}),
        (Target(1.0), Target(1.0)),
        (power(2), power(2)),
        ([1, 2], (1, 2)),
        (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3))),
    ):
        assert digest_of(one) == digest_of(other)


OFFSET = np.zeros(2)


def shifted(x):
    return [twice(value + OFFSET) for value in x]


def twice(x):
    return 2 * x


def test_globals_of_a_function_are_a_part_of_it(monkeypatch):
    """A density of a user's own may use arrays of the script, in functions that it calls, too."""
    before = digest_of(shifted)
    assert digest_of(shifted) == before
    monkeypatch.setattr(f"{__name__}.OFFSET", np.ones(2))
    between = digest_of(shifted)
    monkeypatch.setattr(f"{__name__}.twice", lambda x: 3 * x)
    assert len({before, between, digest_of(shifted)}) == 3


def test_what_was_computed_meanwhile_does_not_matter():
    target = Target(1.0)
    before = digest_of(target)
    assert target.table.size == 3
    assert digest_of(target) == before


def test_objects_may_refer_to_themselves():
    one, other = Target(1.0), Target(1.0)
    one.scale, other.scale = [one], [other]
    assert digest_of(one) == digest_of(other)


def test_modules_may_name_each_other(monkeypatch):
    """As those of a package do, of which a function of a user's own uses both."""
    one, other = ModuleType("one_of_two"), ModuleType("other_of_two")
    one.other, other.one, other.scale = other, one, 1.0
    monkeypatch.setattr(f"{__name__}.one", one, raising=False)
    before = digest_of(named)
    other.scale = 2.0
    assert digest_of(named) != before


def named(x):
    return one.other.scale * x + one.other.one.other.scale  # noqa: F821


def test_special_values_are_described_by_the_caller():
    def special(value):
        return "target" if isinstance(value, Target) else value

    assert digest_of([Target(1.0)], special) == digest_of([Target(2.0)], special)
    found = Digest(special)
    found.add([Target(3.0)])
    assert found.hexdigest() == digest_of(["target"])


def test_another_process_finds_the_same():
    """Whatever the seed of the hashes of texts, by which sets and dicts are ordered."""
    code = (
        f"import runpy; digest_of = runpy.run_path({digest.__file__!r})['digest_of']\n"
        "print(digest_of(({'a', 'b', 'c'}, {'x': 1.5}, lambda x: x in {'p', 'q', 'r'})))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(found) == 1 and len(found.pop()) == 65
