"""Predict calls of MLflow's scoring server and of SageMaker's containers: data frames, rows, columns, or CSV."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from math import isfinite
from typing import Any

from understudy.core.requests.caller_entity import CATEGORY, ENTITY_ID
from understudy.core.requests.caller_request import CallerRequest, refuse_inputs, require_rows
from understudy.core.requests.row_json import RowPlaces, read_columns, read_rows
from understudy.core.requests.tensor_inputs import MAX_ROWS, CallerInputs, caller_inputs_of
from understudy.core.schema.features import MAX_NAME_SHOWN
from understudy.core.schema.schema import InputSchema
from understudy.core.schema.tensors import Datatype
from understudy.errors import MalformedBody

SPLIT, RECORDS, INSTANCES, INPUTS = "dataframe_split", "dataframe_records", "instances", "inputs"
PARAMETERS = "params"
FORMS = (
    'Send {"dataframe_split": {"columns": […], "data": [[…]]}}, {"dataframe_records": [{…}]}, {"instances": [row, …]}'
    ' or {"inputs": {name: column, …}}; or CSV, as text/csv.'
)
CSV_FORM = "Send a line of comma-separated values for each row (RFC 4180), in UTF-8."
_DATA = (SPLIT, RECORDS, INSTANCES, INPUTS)
_FIELDS = frozenset({*_DATA, PARAMETERS, ENTITY_ID, CATEGORY})
_FRAME_FIELDS = frozenset({"columns", "data", "index"})
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_FLOATS = re.compile(r"[0-9.eE+-]+")
"""Of such text ``float`` takes what :data:`_NUMBER` does."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""With its end: a field in quotes may go on in the next one."""
_TRUTHS = {"true": True, "false": False}
CSV_ROWS = "/rows"
"""What stands for the rows of CSV in pointers."""


def read_invocation(document: Any, schema: InputSchema) -> CallerRequest:
    """Read a parsed body; a list is rows.

    Raises:
        MalformedBody: It is neither a list nor an object, or has not exactly one of the four forms.
        BatchInvalid: It has no rows, or too many.
        InputInvalid: Values do not fit the inputs, or are named by nothing that the version has.
    """
    if isinstance(document, list):
        return read_rows(document, {}, schema, RowPlaces(""))
    if not isinstance(document, dict):
        raise MalformedBody("expected a JSON object: line 1, column 1 (byte 0)", hint=FORMS)
    forms = [name for name in _DATA if name in document]
    if len(forms) != 1:
        raise MalformedBody(f"expected exactly one of {', '.join(_DATA)}", hint=FORMS)
    unknown = next((name for name in document if name not in _FIELDS), None)
    if unknown is not None:
        pointer = unknown[:MAX_NAME_SHOWN].replace("~", "~0").replace("/", "~1")
        raise refuse_inputs(f"/{pointer}", "is not a field of this call; leave it out")
    (form,) = forms
    if form == INPUTS:
        return read_columns(document, schema, parameters=PARAMETERS)
    if form == SPLIT:
        rows, places = _rows_of_frame(document[SPLIT])
        return read_rows(rows, document, schema, places, parameters=PARAMETERS)
    return read_rows(document[form], document, schema, RowPlaces(f"/{form}"), parameters=PARAMETERS)


def read_csv(text: str, schema: InputSchema, *, has_header: bool | None = None) -> CallerRequest:
    """Read rows of comma-separated values (RFC 4180).

    A field that is empty is left out, as an input may be that has a default. Of rows without names, each is the value
    of the version's one tensor.

    Args:
        text: All of them.
        schema: The version's.
        has_header: Whether the first line has the names; ``None``: it has, if it names an input.

    Raises:
        MalformedBody: It is no CSV.
        BatchInvalid, InputInvalid: As :func:`read_invocation`.
    """
    if "\x00" in text:
        raise MalformedBody("the CSV holds U+0000", hint=CSV_FORM)
    physical = (found.group() for found in _LINE.finditer(text))
    lines = (line for line in csv.reader(physical, strict=True) if line)
    inputs = caller_inputs_of(schema)
    try:
        first = next(lines, [])
        if has_header is None:
            has_header = any(name in inputs or name in (ENTITY_ID, CATEGORY) for name in first)
        rest = lines if has_header else chain([first] if first else [], lines)
        taken = list(islice(rest, MAX_ROWS))
        more = next(rest, None) is not None
    except csv.Error as problem:
        raise MalformedBody(f"the body is no CSV: {problem}", hint=CSV_FORM) from None
    require_rows(max(MAX_ROWS + 1, text.count("\n")) if more else len(taken), CSV_ROWS)
    if has_header:
        return read_rows(list(_named_rows(first, taken, inputs)), {}, schema, RowPlaces(CSV_ROWS))
    tensor = inputs.tensor_names[0]
    spec = inputs.named([tensor])[tensor].spec
    # A line of another length is refused as it is: a body may have half a million fields.
    rows = [_values_of(line, spec.datatype) if len(line) == spec.size else line for line in taken]
    return read_rows(rows, {}, schema, RowPlaces(CSV_ROWS))


class _FramePlaces(RowPlaces):
    """Where the values of a data frame stand: by the number of their column."""

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__(f"/{SPLIT}/data")
        self._columns = {name: column for column, name in enumerate(columns)}

    def member(self, row: int, name: str) -> str:
        """See :class:`RowPlaces`."""
        return f"{self.row(row)}/{self._columns[name]}"


def _rows_of_frame(frame: Any) -> tuple[list[Any], RowPlaces]:
    """Return a data frame's rows; without names, or with numbers in their place, each is the value of one tensor."""
    if not isinstance(frame, dict) or not isinstance(frame.get("data"), list) or not frame.keys() <= _FRAME_FIELDS:
        raise refuse_inputs(f"/{SPLIT}", "expected an object of columns and data")
    columns, data = frame.get("columns"), frame["data"]
    require_rows(len(data), f"/{SPLIT}/data")
    if columns is None or (isinstance(columns, list) and columns == list(range(len(columns)))):
        return data, RowPlaces(f"/{SPLIT}/data")
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise refuse_inputs(f"/{SPLIT}/columns", "expected a list of names")
    if len(set(columns)) < len(columns):
        raise refuse_inputs(f"/{SPLIT}/columns", "a name stands there twice")
    for row, values in enumerate(data):
        if not isinstance(values, list) or len(values) != len(columns):
            raise refuse_inputs(f"/{SPLIT}/data/{row}", f"expected a list of {len(columns)} values")
    return [dict(zip(columns, values, strict=True)) for values in data], _FramePlaces(columns)


def _named_rows(columns: list[str], lines: list[list[str]], inputs: CallerInputs) -> Iterator[Mapping[str, Any]]:
    if len(set(columns)) < len(columns):
        raise refuse_inputs(CSV_ROWS, "the first line has a name twice")
    named = inputs.named(columns)
    datatypes = [named[name].spec.datatype if name in named else Datatype.BYTES for name in columns]
    for row, line in enumerate(lines):
        if len(line) != len(columns):
            raise refuse_inputs(f"{CSV_ROWS}/{row}", f"has {len(line)} fields, and the first line {len(columns)}")
        fields = zip(columns, line, datatypes, strict=True)
        yield {name: _value_of(field, datatype) for name, field, datatype in fields if field}


def _values_of(line: list[str], datatype: Datatype) -> list[Any]:
    """Return what the fields of a line say; numbers of a whole line take half the time of its fields."""
    if datatype.is_float and _FLOATS.fullmatch("".join(line)):
        with suppress(ValueError):
            found = list(map(float, line))
            if all(map(isfinite, found)):
                return found
    return [_value_of(field, datatype) for field in line]


def _value_of(field: str, datatype: Datatype) -> Any:
    """Return what a field says as JSON would; what is neither a number nor a truth stays text, and is refused later."""
    if datatype is Datatype.BYTES:
        return field
    text = field.strip()
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and isfinite(found := float(text)):
        return found
    return _TRUTHS.get(text.lower(), text)
