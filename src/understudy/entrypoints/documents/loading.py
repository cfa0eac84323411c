"""What agents do about a version, as JSON."""

from collections.abc import Sequence
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


def validation_document(model_name: str, version: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return what came of a validation as JSON."""
    return {
        "model": model_name,
        "version": version,
        "passed": all(finding.state is State.GOOD for finding in findings),
        "findings": [*map(finding_document, findings)],
    }
