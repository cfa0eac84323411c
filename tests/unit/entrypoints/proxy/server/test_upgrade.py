"""Requests that are no HTTP: counted, and told in the log once in a while."""

import logging

from understudy.entrypoints.proxy.server.upgrade import InvalidRequests


def test_a_flood_of_invalid_requests_is_a_line_a_second_with_their_number(caplog):
    moment = [100.0]
    invalid, logger = InvalidRequests(lambda: moment[0]), logging.getLogger("test.invalid")

    with caplog.at_level(logging.WARNING):
        for number in range(2_500):
            moment[0] = 100.0 + number / 1_000
            invalid.note(logger)

    assert caplog.messages == [f"Invalid HTTP requests received: {count}" for count in (1, 1_000, 1_000)]
