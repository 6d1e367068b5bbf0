"""Tempered chains as variables of the group ``work``, written and read back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.records import BlockRecord, TemperedChains
from pm_evidence.results import schema
from pm_evidence.results.stored import incomplete, variable_of

__all__ = ["read_tempered", "tempered_variables"]

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


def read_tempered(work: xr.Dataset, index: NDArray[Any]) -> list[TemperedChains | None]:
    """Return the chains of the blocks of these numbers; None for a block without.

    Raises
    ------
    ValueError
        If a part of them is missing, or does not fit the rest.
    """
    if schema.TEMPERED_BLOCK not in work:
        return [None] * len(index)
    states = {name: _read(work, _named(name), schema.TEMPERED_STATE) for name in ("energy", "rung")}
    of_chains = {name: _read(work, _named(name), schema.TEMPERED_CHAIN) for name in _OF_CHAINS}
    of_blocks = {name: _read(work, _named(name), schema.TEMPERED_BLOCK) for name in _OF_BLOCKS}
    belongs = _read(work, _named("chain_block"), schema.TEMPERED_CHAIN)
    number = _read(work, schema.TEMPERED_BLOCK, schema.TEMPERED_BLOCK)
    found: dict[int, TemperedChains] = {}
    first = 0
    for i, block in enumerate(number):
        mine = belongs == block
        shape = (int(of_blocks["iterations"][i]), int(mine.sum()))
        part = slice(first, first + shape[0] * shape[1])
        first = part.stop
        if first > len(states["energy"]):
            break
        found[int(block)] = TemperedChains(
            states["energy"][part].reshape(shape),
            states["rung"][part].reshape(shape).astype(np.int16),
            of_chains["ladder"][mine],
            of_chains["restarts"][mine],
            of_chains["round_trips"][mine],
            int(of_blocks["every"][i]),
        )
    if first != len(states["energy"]) or not np.isin(number, index).all():
        missing = "energies of every iteration of every chain"
        raise ValueError(incomplete("dt", schema.WORK, missing))
    return [found.get(int(block)) for block in index]


def _named(name: str) -> str:
    return f"{schema.TEMPERED}_{name}"


def _read(work: xr.Dataset, key: str, dim: str) -> NDArray[Any]:
    return variable_of(work, schema.WORK, key, (dim,), "dt")
