import pytest

from understudy.core.prediction_log.row import Status
from understudy.core.prediction_log.row_record import (
    FIELDS,
    NO_FIELDS,
    REASONS,
    ROLES,
    STATUSES,
    RowRecords,
    fields_of,
    record_bytes,
)
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason


def test_the_codes_on_disk_are_those_of_the_releases_before():
    assert ROLES == (Role.CHAMPION, Role.CHALLENGER, Role.SHADOW)
    assert REASONS == (Reason.BUCKET, Reason.CATEGORY, Reason.FORCED)
    assert STATUSES[:3] == (Status.OK, Status.FALLBACK, Status.TIMEOUT)
    assert STATUSES[3:] == (Status.UNAVAILABLE, Status.BAD_ANSWER, Status.ERROR)


@pytest.mark.parametrize(("codes", "values"), [(ROLES, Role), (REASONS, Reason), (STATUSES, Status)])
def test_every_value_has_a_code(codes, values):
    assert set(codes) == set(values)


def test_a_part_has_the_records_of_its_rows():
    records = RowRecords((("second", "<i8"), ("status", "u1")), bytes(range(27)))

    assert records.array()["status"].tolist() == [8, 17, 26]
    assert records.part(1).array()["status"].tolist() == [17, 26]
    assert records.part(0, 2).array()["status"].tolist() == [8, 17]
    assert RowRecords(NO_FIELDS, b"").part(3) == (NO_FIELDS, b"")


def test_fields_are_read_from_a_header_as_they_were_written():
    assert fields_of([list(field) for field in FIELDS]) == FIELDS
    assert fields_of(()) == NO_FIELDS
    assert record_bytes(NO_FIELDS) == 0
    assert record_bytes(fields_of([*FIELDS, ["slices", "V5"]])) == record_bytes(FIELDS) + 5


@pytest.mark.parametrize("form", ["O", "<f1", "V0", "V1000", "S8", "<i8,<i8", "object", "(2,)<i8"])
def test_a_field_of_any_other_format_is_refused(form):
    with pytest.raises((TypeError, ValueError)):
        fields_of([["second", form]])


def test_two_fields_of_one_name_are_refused():
    with pytest.raises(ValueError, match="second"):
        fields_of([["second", "<i8"], ["second", "<i8"]])
