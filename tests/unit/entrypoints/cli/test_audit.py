"""A change in the audit as a line that people read."""

from datetime import UTC, datetime
from typing import Any

import pytest

from understudy.entrypoints.cli.audit import name_of_changed
from understudy.entrypoints.cli.shared.texts.change_text import change_text
from understudy.ports.registry.registry import AuditEntry, AuditSubject

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ENDPOINT, KEY, VERSION = AuditSubject.ENDPOINT, AuditSubject.KEY, AuditSubject.VERSION
SUBSCRIPTION = AuditSubject.SUBSCRIPTION


@pytest.mark.parametrize(
    ("subject", "action", "before", "after", "said"),
    [
        (ENDPOINT, "update", {"target": "m:1"}, {"target": "m:2"}, "endpoint: target m:1 → m:2"),
        (ENDPOINT, "insert", None, {"target": "m:1"}, "endpoint m:1 added"),
        (ENDPOINT, "delete", {"target": "m:1"}, None, "endpoint m:1 removed"),
        (VERSION, "update", {"timeout_ms": 500}, {"timeout_ms": 1}, "version: timeout_ms 500 → 1"),
        (VERSION, "update", {"metrics": None}, {"metrics": {"auc": 1}}, "version: metrics - → {…}"),
        (VERSION, "insert", None, {"artifact_path": "s3://m"}, "version added"),
        (KEY, "insert", None, {"scopes": ["predict:visits", "read"]}, "key added with the scopes predict:visits, read"),
        (SUBSCRIPTION, "insert", None, {"receiver": "chat"}, "subscription added for the receiver chat"),
        (SUBSCRIPTION, "delete", {"receiver": "chat"}, None, "subscription removed"),
        (SUBSCRIPTION, "update", {"kinds": []}, {"kinds": ["drift"]}, "subscription: kinds [] → ['drift']"),
        (KEY, "update", {"note": "a"}, {"note": "b" * 99}, f"key: note a → {'b' * 59}…"),
    ],
)
def test_what_changed_is_said_in_one_line(subject, action, before: dict[str, Any], after: dict[str, Any], said):
    model = None if subject is KEY else "visits"
    entry = AuditEntry(1, model, None, NOON, "kim", "psql", None, action, before, after, subject, "7", "1")

    assert change_text(entry, {}) == said


@pytest.mark.parametrize(
    ("subject", "model", "named"),
    [
        (VERSION, "visits", "visits"),
        (KEY, None, "key 7"),
        (SUBSCRIPTION, None, "subscription 7"),
        (SUBSCRIPTION, "visits", "subscription 7"),
    ],
)
def test_what_has_no_model_is_named_by_itself(subject, model, named):
    entry = AuditEntry(1, model, None, NOON, "kim", "psql", None, "insert", None, {}, subject, "7", None)

    assert name_of_changed(entry) == named


@pytest.mark.parametrize("champions", [(1, 2), ("6", "7")])
def test_versions_have_their_labels_whether_the_database_or_a_proxy_told_of_the_change(champions):
    old, new = ({"champion_version": one, "generation": number} for number, one in enumerate(champions, 3))
    policy = AuditSubject.POLICY
    entry = AuditEntry(1, "visits", 4, NOON, "k1", "http", None, "update", old, new, policy, "visits", None)

    assert change_text(entry, {1: "6", 2: "7"}) == "champion 6 → 7"
