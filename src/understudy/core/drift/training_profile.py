"""What a version's score and features were like in rows of training data, read once from the first to the last."""

from collections.abc import Iterable, Mapping
from math import isfinite, isnan
from typing import Any, NamedTuple

from understudy.core.drift.baseline import Baselines, category_of
from understudy.core.drift.baseline_tally import CategoricalTally, NumericTally, numbers_for_tally
from understudy.core.schema.features import Feature
from understudy.core.schema.tensors import Datatype
from understudy.core.windows.window import MAX_SCORE

ROWS_AT_ONCE = 10_000
"""Rows that are held until they are added up."""
MAX_CHARACTERS = 255
"""Of a category's name; longer text is no category."""
MAX_NUMBER = 1e100
"""Squares of larger ones are no numbers any more."""

_TRUTHS = {"true": 1.0, "false": 0.0}


class CellRefused(ValueError):
    """A cell that is no value of its column."""

    def __init__(self, column: str, detail: str) -> None:
        super().__init__(f"column {column!r}: {detail}")


class TrainingColumns(NamedTuple):
    """Which columns of a table say something about a version."""

    score: str | None
    features: tuple[Feature, ...]
    threshold: float | None = None
    """The score from which on a prediction is positive, if the version's schema names one."""
    label: str | None = None
    """The column with the class that it would have answered with, if there is one."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        answers = [name for name in (self.score, self.label) if name is not None]
        return (*answers, *(feature.name for feature in self.features))


class TrainingProfile:
    """Adds up rows; however many there are, it needs the same memory."""

    def __init__(self, columns: TrainingColumns) -> None:
        self._columns = columns
        self._score = NumericTally(columns.threshold, MAX_SCORE)
        self._classes = CategoricalTally()
        self._tallies: dict[str, NumericTally | CategoricalTally] = {
            feature.name: CategoricalTally() if is_categorical(feature) else NumericTally()
            for feature in columns.features
        }
        self._held: dict[str, list[Any]] = {name: [] for name in columns.names}
        self.rows = 0

    def add(self, cells: Mapping[str, Any]) -> None:
        """Add a row; a feature whose cell is missing, ``None`` or NaN is null.

        Raises:
            CellRefused: Naming the column whose cell cannot be used.
        """
        if self._columns.score is not None:
            self._held[self._columns.score].append(_score_of(self._columns.score, cells.get(self._columns.score)))
        if self._columns.label is not None:
            self._held[self._columns.label].append(_text_of(self._columns.label, cells.get(self._columns.label)))
        for feature in self._columns.features:
            self._held[feature.name].append(_value_of(feature, cells.get(feature.name)))
        self.rows += 1
        if self.rows % ROWS_AT_ONCE == 0:
            self._add_up()

    def baselines(self) -> Baselines:
        """Return the baselines of the columns that hold a value.

        Raises:
            CellRefused: As :meth:`add`.
        """
        self._add_up()
        inputs = {name: tally.baseline() for name, tally in self._tallies.items()}
        known = {name: one for name, one in inputs.items() if one is not None}
        return Baselines(self._score.baseline(), known, self._classes.baseline())

    def _tally_of(self, name: str) -> NumericTally | CategoricalTally:
        if name == self._columns.score:
            return self._score
        return self._classes if name == self._columns.label else self._tallies[name]

    def _add_up(self) -> None:
        for name, values in self._held.items():
            tally = self._tally_of(name)
            if isinstance(tally, NumericTally):
                tally.add(numbers_for_tally(values))
            else:
                _add_names(name, tally, values)
            values.clear()


def is_categorical(feature: Feature) -> bool:
    """Whether the shares of a feature's values are compared, and not their size."""
    return feature.datatype is Datatype.BYTES or bool(feature.enum)


def training_columns(
    features: Iterable[Feature],
    present: Iterable[str],
    score: str | None,
    only: Iterable[str] | None,
    *,
    threshold: float | None = None,
    label: str | None = None,
) -> TrainingColumns:
    """Return the columns of a table that are read: single values of a version's features, and its score.

    Args:
        features: Of the version.
        present: The table's columns.
        score: Its column with the version's score; ``None``: it has none.
        only: Read no other columns.
        threshold: The score from which on a prediction is positive, if the version's schema names one.
        label: Its column with the version's class; ``None``: it has none.
    """
    names = set(present) if only is None else set(present) & set(only)
    chosen = tuple(one for one in features if one.name in names and not one.shape and one.name not in (score, label))
    return TrainingColumns(score if score in names else None, chosen, threshold, label if label in names else None)


def _add_names(column: str, tally: CategoricalTally, values: Iterable[str | None]) -> None:
    try:
        tally.add(values)
    except ValueError as problem:
        raise CellRefused(column, str(problem)) from None


def _score_of(column: str, cell: Any) -> float:
    number = _number_of(column, cell)
    if number is None:
        raise CellRefused(column, "expected a score, got none: a version that answers has one")
    return number


def _value_of(feature: Feature, cell: Any) -> Any:
    """Return a feature's number or category name; ``None`` is null."""
    value: Any = _text_of(feature.name, cell) if feature.datatype is Datatype.BYTES else _number_of(feature.name, cell)
    if value is None or not feature.enum:
        return value
    member = next((member for member in feature.enum if member == value), None)
    if member is None:
        permitted = ", ".join(map(str, feature.enum[:10]))
        raise CellRefused(feature.name, f"expected one of {permitted}, got {_shown(cell)}")
    return category_of(member)


def _number_of(column: str, cell: Any) -> float | None:
    if cell is None:
        return None
    is_text = isinstance(cell, str)
    try:
        number = float(cell)
    except (OverflowError, TypeError, ValueError):
        truth = _TRUTHS.get(cell.strip().lower()) if is_text else None
        if truth is None:
            raise CellRefused(column, f"expected a number, got {_shown(cell)}") from None
        return truth
    if is_text and "_" in cell:  # "1_000" is a number to Python alone
        raise CellRefused(column, f"expected a number, got {_shown(cell)}")
    if isnan(number):
        return None
    if not isfinite(number) or abs(number) > MAX_NUMBER:
        raise CellRefused(column, f"expected a number up to {MAX_NUMBER:g}, got {_shown(cell)}")
    return number


def _text_of(column: str, cell: Any) -> str | None:
    if cell is None:
        return None
    text = str(cell) if type(cell) is int else cell
    if not isinstance(text, str):
        raise CellRefused(column, f"expected text, got {_shown(cell)}")
    if len(text) > MAX_CHARACTERS:
        raise CellRefused(column, f"expected a category of at most {MAX_CHARACTERS} characters, got {len(text):,}")
    if "\0" in text or not _is_unicode(text):
        raise CellRefused(column, f"expected text in UTF-8 without NUL, got {_shown(cell)}")
    return text


def _is_unicode(text: str) -> bool:
    # What was no UTF-8 in a file comes as half a surrogate pair.
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _shown(cell: Any) -> str:
    text = ascii(cell)
    return text if len(text) <= 40 else f"{text[:40]}…"  # noqa: PLR2004  # what a line of an error has room for
