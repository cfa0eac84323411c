"""What verdicts rested on, as rows."""

from datetime import UTC, datetime
from typing import Any

from understudy.core.canary.decision import CheckState, Evidence, Verdict
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import new_rollout_state
from understudy.frames.evidence_rows import EVIDENCE_COLUMNS, evidence_rows
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord

STATE = new_rollout_state(7, "churn", NAMED_PLANS["fast"], PolicySeen("6", "7", 0, 4, 7), 1_000.0)
RECORD = RolloutRecord(7, STATE, 1, 1, 2, "salt", None, None, "dana", None, None)
NUMBERS = (0.01, 0.5, 9.0, 4.0, 20.0, 1.0, 99.0, 20.0, 2.0, 20.0, 1_000, 100)
ERRORS = Evidence(ERROR_RATE, CheckState.FAIL, *NUMBERS)


def an_event(number: int, **values: Any) -> RolloutEventRecord:
    event = RolloutEventRecord(number, 1_060.0, 0, "PROGRESSING", None, "begins", (), {}, {}, "0.1.0", "monitor")
    return event._replace(**values)


def test_each_check_of_each_verdict_is_a_row_and_an_event_without_one_is_none():
    verdict = an_event(
        2,
        verdict=Verdict.ROLL_BACK,
        reason="bad",
        evidence=[ERRORS.to_json(), ERRORS._replace(since=1_045.0, subject="bought").to_json()],
    )

    rows = [dict(zip(EVIDENCE_COLUMNS, row, strict=True)) for row in evidence_rows(RECORD, [an_event(1), verdict])]

    assert [row["event_id"] for row in rows] == [2, 2]
    first, second = rows
    assert (first["rollout_id"], first["model"], first["champion_version"], first["challenger_version"]) == (
        7,
        "churn",
        "6",
        "7",
    )
    assert first["at"] == datetime.fromtimestamp(1_060, UTC)
    assert (first["verdict"], first["check"], first["state"], first["change"]) == ("ROLL_BACK", "error_rate", "fail", 9)
    assert (first["since"], first["subject"]) == (None, None)
    assert (second["since"], second["subject"]) == (datetime.fromtimestamp(1_045, UTC), "bought")


def test_no_column_stands_twice():
    assert len(set(EVIDENCE_COLUMNS)) == len(EVIDENCE_COLUMNS)
