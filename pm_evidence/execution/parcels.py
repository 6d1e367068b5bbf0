"""Objects as bytes, of which large parts are sent to a worker only once."""

import io
import pickle
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import cloudpickle

from pm_evidence.core.digest import digest_of_bytes

__all__ = ["NOT_PICKLED", "Lacking", "Parcel", "parcels"]

# Exceptions that say that an object cannot be pickled.
NOT_PICKLED = (pickle.PicklingError, TypeError, AttributeError)
# Bytes above which a part, such as the data of a model, is sent to a worker only once, and the
# number of such parts that a worker keeps.
_LARGE, _MOST_KEPT = 20_000, 16

# parts that this process got earlier, the oldest first
_KEPT: "OrderedDict[str, bytes]" = OrderedDict()
_KEEPING = Lock()


class Lacking(Exception):
    """A large part has not been sent to this process."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A pickled object.

    Parameters
    ----------
    head : bytes
        The object without its large parts.
    large : mapping
        The large parts by digest, or none of them where the receiver has them.
    """

    head: bytes
    large: Mapping[str, bytes]

    def without_large(self) -> "Parcel":
        """Return it for a receiver that has the large parts."""
        return replace(self, large={})

    def opened(self) -> Any:
        """Return the object.

        Raises
        ------
        Lacking
            If a large part is neither here nor known from an earlier parcel.
        """
        with _KEEPING:
            _KEPT.update(self.large)
            while len(_KEPT) > _MOST_KEPT:
                _KEPT.popitem(last=False)
            known = {**_KEPT, **self.large}
        return _Unpickler(io.BytesIO(self.head), known).load()


def parcels(things: Sequence[Any], *, by_value: bool = False) -> list[Parcel]:
    """Return objects as parcels.

    Parameters
    ----------
    things : sequence
        The objects.
    by_value : bool
        Whether classes and functions of a script or a notebook are sent along, for receivers that
        do not import it.

    Raises
    ------
    pickle.PicklingError, TypeError, AttributeError
        If one of them cannot be pickled.
    """
    return [_packed(thing, _ByValue if by_value else _ByReference) for thing in things]


def _packed(thing: Any, kind: "type[_ByReference | _ByValue]") -> Parcel:
    buffer, large = io.BytesIO(), dict[str, bytes]()
    pickler = kind(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.large = large
    pickler.dump(thing)
    return Parcel(buffer.getvalue(), large)


class _WithoutLarge:
    """Replaces large strings of bytes, such as pickled models, by their digests."""

    large: dict[str, bytes]

    def persistent_id(self, obj: Any) -> str | None:
        if type(obj) is not bytes or len(obj) < _LARGE:
            return None
        digest = digest_of_bytes(obj)
        self.large[digest] = obj
        return digest


class _ByReference(_WithoutLarge, pickle.Pickler):
    """Stores where classes and functions are imported from."""


class _ByValue(_WithoutLarge, cloudpickle.Pickler):
    """Stores classes and functions of a script or a notebook themselves."""


class _Unpickler(pickle.Unpickler):
    """Puts large strings of bytes back, from those that are known by their digests."""

    def __init__(self, file: io.BytesIO, known: Mapping[str, bytes]) -> None:
        super().__init__(file)
        self._known = known

    def persistent_load(self, pid: str) -> bytes:
        if pid not in self._known:
            raise Lacking
        return self._known[pid]
