"""The control plane's answers are what their schemas say: the same fields, no more and no fewer."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from understudy.core.routing.arms import BucketRange
from understudy.entrypoints.documents.json_text import json_text
from understudy.entrypoints.documents.policies import audit_document, policy_document
from understudy.entrypoints.documents.rollbacks import rollback_document
from understudy.entrypoints.proxy.api.openapi.control import CONTROL
from understudy.ports.registry.registry import AuditEntry, AuditSubject, PolicyRecord
from understudy.ports.rollout.rollout_store import RollbackRecord

NOW = datetime(2026, 11, 20, tzinfo=UTC)
POLICY = PolicyRecord(
    *("visits", "6", "7", 10, None, 0, True, None, {"vip": "champion"}, 118, "5", 42, NOW, "9f2c01aa77de", 6, 6),
    arms=(BucketRange("8", 90, 99),),
)
ENTRY = AuditEntry(
    *(7, "visits", 42, NOW, "9f2c01aa77de", "http", None, "update", {}, {"challenger_weight": 10}),
    *(AuditSubject.POLICY, "visits", None),
)
DONE = {
    **rollback_document(RollbackRecord("visits", "weight 0", 42, "6", "7", 118), None),
    "in_flight": {"7": 2},
    "versions_without_calls": ["7"],
    "dry_run": False,
}


def schema_of(call: str, member: str) -> dict[str, Any]:
    content = CONTROL[call]["responses"][200]["content"]["application/json"]["schema"]
    return dict(content["properties"][member])


@pytest.mark.parametrize(
    ("document", "schema"),
    [
        ({"found": policy_document(POLICY)}, schema_of("get_policy", "policy")),
        ({"found": audit_document([ENTRY], {})["audit"][0]}, schema_of("list_audit", "audit")["items"]),
        ({"found": DONE}, schema_of("roll_back", "rollback")),
    ],
)
def test_an_answer_has_the_fields_of_its_schema_and_no_others(document, schema):
    found = orjson.loads(json_text(document))["found"]

    assert list(schema["properties"]) == schema["required"]
    assert set(found) == set(schema["required"])
