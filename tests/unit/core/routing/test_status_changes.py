import pytest

from understudy.core.routing.status_changes import KEY, StatusChange, status_change_of, with_status_change

RETIRED = StatusChange("retired", "2026-11-20T12:00:00+00:00", "dana@laptop", "replaced by 8")


def test_a_change_is_noted_beside_what_the_metrics_have_and_read_again():
    noted = with_status_change({"auc": 0.8, KEY: {"status": "staging"}}, RETIRED)

    assert noted["auc"] == 0.8
    assert status_change_of(noted) == RETIRED


def test_metrics_that_are_empty_get_a_note_without_a_reason():
    noted = with_status_change(None, RETIRED._replace(reason=None))

    assert noted == {KEY: {"status": "retired", "at": RETIRED.at, "by": "dana@laptop", "reason": None}}
    assert status_change_of(noted) == RETIRED._replace(reason=None)


def test_metrics_that_are_no_object_are_not_replaced():
    with pytest.raises(ValueError, match="expected the version's metrics to be an object"):
        with_status_change([1], RETIRED)


@pytest.mark.parametrize("metrics", [None, {}, [1], {KEY: 7}, {KEY: {"status": "retired", "at": 7, "by": "dana"}}])
def test_a_note_that_nobody_can_read_is_none(metrics):
    assert status_change_of(metrics) is None
