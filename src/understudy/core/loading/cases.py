"""Validation cases: inputs with the answers that a version has to give, which its author puts beside the artifact."""

import json
from collections.abc import Collection, Mapping, Sequence
from math import inf, isfinite, nextafter
from typing import Any, Final, NamedTuple

CASE_FILES: Final = tuple(f"validation_cases.{kind}" for kind in ("json", "jsonl", "parquet", "csv"))
"""At the root of an artifact's folder, one of them."""
MAX_CASES: Final = 10_000
MAX_CASE_BYTES: Final = 64 * 1024**2
ABSOLUTE: Final = 1e-5
RELATIVE: Final = 1e-4
"""An answer may differ by ``ABSOLUTE + RELATIVE * |expected|``, unless the case says otherwise."""
_NOT_INPUTS: Final = ("case_id", "expected", "tolerance_abs", "tolerance_rel")
_FIELDS: Final = {float: "score", list: "scores", str: "label"}
"""What of an answer is compared, by what is expected."""
_DIGITS: Final = 6
"""Of a number in words, unless it takes more to tell two of them apart; a double has 17 at most."""
_ALL_DIGITS: Final = 17


class CaseRows(NamedTuple):
    """Rows of a file of cases."""

    rows: Sequence[Mapping[str, Any]]
    is_text: bool = False
    """Whether each value is a text, as CSV has them; empty: there is none."""


class Case(NamedTuple):
    """One case."""

    name: str
    """``case_id``, or the number of its row from 1 on."""
    inputs: Mapping[str, Any]
    expected: float | list[float] | str
    absolute: float = ABSOLUTE
    relative: float = RELATIVE


def cases_of(rows: Sequence[Mapping[str, Any]]) -> list[Case]:
    """Return the cases that rows of a file are; an input that is null is left out.

    Raises:
        ValueError: They are too many or none, or one is no case; the message names it.
    """
    if not 0 < len(rows) <= MAX_CASES:
        raise ValueError(f"there are {len(rows):,} cases; 1 to {MAX_CASES:,} are asked")
    return [_case_of(number, row) for number, row in enumerate(rows, 1)]


def typed_rows(
    rows: Sequence[Mapping[str, Any]], texts: Collection[str], labels: Collection[str]
) -> list[dict[str, Any]]:
    """Return rows of texts with the values that they mean.

    Args:
        rows: As CSV has them.
        texts: Names of inputs that are texts, whatever they look like.
        labels: Answers of the version that are labels, whatever they look like.
    """
    kept = {*texts, "case_id"}
    return [
        {
            name: cell if name in kept or (name == "expected" and cell in labels) else _meant(cell)
            for name, cell in row.items()
            if cell not in (None, "")
        }
        for row in rows
    ]


def _meant(cell: Any) -> Any:
    """Return the number, list or truth value that a text is in JSON; else the text."""
    try:
        return json.loads(cell)
    except (TypeError, ValueError, RecursionError):  # the last one of a cell that is nothing but brackets
        return cell


class Difference(NamedTuple):
    """How an answer differs from what a case expects."""

    words: str
    times: float
    """By how many times what is allowed; infinite where no number says so."""


def difference(case: Case, answer: Mapping[str, Any], labels: Sequence[str] = ()) -> Difference | None:
    """Return how an answer differs from what was expected; ``None``: it does not.

    Args:
        case: What was asked.
        answer: As callers get it.
        labels: What the version calls the values of a list.
    """
    field = _FIELDS[type(case.expected)]
    found = answer.get(field)
    if found is None:
        return Difference(f"the answer has no {field}, and {_shown(case.expected)} was expected", inf)
    if isinstance(case.expected, str):
        return None if found == case.expected else Difference(f"{_shown(found)} is not {_shown(case.expected)}", inf)
    expected = [case.expected] if isinstance(case.expected, float) else case.expected
    values = [found] if isinstance(case.expected, float) else found
    if len(values) != len(expected):
        return Difference(f"{len(values)} values are not {len(expected)}", inf)
    times = [_times(case, value, wanted) for value, wanted in zip(values, expected, strict=True)]
    differing = sum(not one <= 1.0 for one in times)
    if not differing:
        return None
    worst = max(range(len(times)), key=times.__getitem__)
    words = _figures(float(values[worst]), expected[worst], case.absolute + case.relative * abs(expected[worst]))
    if len(expected) > 1:
        named = f", {labels[worst]!r:.60}" if len(labels) == len(expected) else ""
        more = f"; {differing} of {len(expected)} values differ" if differing > 1 else ""
        words = f"{words} (value {worst}{named}{more})"
    return Difference(words, times[worst])


def _times(case: Case, value: float, wanted: float) -> float:
    """Return how many times what is allowed a number is off: 1 is still good."""
    off, allowed = abs(value - wanted), case.absolute + case.relative * abs(wanted)
    if off <= allowed:
        return 0.0 if allowed == 0 else min(off / allowed, 1.0)
    return max(off / allowed, nextafter(1.0, inf)) if allowed > 0 else inf


def _figures(value: float, wanted: float, allowed: float) -> str:
    """Return two numbers with as many digits as tell them apart, and what was allowed."""
    for digits in range(_DIGITS, _ALL_DIGITS):
        if f"{value:.{digits}g}" != f"{wanted:.{digits}g}":
            return f"{value:.{digits}g} is not {wanted:.{digits}g} ± {allowed:.2g}"
    return f"{value!r} is not {wanted!r} ± {allowed:.2g}"


def _case_of(number: int, row: Mapping[str, Any]) -> Case:
    name = str(row.get("case_id", number))[:100]
    inputs = {key: value for key, value in row.items() if key not in _NOT_INPUTS and value is not None}
    tolerances = [_tolerance(name, row.get(key), usual) for key, usual in _TOLERANCES.items()]
    return Case(name, inputs, _expected(name, row.get("expected")), *tolerances)


_TOLERANCES: Final = {"tolerance_abs": ABSOLUTE, "tolerance_rel": RELATIVE}


def _expected(name: str, value: Any) -> float | list[float] | str:
    if isinstance(value, str):
        return value
    if _is_number(value):
        return float(value)
    if isinstance(value, list) and value and all(map(_is_number, value)):
        return [float(one) for one in value]
    raise ValueError(f"case {name}: expected is a finite number, a list of them, or a label, not {_shown(value)}")


def _tolerance(name: str, value: Any, usual: float) -> float:
    if value is None:
        return usual
    if not _is_number(value) or value < 0:
        raise ValueError(f"case {name}: a tolerance is a number of at least 0, not {_shown(value)}")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _shown(value: Any) -> str:
    return repr(value)[:60]
