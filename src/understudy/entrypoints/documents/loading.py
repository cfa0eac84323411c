"""What agents do about a version, as JSON and in words."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from understudy.entrypoints.documents.findings import finding_document
from understudy.ports.loading.loading_registry import VersionLoadingRecord
from understudy.registry.findings.finding import Finding, State


def loading_document(record: VersionLoadingRecord) -> dict[str, Any]:
    """Return what agents do about a version as JSON."""
    return {
        **record._asdict(),
        "servers": [server._asdict() for server in record.servers],
        "validations": [one._asdict() for one in record.validations],
        "replicas": None if record.replicas is None else str(record.replicas),
    }


def loaded_words(record: VersionLoadingRecord, now: datetime | None = None) -> str:
    """Return by whose agents a version is loaded, on how many of their servers, and for how long."""
    how_long = "for as long as it has a role"
    if record.is_kept:
        how_long = "until it is unloaded"
    elif record.wanted_until is not None and record.wanted_until > (now or datetime.now(UTC)):
        how_long = f"until {record.wanted_until.astimezone(UTC):%d %b %H:%M} UTC, and while it has a role"
    on = "" if record.replicas is None else f", on {record.replicas} of its servers"
    return f"by agents of {record.group_name}{on}, {how_long}"


def validation_document(model_name: str, version: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return what came of a validation as JSON."""
    return {
        "model": model_name,
        "version": version,
        "passed": all(finding.state is State.GOOD for finding in findings),
        "findings": [*map(finding_document, findings)],
    }
