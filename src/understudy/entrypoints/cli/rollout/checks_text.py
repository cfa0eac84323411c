"""The checks of an analysis as people read them: both sides, the change, its limit, and what follows."""

from collections.abc import Sequence
from math import isinf, log

from rich.table import Table
from rich.text import Text

from understudy.core.canary.decision import Evidence
from understudy.core.canary.messages import since_words, value_words
from understudy.core.canary.sample_ratio_check import SAMPLE_RATIO
from understudy.core.rollout.history import DecisionAt, rows_of
from understudy.entrypoints.cli.shared.rendering import Column, a_table
from understudy.entrypoints.cli.shared.texts.event_text import EVIDENCE_TITLE, check_evidence_words, check_state_words
from understudy.rollout.status import RolloutStatus, is_beside_the_past

NONE_BEFORE = "champion had none"
"""What stands for a change that has no multiple."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_DASH = "-"
_NDASH = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"
_WHOLE = 1_000
_SPARKS = 6
"""The sparkline's place among the columns."""


def checks_table(
    rows: Sequence[Evidence],
    decisions: Sequence[DecisionAt],
    width: int | None = None,
    *,
    sides: tuple[str, str] = ("champion", "challenger"),
) -> Table:
    """Return the checks as a table that fits; the sparkline goes first where there is no room.

    ``decisions`` are the last ones, oldest first; ``sides`` is what the compared versions are called.
    """
    columns = [
        Column("check"),
        *(Column(side, right=True) for side in sides),
        Column("change (95 %)", right=True),
        Column("limit", right=True),
        Column(EVIDENCE_TITLE, drop=1, right=True),
        Column(f"last {len(decisions)}", drop=2),
        Column("verdict"),
    ]
    cells: list[tuple[str | Text, ...]] = [
        (*check_cells(row), sparkline([past for _, past in rows_of(decisions, row.check)]), check_state_words(row))
        for row in rows
    ]
    if not decisions:
        columns.pop(_SPARKS)
        cells = [(*row[:_SPARKS], *row[_SPARKS + 1 :]) for row in cells]
    return a_table(columns, cells, width)


def side_titles(status: RolloutStatus) -> tuple[str, str]:
    """Return the titles of the checks' two sides: the roles, or after the promotion the old and the new champion."""
    if not is_beside_the_past(status):
        return "champion", "challenger"
    state = status.view.record.state
    return f"{state.champion} before", f"{state.challenger} now"


def check_cells(row: Evidence) -> tuple[str, str, str, str, str, str]:
    """Return a check's name, both sides, the change, its limit and the evidence."""
    champion, challenger = (value_words(row.check, value) for value in (row.champion, row.challenger))
    return row.title, champion, challenger, check_change_words(row), limit_words(row), _evidence(row)


def check_change_words(row: Evidence) -> str:
    """Return a check's change with its interval: ``1.61x (1.38-1.88)``; an end that has no bound is ``∞``.

    Of a champion that had none of it there is no multiple, which is said in words.
    """
    if row.change is None:
        return _DASH
    if row.check.is_distance:
        return f"{row.change:.2f}"
    if row.check.is_in_deviations:
        change, low, high = (
            "∞" if value is None or isinf(value) else f"{value:+.2f}".replace("-", _MINUS)
            for value in (row.change, row.change_low, row.change_high)
        )
        return f"{change} ({low}…{high})"
    if isinf(row.change) and not row.champion and row.check is not SAMPLE_RATIO:
        least = f" (at least {_number(row.change_low)}x)" if row.change_low and not isinf(row.change_low) else ""
        return f"{NONE_BEFORE}{least}{since_words(row)}"
    interval = f" ({_number(row.change_low)}{_NDASH}{_number(row.change_high)})" if row.change_low is not None else ""
    return f"{_number(row.change)}x{interval}{since_words(row)}"


def limit_words(row: Evidence) -> str:
    """Return the change that is tolerated."""
    if row.limit is None or row.check is SAMPLE_RATIO:
        return _DASH
    if row.check.is_distance:
        return f"{row.limit:.2g}"
    return f"{row.limit:.2g} sd" if row.check.is_in_deviations else f"{row.limit:.3g}x"


def sparkline(rows: Sequence[Evidence]) -> str:
    """Return how near a check was to failing: the highest block is as much evidence as it takes; two looks a block."""
    nearness = [_nearness(row) for row in rows]
    pairs = [nearness[max(0, end - 2) : end] for end in range(len(nearness), 0, -2)]
    return "".join(_BLOCKS[round(7 * max(pair))] for pair in reversed(pairs))


def _nearness(row: Evidence) -> float:
    """Return how near a check is to failing, 0 to 1, on the scale of logarithms that evidence grows on."""
    if not row.evidence or not row.evidence_needed or row.evidence_needed <= 1:
        return 0.0
    return min(1.0, max(0.0, log(row.evidence) / log(row.evidence_needed)))


def _number(value: float | None) -> str:
    if value is None or isinf(value):
        return "∞"
    return f"{value:,.0f}" if value >= _WHOLE else f"{value:.3g}"


def _evidence(row: Evidence) -> str:
    return check_evidence_words(row) if row.evidence_needed is not None else _DASH
