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


def parcels(things: Sequence[Any]) -> list[Parcel]:
    """Return objects as parcels.

    Raises
    ------
    pickle.PicklingError, TypeError, AttributeError
        If one of them cannot be pickled.
    """
    return [_packed(thing) for thing in things]


def _packed(thing: Any) -> Parcel:
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.dump(thing)
    return Parcel(buffer.getvalue(), pickler.large)


class _Pickler(cloudpickle.Pickler):
    """Replaces large strings of bytes, such as pickled models, by their digests."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.large: dict[str, bytes] = {}

    def persistent_id(self, obj: Any) -> str | None:
        if type(obj) is not bytes or len(obj) < _LARGE:
            return None
        digest = digest_of_bytes(obj)
        self.large[digest] = obj
        return digest


class _Unpickler(pickle.Unpickler):
    """Puts large strings of bytes back, from those that are known by their digests."""

    def __init__(self, file: io.BytesIO, known: Mapping[str, bytes]) -> None:
        super().__init__(file)
        self._known = known

    def persistent_load(self, pid: str) -> bytes:
        if pid not in self._known:
            raise Lacking
        return self._known[pid]
