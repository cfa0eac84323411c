"""Reads the file of validation cases that lies at the root of an artifact's folder."""

import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final

import orjson

from understudy.adapters.artifacts.bounded_thread import in_bounded_thread
from understudy.adapters.files.refusal import FileRefused
from understudy.core.loading.cases import CASE_FILES, MAX_CASE_BYTES, MAX_CASES, CaseRows
from understudy.errors import NotValidated

READ_SECONDS: Final = 60.0
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""What a byte becomes that is not UTF-8."""


async def read_case_rows(place: Path) -> CaseRows | None:
    """Return the rows of the case file in an artifact's folder; ``None``: it has none. Or those of a file by any name.

    Raises:
        NotValidated: There are several, or it cannot be read, or is too large.
    """
    try:
        return await in_bounded_thread(partial(_read, place), READ_SECONDS)
    except (OSError, ValueError, FileRefused) as problem:
        raise NotValidated(f"its cases cannot be read: {problem}") from None


def _read(place: Path, _given_up: Event) -> CaseRows | None:
    if place.is_file():
        return _rows_in(place)
    there = [place / name for name in CASE_FILES if (place / name).is_file()]
    if not there:
        return None
    if len(there) > 1:
        raise ValueError(f"there are {' and '.join(path.name for path in there)}, and one of them is read")
    return _rows_in(there[0])


def _rows_in(path: Path) -> CaseRows:
    if path.stat().st_size > MAX_CASE_BYTES:
        raise ValueError(f"{path.name} has more than {MAX_CASE_BYTES:,} bytes")
    if path.suffix in (".parquet", ".csv"):
        return _of_table(path)
    content = path.read_bytes()
    lines = [line for line in content.splitlines() if line.strip()]
    found = orjson.loads(content) if path.suffix == ".json" else [orjson.loads(line) for line in lines]
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise ValueError(f"{path.name} is no list of objects")
    return CaseRows(found)


def _of_table(path: Path) -> CaseRows:
    from understudy.adapters.files.tables import open_table  # noqa: PLC0415 - numpy, for such a file alone

    rows: list[Mapping[str, Any]] = []
    with open_table(path, lambda _, __: None) as table:
        twice = [name for name, times in Counter(table.columns).items() if times > 1]
        if twice:
            raise ValueError(f"{path.name} has the column {twice[0]!r:.60} twice")
        for row in table.rows():
            if row.problem or None in row.cells:  # a line with more cells than the header has
                raise ValueError(f"{path.name}, line {row.line}: {row.problem or 'has more cells than the header'}")
            if any(isinstance(cell, str) and _SURROGATE.search(cell) for cell in row.cells.values()):
                raise ValueError(f"{path.name}, line {row.line}: is not UTF-8")
            rows.append(row.cells)
            if len(rows) > MAX_CASES:  # the rest is not read: so many are refused
                break
    return CaseRows(rows, is_text=path.suffix == ".csv")
