"""Where a version stays loaded that nothing wants, and for how long."""

import pytest

from understudy.core.loading.idle import CALL_NOTED_SECONDS, Idle, idle_places
from understudy.core.loading.wanted import GroupMember, ManagedVersion

HERE = (1, "s1")
VERSION = ManagedVersion(1, "onnx", frozenset(), may_idle=True)
SERVERS = [GroupMember("s1", "onnx"), GroupMember("s2", "other")]


@pytest.mark.parametrize(
    ("version", "place", "idle", "limit", "stays"),
    [
        (VERSION, HERE, {}, 60.0, True),
        (VERSION, HERE, {HERE: Idle(59.0, 59.0)}, 60.0, True),
        (VERSION, HERE, {HERE: Idle(60.0, 60.0)}, 60.0, False),
        (VERSION, HERE, {HERE: Idle(600.0, 5.0)}, 60.0, True),
        (VERSION, HERE, {}, 0.0, False),
        (ManagedVersion(1, "onnx", frozenset()), HERE, {}, 60.0, False),
        (ManagedVersion(1, "other", frozenset(), may_idle=True), HERE, {}, 60.0, False),
        (VERSION, (2, "s1"), {}, 60.0, False),
        (VERSION, (1, "gone"), {}, 60.0, False),
    ],
    ids=[
        *("begins", "before its end", "at its end", "was called", "no limit", "unloaded by a person", "moved"),
        *("unknown", "server is gone"),
    ],
)
def test_an_unwanted_version_stays_until_it_was_not_called_for_so_long(version, place, idle, limit, stays):
    found = idle_places([version], SERVERS, [place], idle, limit_seconds=limit)

    assert found == ({place} if stays else set())


def test_a_call_is_recorded_when_it_was_a_minute_after_what_is():
    assert not Idle(CALL_NOTED_SECONDS, 0.0).was_called
    assert Idle(CALL_NOTED_SECONDS + 1, 0.0).was_called
