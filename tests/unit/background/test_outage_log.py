"""What the log says of an outage."""

from structlog.testing import capture_logs

from understudy.background.outage_log import REMIND_SECONDS, OutageLog
from understudy.errors import RegistryUnavailable

NOON = 1_764_331_200.0


def test_an_outage_is_told_at_its_beginning_now_and_then_and_at_its_end():
    now = NOON
    outage = OutageLog("postgres", "changes", lambda: now)

    with capture_logs() as lines:
        outage.succeeded()
        while now < NOON + 2 * REMIND_SECONDS + 10:
            outage.failed(RegistryUnavailable("it is away"), "calls")
            now += 1
        outage.succeeded()
        outage.succeeded()

    assert [line["event"] for line in lines] == [
        "postgres.away", "postgres.still_away", "postgres.still_away", "postgres.back",
    ]  # fmt: skip
    assert {line["since"] for line in lines[:-1]} == {"2025-11-28T12:00:00+00:00"}
    assert lines[0] == {
        "event": "postgres.away", "problem": "it is away", "since": "2025-11-28T12:00:00+00:00",
        "still_works": "calls", "waits": "changes", "log_level": "warning",
    }  # fmt: skip
    assert lines[-1]["away_seconds"] == 2 * REMIND_SECONDS + 10


def test_the_next_outage_is_told_again():
    now = NOON
    outage = OutageLog("postgres", "changes", lambda: now)

    with capture_logs() as lines:
        for _ in range(2):
            outage.failed(RegistryUnavailable("it is away"), "calls")
            outage.succeeded()

    assert [line["event"] for line in lines] == ["postgres.away", "postgres.back"] * 2
