"""Tempered chains as variables of the group ``work``, written and read back."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.records import BlockRecord, TemperedChains
from pm_evidence.results import schema
from pm_evidence.results.stored import incomplete

__all__ = ["Reader", "read_tempered", "tempered_variables"]

_OF_CHAINS = ("ladder", "restarts", "round_trips")
_OF_BLOCKS = ("iterations", "every")


def tempered_variables(blocks: Sequence[BlockRecord]) -> dict[str, Any]:
    """Return the chains of forward blocks, one after the other; empty if there are none."""
    found = [(item.block, item.tempered) for item in blocks if item.tempered is not None]
    if not found:
        return {}
    index, chains = zip(*found, strict=True)
    state, chain, block = schema.TEMPERED_STATE, schema.TEMPERED_CHAIN, schema.TEMPERED_BLOCK
    n_chains = [len(each.ladder) for each in chains]
    variables: dict[str, Any] = {
        _named("energy"): (
            state,
            np.concatenate([each.energy.ravel() for each in chains]),
            {"units": schema.NATS},
        ),
        _named("rung"): (
            state,
            np.concatenate([each.rung.ravel() for each in chains]).astype(np.int16),
        ),
        block: (block, np.array(index, np.int64)),
        _named("chain_block"): (chain, np.repeat(np.array(index, np.int64), n_chains)),
        _named("iterations"): (block, np.array([len(each.energy) for each in chains], np.int64)),
        _named("every"): (block, np.array([each.every for each in chains], np.int64)),
    }
    for name in _OF_CHAINS:
        values = np.concatenate([getattr(each, name) for each in chains]).astype(np.int64)
        variables[_named(name)] = (chain, values)
    return variables


class Reader(Protocol):
    """Reads variables of the group ``work``; see ``record``."""

    work: xr.Dataset

    def whole(self, key: str, *dims: str) -> NDArray[Any]:
        """Return a variable of whole numbers."""
        ...

    def of_paths(self, key: str, dim: str) -> NDArray[Any]:
        """Return a variable without NaN."""
        ...


def read_tempered(
    reader: Reader, index: NDArray[Any], n_temperatures: int
) -> list[TemperedChains | None]:
    """Return the chains of the blocks of these numbers; None for a block without.

    Parameters
    ----------
    reader : Reader
        Of the group ``work``.
    index : ndarray of int, shape (n_blocks,)
        Numbers of the forward blocks.
    n_temperatures : int
        Number of inverse temperatures of the run.

    Raises
    ------
    ValueError
        If a part of them is missing, does not fit the rest, or holds what no run stores.
    """
    block, chain, state = schema.TEMPERED_BLOCK, schema.TEMPERED_CHAIN, schema.TEMPERED_STATE
    if not any(str(name).startswith(schema.TEMPERED) for name in reader.work.variables):
        return [None] * len(index)
    number = reader.whole(block, block)
    energy = reader.of_paths(_named("energy"), state)
    rung = _within(reader, "rung", state, 0, n_temperatures - 1)
    belongs = reader.whole(_named("chain_block"), chain)
    ladder, restarts, round_trips = (_within(reader, name, chain, 0) for name in _OF_CHAINS)
    iterations, every = (_within(reader, name, block, 1) for name in _OF_BLOCKS)
    n_chains = np.array([(belongs == each).sum() for each in number], np.int64)
    ends = np.cumsum(iterations * n_chains)
    fits = np.isin(belongs, number).all() and np.isin(number, index).all()
    if not (fits and n_chains.all() and len(number) and ends[-1] == len(energy)):
        missing = "energies of every iteration of every chain"
        raise ValueError(incomplete("dt", schema.WORK, missing))
    found = {}
    for i, stop in enumerate(ends):
        shape = int(iterations[i]), int(n_chains[i])
        part = slice(stop - shape[0] * shape[1], stop)
        mine = belongs == number[i]
        found[int(number[i])] = TemperedChains(
            energy[part].reshape(shape),
            rung[part].reshape(shape).astype(np.int16),
            ladder[mine],
            restarts[mine],
            round_trips[mine],
            int(every[i]),
        )
    return [found.get(int(each)) for each in index]


def _within(
    reader: Reader, name: str, dim: str, least: int, most: int | None = None
) -> NDArray[Any]:
    """Return a variable of whole numbers of at least and at most so much."""
    key = _named(name)
    values = reader.whole(key, dim)
    bad = values[(values < least) | (values > (np.inf if most is None else most))]
    if bad.size:
        rule = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(
            f"dt must hold numbers {rule} as {key!r} in its group {schema.WORK!r}, got {bad[0]}; "
            "read the original file that sample_evidence wrote."
        )
    return values


def _named(name: str) -> str:
    return f"{schema.TEMPERED}_{name}"
