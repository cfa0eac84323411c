from math import isnan
from typing import Any

import pytest
from traffic.spooled_rows import a_row, records_of

from understudy.core.prediction_log.analysis_hash import analysis_hash
from understudy.core.prediction_log.row import PredictionRow, Status
from understudy.core.prediction_log.row_encoding import encode_line, encode_rows, encode_text
from understudy.core.prediction_log.row_record import FIELDS, REASONS, ROLES, STATUSES
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason


def record_of(row: PredictionRow) -> dict[str, Any]:
    values = records_of([row]).array()[0].tolist()
    return dict(zip((name for name, _ in FIELDS), values, strict=True))


def test_a_record_has_the_facts_of_its_row():
    row = a_row()._replace(
        predicted_at=1_763_661_000.999_999_9,
        model_version_id=7,
        assigned_version_id=2**63 - 1,
        entity_id="zoë\t",
        score=-0.1,
        latency_us=12_999,
        role=Role.SHADOW,
        reason=Reason.CATEGORY,
        policy_generation=3,
        rollout_id=9,
        cache_hit=True,
        status=Status.TIMEOUT,
        error_code="E504",
        deadline_us=250_000,
    )

    assert record_of(row) == {
        "model_version_id": 7,
        "assigned_version_id": 2**63 - 1,
        "policy_generation": 3,
        "rollout_id": 9,
        "role": ROLES.index(Role.SHADOW),
        "reason": REASONS.index(Reason.CATEGORY),
        "second": 1_763_661_001,
        "status": STATUSES.index(Status.TIMEOUT),
        "is_hit": 1,
        "is_out_of_time": 1,
        "entity_hash": analysis_hash("zoë\t".encode()),
        "score": -0.1,
        "latency_us": 12_999,
        "deadline_us": 250_000,
        "is_sliced": 0,
        "is_drawn": 0,
    }


def test_what_a_row_does_not_have_is_zero_and_its_score_nan():
    record = record_of(a_row()._replace(score=None))

    assert isnan(record["score"])
    assert [record[name] for name in ("rollout_id", "deadline_us", "is_hit", "is_out_of_time")] == [0, 0, 0, 0]


def test_that_an_entity_was_made_for_the_call_stands_in_the_record_alone():
    drawn = a_row()._replace(is_drawn=True)

    assert record_of(drawn)["is_drawn"] == 1
    assert encode_line(drawn) == encode_line(a_row())


@pytest.mark.parametrize(("code", "expected"), [("E504", 1), ("E503", 0), (None, 0)])
def test_only_a_deadline_makes_a_call_out_of_time(code, expected):
    assert record_of(a_row()._replace(error_code=code))["is_out_of_time"] == expected


def test_the_entity_is_hashed_as_its_text_in_the_log_is():
    assert record_of(a_row()._replace(entity_id="a\ud800b"))["entity_hash"] == analysis_hash(b"a?b")


def test_rows_that_are_encoded_together_are_what_each_is_alone():
    rows = [a_row(number)._replace(score=number / 7, role=role) for number, role in enumerate([*Role, *Role])]

    records, lines = encode_rows(rows)

    assert records == [encode_rows([row])[0][0] for row in rows]
    assert encode_text(lines) == b"".join(map(encode_line, rows))
    assert encode_line(rows[0]).startswith(rows[0].prediction_id.encode())
