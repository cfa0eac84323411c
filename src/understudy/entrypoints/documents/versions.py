"""Versions as JSON."""

from collections.abc import Sequence
from typing import Any

from understudy.core.schema.input_diff import InputDifferences
from understudy.core.upstream.same_call import SameCall
from understudy.ports.registry.registry import VersionChange, VersionRecord


def version_document(record: VersionRecord) -> dict[str, Any]:
    """Return a version as JSON."""
    return record._asdict()


def registered_document(
    made: VersionRecord, found: InputDifferences, same: Sequence[SameCall], *, dry_run: bool
) -> dict[str, Any]:
    """Return a version that was registered, or tried, as JSON.

    With it is how its inputs differ from the champion's, and which versions a server may not tell from it.
    """
    version = {**version_document(made), "id": None if dry_run else made.id}
    return {
        "version": version,
        "input_differences": found._asdict(),
        "same_calls": [one._asdict() for one in same],
        "dry_run": dry_run,
    }


def change_document(changed: VersionChange, *, dry_run: bool) -> dict[str, Any]:
    """Return a version that was retired or brought back as JSON."""
    return {
        "version": version_document(changed.after),
        "before": version_document(changed.before),
        "changed": changed.before != changed.after and not dry_run,
        "dry_run": dry_run,
    }
