"""Strata as text, so that what a verdict rests on is stored beside it, whole and whatever becomes of the windows."""

from base64 import b85decode, b85encode
from zlib import compress, decompress, error

import numpy as np
import orjson
from numpy.typing import NDArray

from understudy.core.strata import Arrivals, Side, Strata

_LENGTH_BYTES = 4


def strata_to_text(strata: Strata) -> str:
    """Return the strata as text: the arrays' bytes behind a JSON header, compressed (about 1 KiB for a window)."""
    arrays = [
        strata.starts,
        strata.champion.sums,
        strata.champion.buckets,
        strata.challenger.sums,
        strata.challenger.buckets,
        *strata.arrivals[1:],
    ]
    header = orjson.dumps(
        {"shippers": strata.arrivals.shippers, "arrays": [(array.dtype.str, array.shape) for array in arrays]}
    )
    content = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    return b85encode(compress(len(header).to_bytes(_LENGTH_BYTES, "little") + header + content)).decode()


def strata_from_text(text: str) -> Strata:
    """Return the strata that :func:`strata_to_text` wrote, to the last bit.

    Raises:
        ValueError: It is not that.
    """
    try:
        packed = decompress(b85decode(text))
        end = _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES], "little")
        header = orjson.loads(packed[_LENGTH_BYTES:end])
        arrays: list[NDArray[np.generic]] = []
        for dtype, shape in header["arrays"]:
            size = np.dtype(dtype).itemsize * int(np.prod(shape))
            arrays.append(np.frombuffer(packed[end : end + size], dtype).reshape(shape))
            end += size
        starts, *sides = arrays[:5]
        # Types cannot say which of the arrays holds which kind of number; the header does.
        champion, challenger = (Side(sums, buckets) for sums, buckets in (sides[:2], sides[2:]))  # type: ignore[arg-type]
        return Strata(starts, champion, challenger, Arrivals(tuple(header["shippers"]), *arrays[5:]))  # type: ignore[arg-type]
    except (error, ValueError, KeyError, TypeError, IndexError) as problem:
        raise ValueError(f"not stored strata: {problem}") from problem
