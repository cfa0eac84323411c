"""A registered version as lines of text."""

from datetime import datetime

from understudy.core.routing.status_changes import status_change_of
from understudy.entrypoints.cli.shared.rendering import nothing_as
from understudy.entrypoints.cli.shared.times import ago_and_at
from understudy.ports.registry.registry import RETIRED, VersionRecord


def version_facts(record: VersionRecord, pinned_digest: str | None = None) -> list[tuple[str, str]]:
    """Return what a version was registered with, each by its name.

    ``pinned_digest`` is what agents fetched first, and take nothing else for it since.
    """
    pinned = f"{pinned_digest}, as fetched first" if pinned_digest else None
    features = record.input_schema.get("features", [])
    names = ", ".join(str(feature.get("name")) for feature in features if isinstance(feature, dict))
    metrics = ", ".join(
        f"{name} {value}" for name, value in (record.metrics or {}).items() if not isinstance(value, dict)
    )
    caching = f"{record.cache_ttl_seconds} s" if record.deterministic and record.cache_ttl_seconds else "off"
    return [
        ("artifact", record.artifact_path),
        ("digest", nothing_as(record.artifact_digest or pinned)),
        ("base model", _base_model_of(record)),
        ("framework", record.framework),
        ("protocol", record.protocol),
        ("servers", _servers_of(record)),
        ("inputs", f"{len(features)}: {names}"),
        ("metrics", nothing_as(metrics)),
        ("cached for", caching),
        ("time-out", f"{record.timeout_ms} ms"),
    ]


def _servers_of(record: VersionRecord) -> str:
    servers = ", ".join(record.endpoints) or "none yet"
    return f"{servers}; each address of a name is one" if record.backend.get("discover") is True else servers


def _base_model_of(record: VersionRecord) -> str:
    family = f"family {record.family}" if record.family else ""
    return nothing_as(", ".join(filter(None, (record.base_model, family))))


def status_facts(record: VersionRecord) -> list[tuple[str, str]]:
    """Return who retired a version or brought it back; nothing where its status is another one since."""
    noted = status_change_of(record.metrics)
    if noted is None or (noted.status == RETIRED) != (record.status == RETIRED):
        return []
    try:
        when = ago_and_at(datetime.fromisoformat(noted.at))
    except (ValueError, TypeError):  # SQL wrote it
        return []
    word = "retired" if noted.status == RETIRED else "restored"
    return [(word, f"{when} by {noted.by}" + (f": {noted.reason}" if noted.reason else ""))]
