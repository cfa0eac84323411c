import pytest

from understudy.core.routing.policy import Role
from understudy.entrypoints.cli.drift.skew import next_step
from understudy.monitoring.skew_view import SkewView, VersionSkew


@pytest.mark.parametrize(
    ("percent", "command"),
    [(0, "understudy model set visits --input-sample-percent 5"), (5, "understudy serve monitor")],
)
def test_what_is_missing_is_said_with_the_store_that_monitors_need(percent, command):
    view = SkewView("visits", 0.0, [VersionSkew("6", Role.CHAMPION, [])], percent)

    then = next_step(view)

    assert then.command == command
    assert "monitor" in f"{then.command} {then.purpose}"
    assert "UNDERSTUDY_FEATURE_REDIS_URL or UNDERSTUDY_FEATURE_TABLE" in then.purpose
