"""Times of the monitor that have to fit each other."""

from understudy.bootstrap.monitor import NOTIFICATION_FINISH_SECONDS
from understudy.monitoring.worker import HELD_SECONDS
from understudy.ports.monitoring.lease import LEASE_SECONDS


def test_sends_of_notifications_are_over_before_another_monitor_may_lead():
    assert NOTIFICATION_FINISH_SECONDS < LEASE_SECONDS - HELD_SECONDS
