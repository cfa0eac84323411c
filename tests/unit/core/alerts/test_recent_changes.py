"""What changed around a model: whole rows of audits as one line each, and traffic against the hour before."""

import pytest

from understudy.core.alerts.recent_changes import (
    MAX_CHANGES,
    Change,
    RecentChanges,
    Traffic,
    newest,
    policy_change,
    registry_change,
)

LABELS = {1: "6", 2: "7"}


def test_a_change_of_a_policy_names_what_changed_with_versions_by_their_labels():
    before = {"champion_version": 1, "challenger_weight": 0, "generation": 4, "guard": "alert"}
    after = {"champion_version": 2, "challenger_weight": 10, "generation": 5, "guard": "alert"}

    assert policy_change(before, after, LABELS) == "policy changed: champion 6 → 7, challenger_weight 0 → 10"
    assert policy_change(before, None, LABELS) == "policy deleted"
    assert policy_change(before, before, LABELS) == "policy changed"
    assert policy_change(None, {"champion_version": 1}, LABELS).startswith("policy made: champion none → 6")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("endpoint", "7", "insert", None, {"target": "10.0.0.7:8001"}), "endpoint of version 7 10.0.0.7:8001 regist"),
        (("endpoint", "7", "delete", {"target": "10.0.0.7:8001"}, None), "endpoint of version 7 10.0.0.7:8001 deleted"),
        (
            ("version", "7", "update", {"artifact_digest": "sha256:a"}, {"artifact_digest": "sha256:b"}),
            "version 7: artifact_digest sha256:a → sha256:b",
        ),
    ],
)
def test_a_change_of_a_server_or_a_build_is_named_with_its_address(arguments, words):
    assert registry_change(*arguments).startswith(words)


@pytest.mark.parametrize(
    ("traffic", "is_changed", "words"),
    [
        (Traffic(900.0, 300.0), True, "900.0 calls a minute, 300.0 in the hour before = 3x"),
        (Traffic(310.0, 300.0), False, "310.0 calls a minute, 300.0 in the hour before = 1x, about the same"),
        (Traffic(0.0, 300.0), True, "0.0 calls a minute, 300.0 in the hour before = 0x"),
        (Traffic(50.0, 0.0), True, "50.0 calls a minute, 0.0 in the hour before"),
        (Traffic(0.0, 0.0), False, "0.0 calls a minute, 0.0 in the hour before, about the same"),
    ],
)
def test_traffic_is_told_beside_the_hour_before(traffic, is_changed, words):
    assert (traffic.is_changed, traffic.words) == (is_changed, words)


def test_the_newest_changes_are_told_and_the_others_counted():
    changes = newest(Change(float(at), f"change {at}", "dana", "cli", None) for at in range(50))
    found = RecentChanges(changes, 50, Traffic(1.0, 1.0), ("age",))

    said = dict(found.lines)
    assert len(changes) == MAX_CHANGES
    assert said["changes"].startswith("change 49, by dana via cli")
    assert said["changes"].endswith("and 30 more: understudy audit list has them")
    assert said["drift"] == "age of the champion"
    assert found.to_json()["calls_per_minute"] == {"now": 1.0, "before": 1.0}


def test_where_nothing_changed_that_is_said():
    said = dict(RecentChanges((), 0, Traffic(1.0, 1.0), ()).lines)

    assert said["changes"] == "none of its policy, versions and endpoints"
    assert said["drift"] == "none known of the champion"
