"""Rows of ``PredictionLog`` for tests, and their ids found again in encoded rows."""

from collections.abc import Iterable
from uuid import UUID, uuid4

from understudy.core.prediction_log.row import COLUMNS, PredictionRow, Status
from understudy.core.prediction_log.row_encoding import encode_rows
from understudy.core.prediction_log.row_record import FIELDS, RowRecords
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason
from understudy.core.windows.builder import WindowBuilder


def a_prediction_id(number: int) -> str:
    return str(UUID(int=number))


def a_row(number: int = 1, *, version_id: int = 1, prediction: bytes = b'{"score":0.5}') -> PredictionRow:
    return PredictionRow(
        prediction_id=a_prediction_id(number),
        predicted_at=1_763_661_000.25,
        model_version_id=version_id,
        assigned_version_id=version_id,
        entity_id=f"user-{number}",
        input_hash="ab" * 32,
        prediction=prediction,
        score=0.5,
        latency_us=12_999,
        role=Role.CHAMPION,
        reason=Reason.BUCKET,
        bucket=42,
        policy_generation=3,
        rollout_id=None,
        cache_hit=False,
        status=Status.OK,
        error_code=None,
        defaulted=(),
    )


def ids_in(encoded: Iterable[bytes]) -> list[str]:
    return [row.split(b"\t")[COLUMNS.index("prediction_id")].decode() for row in encoded]


def records_of(rows: Iterable[PredictionRow]) -> RowRecords:
    """Return the records that stand beside the rows in the spool."""
    return RowRecords(FIELDS, b"".join(encode_rows(rows)[0]))


def new_windows() -> WindowBuilder:
    return WindowBuilder(uuid4().hex)


def no_threshold(_rollout_id: int) -> int | None:
    return None
