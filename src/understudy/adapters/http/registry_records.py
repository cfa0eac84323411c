"""Documents of the control plane as records of the registry; what a later release added to them is passed over."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from understudy.core.routing.arms import BucketRange
from understudy.ports.loading.loading_registry import MissingVersion
from understudy.ports.registry.registry import (
    AppliedFile,
    AuditEntry,
    AuditSubject,
    KeyRecord,
    ModelRecord,
    PolicyRecord,
    VersionRecord,
)

Document = Mapping[str, Any]


def version_record(document: Document) -> VersionRecord:
    """Return a version; one that was only tried has the id 0."""
    fields = _fields(VersionRecord, document, "created_at", "deployed_at")
    return VersionRecord(**{**fields, "id": fields["id"] or 0, "endpoints": tuple(fields["endpoints"])})


def policy_record(document: Document) -> PolicyRecord:
    """Return a policy."""
    fields = _fields(PolicyRecord, document, "updated_at")
    arms = tuple(BucketRange(arm["version"], arm["first"], arm["last"]) for arm in fields["arms"])
    return PolicyRecord(**{**fields, "arms": arms})


def model_record(document: Document) -> ModelRecord:
    """Return a model."""
    policy = document["policy"]
    return ModelRecord(
        document["model_name"], None if policy is None else policy_record(policy), document["version_count"]
    )


def applied_file(document: Document) -> AppliedFile:
    """Return the file that a policy was last applied from."""
    return AppliedFile(**_fields(AppliedFile, document, "applied_at"))


def missing_version(document: Document) -> MissingVersion:
    """Return a wanted version that a server does not have."""
    fields = _fields(MissingVersion, document)
    return MissingVersion(**{**fields, "without": tuple(fields["without"])})


def audit_entry(document: Document) -> AuditEntry:
    """Return a change; in its rows versions have their labels, as documents have them."""
    fields = _fields(AuditEntry, document, "changed_at")
    return AuditEntry(**{**fields, "subject": AuditSubject(fields["subject"])})


def key_record(document: Document) -> KeyRecord:
    """Return a key."""
    fields = _fields(KeyRecord, document, "created_at", "revoked_at", "expires_at")
    return KeyRecord(**{**fields, "scopes": tuple(fields["scopes"])})


def _fields(record: Any, document: Document, *moments: str) -> dict[str, Any]:
    found = {name: document[name] for name in record._fields if name in document}
    for name in moments:
        if found.get(name) is not None:
            found[name] = datetime.fromisoformat(found[name])
    return found
