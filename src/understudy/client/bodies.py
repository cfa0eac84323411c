"""Bodies of calls as JSON: values of Python, numpy, pandas and polars, or an error that names the place.

None of these libraries is imported: what a value is shows in its own type.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson

_MAX_DEPTH = 20
"""Levels of a document within which a value that has no form in JSON is looked for."""
_MISSING = frozenset({"NAType", "NaTType"})
_TIMES = {"M": "datetime64[us]", "m": "timedelta64[us]"}
"""By the kinds that numpy has of them: what has the type of Python's times."""
_EXPECTED = "expected text, a number, true or false, a time, nothing, or a list of these"


def json_body(document: Any) -> bytes:
    """Return a document as JSON; what is missing (``None``, NaN, pandas' ``NA`` and ``NaT``) is ``null``.

    Raises:
        TypeError: A value has no form in JSON; names its place, what it is, and what is expected there.
    """
    try:
        return _dumped(document)
    except TypeError as problem:
        raise TypeError(_place_of(document, "", 0) or str(problem)) from None


def is_missing(value: object) -> bool:
    """Whether pandas says by this value that there is none; its ``NA`` can be compared with nothing."""
    kind = type(value)
    return kind.__name__ in _MISSING and kind.__module__.partition(".")[0] == "pandas"


def is_time(value: Any) -> bool:
    """Whether this is a time or a duration of numpy, or an array of them."""
    return type(value).__module__ == "numpy" and hasattr(value, "dtype") and value.dtype.kind in _TIMES


def values_of(column: Any) -> Any:
    """Return the values of what has ``tolist`` or ``to_list``: a list, of an array without dimensions its one value.

    Times of numpy are cast to microseconds first, since those of nanoseconds would be listed as whole numbers.

    Raises:
        AttributeError: It has neither.
    """
    if is_time(column):
        column = column.astype(_TIMES[column.dtype.kind])
    return column.tolist() if hasattr(column, "tolist") else column.to_list()


def _dumped(document: Any) -> bytes:
    return orjson.dumps(document, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: Any) -> Any:
    """Return what the library knows in the place of a value that it does not know.

    Raises:
        TypeError: There is nothing like it.
    """
    if is_missing(value):
        return None
    if isinstance(value, datetime):  # pandas' Timestamp is one
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return list(value)
    try:
        return values_of(value)
    except AttributeError:
        raise TypeError from None


def _place_of(value: Any, pointer: str, depth: int) -> str:
    """Return the first place that has no form in JSON, and what is wrong with it; nothing if all have one."""
    try:
        _dumped(value)
    except TypeError as problem:
        told = str(problem)
    else:
        return ""
    for name, member in _members(value) if depth < _MAX_DEPTH else ():
        if not isinstance(name, str | int) or (isinstance(value, Mapping) and not isinstance(name, str)):
            return f"{pointer or '/'}: names are text, got {name!r:.80} ({type(name).__name__})"
        if found := _place_of(member, f"{pointer}/{name}", depth + 1):
            return found
    what = _EXPECTED if told.startswith(("Type is", "unsupported")) else told
    return f"{pointer or '/'}: {what}; got {value!r:.80} ({type(value).__name__})"


def _members(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()
