"""What agents do about a version, as JSON."""

from typing import Any

from understudy.ports.loading.loading_registry import VersionLoadingRecord


def loading_document(record: VersionLoadingRecord) -> dict[str, Any]:
    """Return what agents do about a version as JSON."""
    return {
        **record._asdict(),
        "servers": [server._asdict() for server in record.servers],
        "validations": [one._asdict() for one in record.validations],
    }
