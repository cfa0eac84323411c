"""What a drift report is asked for."""

import pytest

from understudy.core.drift.hours import HOUR_SECONDS, KEPT_SECONDS
from understudy.monitoring.drift_view import judged_seconds_since

NOW = 1_800_000_000.0


@pytest.mark.parametrize(("ago", "judged"), [(60.0, HOUR_SECONDS), (7_200.0, 7_200.0), (KEPT_SECONDS, KEPT_SECONDS)])
def test_a_report_is_of_an_hour_at_least_and_of_all_hours_that_are_kept_at_most(ago, judged):
    assert judged_seconds_since(NOW - ago, NOW) == judged


def test_hours_that_are_deleted_are_not_judged():
    with pytest.raises(ValueError, match="hours are kept for"):
        judged_seconds_since(NOW - KEPT_SECONDS - 1, NOW)
