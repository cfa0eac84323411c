import pytest

from understudy.entrypoints.proxy.rpc.port import AGE_SECONDS, age_for

SPREAD = 1.1
"""gRPC makes an age up to a tenth longer."""


@pytest.mark.parametrize("drain_seconds", [2.0, 3.0, 10.0, 12.0, 600.0])
def test_each_connection_reaches_its_age_within_a_drain(drain_seconds: float) -> None:
    assert 1.0 <= age_for(drain_seconds) * SPREAD < drain_seconds


@pytest.mark.parametrize("drain_seconds", [0.0, 0.2, 1.0])
def test_a_drain_too_short_for_that_leaves_connections_their_age(drain_seconds: float) -> None:
    assert age_for(drain_seconds) == AGE_SECONDS


def test_a_long_drain_makes_no_connection_older() -> None:
    assert age_for(86_400.0) == AGE_SECONDS
