"""A rollout's verdicts as rows: one for each check that a verdict rested on."""

from collections.abc import Iterator, Sequence
from typing import Any

from understudy.core.canary.decision import Evidence
from understudy.entrypoints.documents.json_text import moment_of
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord

_OF_VERDICT = (
    *("rollout_id", "model", "champion_version", "challenger_version", "event_id", "at", "step", "phase"),
    *("verdict", "reason", "code_version"),
)
_FIGURES = tuple(name for name in Evidence._fields if name not in ("check", "since"))
EVIDENCE_NUMBERS = tuple(name for name in _FIGURES if name not in ("state", "subject"))
EVIDENCE_TIMES = ("at", "since")
EVIDENCE_COLUMNS = (*_OF_VERDICT, "check", "since", *_FIGURES)


def evidence_rows(record: RolloutRecord, events: Sequence[RolloutEventRecord]) -> list[tuple[Any, ...]]:
    """Return the rows of all verdicts; events without evidence have none."""
    return [row for event in events for row in _rows_of(record, event)]


def _rows_of(record: RolloutRecord, event: RolloutEventRecord) -> Iterator[tuple[Any, ...]]:
    state = record.state
    of_verdict = (
        *(record.id, state.model_name, state.champion, state.challenger, event.id, moment_of(event.at), event.step),
        *(str(event.phase), None if event.verdict is None else str(event.verdict), event.reason, event.code_version),
    )
    for row in event.evidence:
        figures = (row.get(name) for name in _FIGURES)
        yield (*of_verdict, row.get("check"), moment_of(row.get("since")), *figures)
