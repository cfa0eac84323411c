"""Rows and data frames of pandas and polars, and mappings of columns, as plain rows.

Neither library is imported: what a table is shows in what its type has.
"""

from collections.abc import Mapping
from numbers import Integral
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from understudy.client.bodies import values_of


class Frame(Protocol):
    """A data frame of pandas or polars."""

    @property
    def columns(self) -> Any:
        """The names of its columns."""

    def __len__(self) -> int: ...

    def __getitem__(self, name: Any, /) -> Any: ...


class Labelled(Protocol):
    """One row of a pandas frame, a ``Series`` whose labels are the columns' names."""

    @property
    def index(self) -> Any:
        """Its labels."""

    def items(self) -> Any:
        """Return each label with its value."""


_EXACT = 2.0**53
"""From here on a float may be another whole number than it was made of."""
Row: TypeAlias = Mapping[str, Any] | Labelled | Frame
"""A mapping, a ``Series``, or a frame of one row."""


def is_frame(value: object) -> bool:
    """Whether this is a data frame that holds its rows."""
    kind = type(value)
    return hasattr(kind, "columns") and hasattr(kind, "__len__")


def rows_of(table: Any, where: str) -> list[dict[str, Any]]:
    """Return the rows of a data frame, or of a mapping from names to columns.

    Raises:
        TypeError: Columns are not named by text, or a mapping's are no columns.
        ValueError: Two columns have one name, or they are not equally long.
    """
    keys = list(table) if isinstance(table, Mapping) else list(table.columns)
    names = [_name(key, where) for key in keys]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{where}: two columns are called {twice!r}")
    columns = [_values(table[key], f"{where}[{name!r}]") for key, name in zip(keys, names, strict=True)]
    lengths = {name: len(column) for name, column in zip(names, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{where}: columns of one length are expected, got {lengths}")
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def row_of(given: object, where: str) -> Mapping[str, Any]:
    """Return one row: a mapping as it is, a ``Series`` or a frame of one row as a mapping.

    Raises:
        TypeError: It is none of these.
        ValueError: It is a frame of another number of rows.
    """
    if isinstance(given, Mapping):
        return given
    if is_frame(given):
        rows = rows_of(given, where)
        if len(rows) != 1:
            raise ValueError(f"{where}: a frame of one row is expected here, got one of {len(rows):,}")
        return rows[0]
    if hasattr(given, "items") and hasattr(given, "index"):
        return {_name(label, where): value for label, value in given.items()}
    raise TypeError(
        f"{where}: expected a mapping from names to values, a pandas Series, or a frame of one row; got "
        f"{kind_words(given)}"
    )


def id_text(value: object, where: str) -> str:
    """Return an id as the text that it is sent as: whole numbers and UUIDs have one form.

    A float that is whole is such a number: pandas makes floats of the ids of a row whose other values are floats, and
    of a column with gaps.

    Raises:
        TypeError: It is something else.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, UUID) or (isinstance(value, Integral) and not isinstance(value, bool)):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    raise TypeError(f"{where}: expected text, a whole number or a UUID, got {kind_words(value)}")


def kind_words(value: object) -> str:
    """Return what a value is, in short."""
    return f"{' '.join(repr(value).split()):.60} ({type(value).__name__})"


def _name(label: object, where: str) -> str:
    if not isinstance(label, str):
        raise TypeError(f"{where}: names are expected to be text, got {kind_words(label)}")
    return str(label)


def _values(column: Any, where: str) -> list[Any]:
    try:
        found = list(column) if isinstance(column, list | tuple) else values_of(column)
    except AttributeError:
        found = None
    if not isinstance(found, list):
        raise TypeError(f"{where}: expected a column of values, got {kind_words(column)}")
    return found
