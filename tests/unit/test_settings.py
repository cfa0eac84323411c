"""What the environment may hold."""

import pytest
from pydantic import ValidationError

from understudy.settings import Settings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("environment", ""),
        ("environment", "eu/prod"),
        ("environment", "x" * 41),
        ("monitor_tick_seconds", "0"),
        ("pagerduty_routing_key", ""),
        ("alert_webhook_url", ""),
    ],
)
def test_a_value_that_would_break_alerts_or_the_schedule_is_refused_by_name(field, value):
    with pytest.raises(ValidationError) as refusal:
        Settings.model_validate({field: value})

    assert [error["loc"] for error in refusal.value.errors()] == [(field,)]
