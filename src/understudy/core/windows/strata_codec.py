"""Strata as text, so that what a verdict rests on is stored beside it, whole and whatever becomes of the windows."""

from base64 import b64decode, b64encode, b85decode
from collections.abc import Iterator
from hashlib import sha256
from zlib import compressobj, decompress, error

import numpy as np
import orjson
from numpy.typing import NDArray

from understudy.core.windows.strata import Arrivals, Side, Strata
from understudy.core.windows.tail import no_tails

_LENGTH_BYTES = 4
_BASE_64 = "b64:"


def strata_to_text(strata: Strata) -> str:
    """Return the strata as text: the arrays' bytes behind a JSON header, compressed (about 1 KiB for a window)."""
    packer = compressobj(1)
    packed = [packer.compress(part) for part in _parts(strata)]
    return _BASE_64 + b64encode(b"".join([*packed, packer.flush()])).decode()


def strata_digest(strata: Strata) -> str:
    """Return the SHA-256 of what :func:`strata_to_text` would pack, in hexadecimal."""
    digest = sha256()
    for part in _parts(strata):
        digest.update(part)
    return digest.hexdigest()


def strata_from_text(text: str) -> Strata:
    """Return the strata that :func:`strata_to_text` wrote, to the last bit.

    Raises:
        ValueError: It is not that.
    """
    try:
        packed = decompress(_bytes_of(text))
        end = _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES], "little")
        header = orjson.loads(packed[_LENGTH_BYTES:end])
        arrays: list[NDArray[np.generic]] = []
        for dtype, shape in header["arrays"]:
            size = np.dtype(dtype).itemsize * int(np.prod(shape))
            arrays.append(np.frombuffer(packed[end : end + size], dtype).reshape(shape))
            end += size
        starts, *sides = arrays[:5]
        # Releases before had no tails, or no shared errors: six arrays of arrivals were the last ones, or the tails.
        none = no_tails(), no_tails()
        tails, shared = arrays[11:13] or none, arrays[13:] or none
        # Types cannot say which of the arrays holds which kind of number; the header does.
        champion, challenger = (
            Side.of_stored(sums, buckets, *sparse)  # type: ignore[arg-type]
            for (sums, buckets), *sparse in zip((sides[:2], sides[2:]), tails, shared, strict=True)
        )
        return Strata(starts, champion, challenger, Arrivals(tuple(header["shippers"]), *arrays[5:11]))  # type: ignore[arg-type]
    except (error, ValueError, KeyError, TypeError, IndexError) as problem:
        raise ValueError(f"not stored strata: {problem}") from problem


def _parts(strata: Strata) -> Iterator[bytes | memoryview]:
    """Yield the packed bytes, an array at a time, so that there is no second copy of all of them."""
    arrays: list[NDArray[np.generic]] = [
        strata.starts,
        strata.champion.sums,
        strata.champion.buckets,
        strata.challenger.sums,
        strata.challenger.buckets,
        *strata.arrivals[1:],
    ]
    sides = strata.champion, strata.challenger
    has_shared = any(len(side.shared) for side in sides)
    if has_shared or any(len(side.tails) for side in sides):
        arrays += [side.tails for side in sides]
    if has_shared:
        arrays += [side.shared for side in sides]
    header = orjson.dumps(
        {"shippers": strata.arrivals.shippers, "arrays": [(array.dtype.str, array.shape) for array in arrays]}
    )
    yield len(header).to_bytes(_LENGTH_BYTES, "little")
    yield header
    for array in arrays:
        if array.size:  # a view of nothing cannot be cast
            yield np.ascontiguousarray(array).data.cast("B")


def _bytes_of(text: str) -> bytes:
    # Releases before wrote base 85, which has no colon, and which Python takes 30 times as long for.
    return b64decode(text[len(_BASE_64) :], validate=True) if text.startswith(_BASE_64) else b85decode(text)
