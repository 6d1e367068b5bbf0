"""Values that an argument may be given by mistake."""

from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import xarray as xr

import pm_evidence as pe
from pm_evidence.core.shape import Shape
from pm_evidence.families.lattice.ising import SpinHeatBath
from pm_evidence.families.lattice.target import SwendsenWang

__all__ = ["VALUES", "broken_trees", "kernels"]

VALUES = {
    "None": None,
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": -float("inf"),
    "-1": -1,
    "0": 0,
    "1": 1,
    "0.5": 0.5,
    "1e13": 10**13,
    "2**70": 2**70,
    "-2**70": -(2**70),
    "10**400": 10**400,
    "True": True,
    "complex": 1j,
    "complex128": np.complex128(1.0),
    "float32": np.float32(0.5),
    "Fraction": Fraction(1, 2),
    "Decimal": Decimal("0.5"),
    "empty text": "",
    "text": "x",
    "auto": "auto",
    "bytes": b"x",
    "0-d array": np.array(1.0),
    "empty array": np.array([]),
    "array": np.array([1.0, 2.0]),
    "array of nan": np.array([1.0, np.nan]),
    "array of inf": np.array([np.inf, 1.0]),
    "large whole numbers": np.array([10**13]),
    "negative whole numbers": np.array([-1, -(2**62)]),
    "cube": np.ones((2, 3, 4)),
    "objects": np.array([None, 1.0], dtype=object),
    "texts": np.array(["a", "b"]),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "records": np.zeros(2, dtype=[("a", float)]),
    "masked": np.ma.masked_array([1.0, 2.0], [True, False]),
    "ragged": [[1.0], [1.0, 2.0]],
    "empty list": [],
    "list of None": [None],
    "nested": [[[[]]]],
    "tuple": (1.0, 2.0, 3.0),
    "dict": {},
    "dict of a number": {"a": 1},
    "dict of None": {None: None},
    "set": {1, 2},
    "generator": (i for i in range(3)),
    "object": object(),
    "class": pe.kernels.HMC,
    "builtin class": int,
    "function": lambda *arguments: None,
    "failing function": lambda: 1 / 0,
    "module": pe,
    "kernel": pe.kernels.HMC(),
    "sampler": pe.methods.SMC(),
    "target": pe.mixtures.Gaussian(),
    "evidence": pe.LogEvidence(-1.0, 0.1, "bar"),
    "unknown evidence": pe.LogEvidence(float("nan"), float("nan"), "bar", "no_error"),
    "empty tree": xr.DataTree(),
    "other tree": xr.DataTree.from_dict({"posterior": xr.Dataset({"x": 1.0})}),
    "dataset": xr.Dataset(),
    "frame": pd.DataFrame({"a": [1.0]}),
    "series": pd.Series([1.0, None], dtype="Float64"),
}


def kernels():
    """Kernels that do not belong to a model of four coordinates, or hardly."""
    shapes = {
        "of one coordinate": Shape(np.zeros(1), np.ones((1, 1))),
        "of nan": Shape(np.full(2, np.nan), np.eye(2)),
        "of lists": Shape([0.0, 0.0], [[1.0], [1.0]]),
        "singular": Shape(np.zeros(2), np.zeros((2, 2))),
        "of integers": Shape(np.zeros(2, int), np.ones((2, 1), int)),
        "large": Shape(np.zeros(2), np.full((2, 1), 1e300)),
        "right": Shape(np.zeros(2), np.ones((2, 1))),
    }
    discrete = [[0], [2], [3], [4], [10**6], [2, 3], [3, 2], [0, 2], [2**40]]
    bounds = [(0, 1), (0, 2), (-1, 2), (0, 0), (2, 2), (0, 10**4), (-(10**4), 10**4)]
    found = {
        f"HMC of a shape {name}": pe.kernels.HMC(shape=shape) for name, shape in shapes.items()
    }
    found |= {
        f"walk of a shape {name}": pe.kernels.RandomWalk(shape=s) for name, s in shapes.items()
    }
    found |= {f"integers {at}": pe.kernels.IntegerWalk(at, np.ones(len(at))) for at in discrete}
    found |= {
        f"Gibbs {at} {low} {high}": pe.kernels.DiscreteGibbs(at, [low] * len(at), [high] * len(at))
        for at in discrete
        for low, high in bounds
    }
    whole = [
        pe.kernels.RandomWalk(),
        pe.kernels.DiscreteGibbs([2], [0], [2]),
        pe.kernels.IntegerWalk([3], [1e15]),
    ]
    cycles = {
        f"cycle with {name}": pe.kernels.Cycle((*whole, part)) for name, part in found.items()
    }
    return {
        **found,
        **cycles,
        "extreme HMC": pe.kernels.Cycle(
            (pe.kernels.HMC(step_size=1e-300, path_length=1e300), *whole[1:])
        ),
        "extreme walk": pe.kernels.Cycle((pe.kernels.RandomWalk(scale=1e300), *whole[1:])),
        "nested": pe.kernels.Cycle((pe.kernels.Cycle((pe.kernels.Cycle(tuple(whole)),)),)),
        "estimates": pe.kernels.PseudoMarginal(),
        "clusters": SwendsenWang(),
        "spins": SpinHeatBath(),
    }


def broken_trees(dt):
    """Return what makes copies of a result in which a part is missing, or is something else."""
    broken = {f"without {name}": partial(dt.drop_nodes, name) for name in dt.children}

    def add(what, change, group):
        broken[f"{group} {what}"] = partial(_changed, dt, group, change)

    for group in dt.children:
        data = dt[group].to_dataset()
        for name in data.variables:
            add(f"without {name}", lambda data, n=name: data.drop_vars(n), group)
        for name in data.attrs:
            add(f"without the attribute {name}", partial(_without_attribute, name=name), group)
            for value in ("x", "9", "[]", -1):
                attrs = {name: value}
                add(f"with {name}={value}", lambda data, a=attrs: data.assign_attrs(a), group)
        for name, variable in data.data_vars.items():
            add(f"with a number as {name}", lambda data, n=name: data.assign({n: 1.0}), group)
            for what, value in (
                *(("texts", "a"), ("nan", np.nan), ("-1", -1.0)),
                *(("large", 10**13), ("objects", None)),
            ):
                values = (variable.dims, np.full(variable.shape, value))
                add(
                    f"with {what} as {name}",
                    lambda data, n=name, v=values: data.assign({n: v}),
                    group,
                )
        for dim in data.dims:
            for what, part in (
                ("one", slice(1)),
                ("none of", slice(0)),
                ("less of", slice(1, None)),
            ):
                add(f"with {what} {dim}", lambda data, d=dim, p=part: data.isel({d: p}), group)
    return broken


def _changed(dt, group, change):
    changed = dt.copy()
    changed[group] = xr.DataTree(change(dt[group].to_dataset()))
    return changed


def _without_attribute(data, name):
    left = {key: value for key, value in data.attrs.items() if key != name}
    return data.drop_attrs().assign_attrs(left)
