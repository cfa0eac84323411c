"""Reads the file of validation cases that lies at the root of an artifact's folder."""

import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final

import orjson

from understudy.adapters.artifacts.bounded_thread import go_on_unless, in_bounded_thread
from understudy.adapters.files.refusal import FileRefused
from understudy.core.loading.cases import CASE_FILES, MAX_CASE_BYTES, MAX_CASES, CaseRows
from understudy.errors import NotValidated

READ_SECONDS: Final = 60.0
MAX_CONTAINERS: Final = 500_000
"""Arrays and objects in a file of JSON: fifty for each of the most cases. Each takes a hundred bytes of memory and
more, and while they are made the agent does nothing else, such as keeping its lease."""
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


def _read(place: Path, given_up: Event) -> CaseRows | None:
    if place.is_file():
        return _rows_in(place, given_up)
    there = [place / name for name in CASE_FILES if (place / name).is_file()]
    if not there:
        return None
    if len(there) > 1:
        raise ValueError(f"there are {' and '.join(path.name for path in there)}, and one of them is read")
    return _rows_in(there[0], given_up)


def _rows_in(path: Path, given_up: Event) -> CaseRows:
    if path.stat().st_size > MAX_CASE_BYTES:
        raise ValueError(f"{path.name} has more than {MAX_CASE_BYTES:,} bytes")
    if path.suffix in (".parquet", ".csv"):
        return _of_table(path)
    found = _of_json(path) if path.suffix == ".json" else _of_lines(path, given_up)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise ValueError(f"{path.name} is no list of objects")
    return CaseRows(found)


def _of_json(path: Path) -> Any:
    from understudy.core.requests.json_scan import count_containers  # noqa: PLC0415 - numpy, for such a file alone

    content = path.read_bytes()
    if count_containers(content, MAX_CONTAINERS) > MAX_CONTAINERS:
        raise ValueError(f"{path.name} has more than {MAX_CONTAINERS:,} arrays and objects")
    return orjson.loads(content)


def _of_lines(path: Path, given_up: Event) -> list[Any]:
    """Return the values of a file with one in each line that is not empty, and not many more than may be asked."""
    from understudy.core.requests.json_scan import count_containers  # noqa: PLC0415 - numpy, for such a file alone

    found: list[Any] = []
    containers = 0
    with path.open("rb") as lines:
        for line in lines:
            go_on_unless(given_up)
            if line.strip():
                containers += count_containers(line, MAX_CONTAINERS)
                if containers > MAX_CONTAINERS:
                    raise ValueError(f"{path.name} has more than {MAX_CONTAINERS:,} arrays and objects")
                found.append(orjson.loads(line))
            if len(found) > MAX_CASES:  # the rest is not read: so many are refused
                break
    return found


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
