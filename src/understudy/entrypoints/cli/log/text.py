"""Rows of the log as people read them: a table or one record after another, and one line for each call."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from understudy.core.amounts import amount_words
from understudy.entrypoints.cli.shared.rendering import Column, a_table, data_console, facts, nothing_as, table_width
from understudy.ports.prediction_log.live_log import CallLine

_MODEL_HEAD, _TIME, _ROLE, _ANSWER, _SCORE, _LATENCY = "model", 12, 10, 13, 6, 8


def result_view(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None = None
) -> list[RenderableType]:
    """Return rows as a table; where it is too wide for the terminal, each row as a record of its own."""
    heads = [Column(name, right=_is_of_numbers(rows, at)) for at, name in enumerate(columns)]
    cells = [[cell_words(cell) for cell in row] for row in rows]
    room = width or data_console().width
    if len(columns) == 1 or table_width(heads, cells) <= room:
        return [a_table(heads, cells, room)]
    records: list[RenderableType] = []
    for number, row in enumerate(cells, 1):
        records += ["", Text(f"row {number}", "bold"), facts(zip(columns, row, strict=True))]
    return records[1:]


def cell_words(cell: Any) -> str:
    """Return a value as text: moments in UTC, a dash for nothing, truth values as SQL writes them."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, datetime):
        moment = cell.astimezone(UTC) if cell.tzinfo is not None else cell
        return f"{moment:%Y-%m-%d %H:%M:%S.%f}" + ("Z" if cell.tzinfo is not None else "")
    return nothing_as(cell)


def _is_of_numbers(rows: Sequence[Sequence[Any]], at: int) -> bool:
    found = [row[at] for row in rows if row[at] is not None]
    return bool(found) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in found)


class CallLines:
    """Writes calls below each other; the column of models widens with the longest name that came by.

    Args:
        model_name: Of all calls, which is then not repeated in each line; ``None``: calls of several.
    """

    def __init__(self, model_name: str | None) -> None:
        self._model_name = model_name
        self._named = len(_MODEL_HEAD if model_name is None else "version")
        self._day = ""

    def texts(self, calls: Sequence[CallLine]) -> list[Text]:
        """Return the next lines; a head before the first, and again where another day begins."""
        self._named = max(self._named, *(len(self._name(call)) for call in calls)) if calls else self._named
        texts = []
        for call in calls:
            moment = datetime.fromtimestamp(call.predicted_at, UTC)
            if (day := f"{moment:%Y-%m-%d}") != self._day:
                self._day = day
                head = _MODEL_HEAD if self._model_name is None else "version"
                texts.append(Text(f"{day}, times in UTC", "dim"))
                texts.append(Text(self._line(("time", head, "role", "answer", "score", "latency", "entity")), "bold"))
            texts.append(self._text(call, f"{moment:%H:%M:%S.%f}"[:-3]))
        return texts

    def _name(self, call: CallLine) -> str:
        return f"{call.model_name} {call.version}" if self._model_name is None else call.version

    def _line(self, cells: tuple[str, str, str, str, str, str, str]) -> str:
        when, name, role, answer, score, latency, entity = cells
        who = f"{when:<{_TIME}} {name:<{self._named}} {role:<{_ROLE}}"
        return f"{who} {answer:<{_ANSWER}} {score:>{_SCORE}} {latency:>{_LATENCY}} {entity}"

    def _text(self, call: CallLine, when: str) -> Text:
        score = "-" if call.score is None else amount_words(call.score, 4)
        latency = "-" if call.latency_us is None else f"{call.latency_us / 1_000:.1f} ms"
        who = (when, self._name(call), call.role or "-", answer_words(call))
        return Text(
            self._line((*who, score, latency, call.entity_id)),
            "yellow" if call.status == "fallback" else "red" if call.error_code else "",
        )


def answer_words(call: CallLine) -> str:
    """Return how a call ended: ``ok``, ``ok, cached``, an error code, or one that a fallback answered."""
    if call.error_code is not None:
        return f"{call.error_code} {call.status}" if call.status == "fallback" else call.error_code
    return "ok, cached" if call.is_cache_hit else call.status
