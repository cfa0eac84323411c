"""The page of a model's versions: who registered each, where it is loaded, what validated it, its share now."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import NamedTuple

from understudy.core.loading.state import LoadingState
from understudy.core.routing.arms import arm_percents
from understudy.entrypoints.cli.shared.times import ago
from understudy.entrypoints.console.views.links import BRING_BACK, REPLAY, RETIRE, version_act_path
from understudy.entrypoints.console.views.tone import NOTHING, Tone
from understudy.entrypoints.documents.loading import loaded_words
from understudy.ports.loading.loading_registry import VersionAtServerRecord, VersionLoadingRecord
from understudy.ports.registry.registry import RETIRED, AuditEntry, PolicyRecord, VersionRecord

MAX_VERSIONS = 50
"""Newest versions that are shown; those with a share are among them wherever they stand."""
MAX_ENTRIES = 300
"""Changes of versions among which those are looked for that registered them."""
_INSERT = "insert"
_ROLES = ("champion", "challenger", "further arm", "shadow", "")
"""Those that calls go to first."""
_TONES = {LoadingState.AVAILABLE: Tone.GOOD, LoadingState.ERROR: Tone.BAD, LoadingState.END: Tone.CALM}


class VersionsSeen(NamedTuple):
    """What was read of a model's versions."""

    model: str
    policy: PolicyRecord | None
    versions: Sequence[VersionRecord]
    """Oldest first."""
    loading: Sequence[VersionLoadingRecord]
    audit: Sequence[AuditEntry]
    """Changes of versions, newest first."""
    read_at: float


class ServerRow(NamedTuple):
    """A version at one model server that an agent keeps."""

    server: str
    state: str
    tone: Tone
    why: str
    since: str
    problem: str


class VersionRow(NamedTuple):
    """One version."""

    version: str
    status: str
    role: str
    share: str
    has_calls: bool
    endpoints: tuple[str, ...]
    loaded: str
    """By whom it is loaded, and where."""
    servers: tuple[ServerRow, ...]
    validated: str
    registered: str
    facts: tuple[tuple[str, str], ...]
    command: str
    acts: tuple[tuple[str, str], ...]
    """What one who may act can do to it, and where that is asked."""


class VersionsPage(NamedTuple):
    """The versions of a model."""

    model: str
    sentence: str
    tone: Tone
    rows: tuple[VersionRow, ...]
    left_out: int
    commands: tuple[str, ...]


def versions_page(seen: VersionsSeen) -> VersionsPage:
    """Return the page; its figures are those of ``understudy version list`` and ``show``."""
    shares, loading = shares_of(seen.policy), {one.version: one for one in seen.loading}
    authors = {entry.version: entry for entry in seen.audit if entry.action == _INSERT}
    newest = sorted(seen.versions, key=lambda one: one.id, reverse=True)
    shown = [one for place, one in enumerate(newest) if place < MAX_VERSIONS or one.version in shares]
    rows = [_row(one, seen, shares, loading.get(one.version), authors.get(one.version)) for one in shown]
    rows.sort(key=lambda row: _ROLES.index(row.role))
    sentence, tone = _sentence(seen, rows)
    commands = (f"understudy version list {quote(seen.model)}", "understudy server list")
    return VersionsPage(seen.model, sentence, tone, tuple(rows), len(newest) - len(shown), commands)


def shares_of(policy: PolicyRecord | None) -> Mapping[str, tuple[str, int]]:
    """Return role and share in percent of each version that a policy names."""
    if policy is None:
        return {}
    arms = arm_percents(policy.split.ranges)
    found = {version: ("further arm", percent) for version, percent in arms.items()}
    found[policy.champion] = ("champion", arms.get(policy.champion, 0))
    if policy.challenger is not None:
        found[policy.challenger] = ("challenger", policy.challenger_weight)
    if policy.shadow is not None:
        found[policy.shadow] = ("shadow", policy.shadow_percent)
    return found


def _sentence(seen: VersionsSeen, rows: Sequence[VersionRow]) -> tuple[str, Tone]:
    if not rows:
        return f"{seen.model} has no version.", Tone.CALM
    answers = [f"{row.version} ({row.role}, {row.share})" for row in rows if row.has_calls and row.role != "shadow"]
    of = f"{len(seen.versions)} version{'s' * (len(seen.versions) != 1)}"
    says = f"Of {of} {' and '.join(answers)} answer{'s' * (len(answers) == 1)} calls"
    says = says if answers else "No version answers calls"
    failed = [row.version for row in rows if any(server.tone is Tone.BAD for server in row.servers)]
    unreached = [row for row in rows if row.role and not row.endpoints]
    troubles = [f"a server failed to load {', '.join(failed)}"] if failed else []
    if unreached:  # first: its calls fail, or another version answers them
        troubles.insert(0, f"no model server is registered for {', '.join(row.version for row in unreached)}")
    is_bad = bool(failed) or any(row.has_calls for row in unreached)
    tone = Tone.BAD if is_bad else Tone.WAIT if unreached else Tone.CALM
    return f"{'; '.join([says, *troubles])}.", tone


def _row(
    record: VersionRecord,
    seen: VersionsSeen,
    shares: Mapping[str, tuple[str, int]],
    loading: VersionLoadingRecord | None,
    author: AuditEntry | None,
) -> VersionRow:
    role, percent = shares.get(record.version, ("", 0))
    now = datetime.fromtimestamp(seen.read_at, UTC)
    by = f" by {author.actor} ({author.via})" if author is not None else "; the audit does not have by whom"
    return VersionRow(
        record.version,
        record.status,
        role,
        f"{percent} %" if role else NOTHING,
        bool(role) and percent > 0,
        record.endpoints,
        _loaded(record, loading, now),
        tuple(_server(one, now) for one in (loading.servers if loading is not None else ())),
        _validated(record, loading),
        f"{ago(record.created_at, now)}{by}",
        (
            ("artifact", record.artifact_path),
            ("digest", record.artifact_digest or "none"),
            ("framework", f"{record.framework}, {record.protocol}"),
            ("time-out", f"{record.timeout_ms} ms"),
        ),
        f"understudy version show {quote(seen.model)} {quote(record.version)}",
        tuple(_acts(record, has_role=bool(role))),
    )


def _acts(record: VersionRecord, *, has_role: bool) -> list[tuple[str, str]]:
    model, version = record.model_name, record.version
    acts = [("Replay logged calls on it", version_act_path(model, REPLAY, version))] if record.endpoints else []
    if record.status == RETIRED:
        return [*acts, ("Bring it back", version_act_path(model, BRING_BACK, version))]
    return acts if has_role else [*acts, ("Retire it", version_act_path(model, RETIRE, version))]


def _loaded(record: VersionRecord, loading: VersionLoadingRecord | None, now: datetime) -> str:
    where = f"endpoints: {', '.join(record.endpoints)}" if record.endpoints else "no endpoint: no proxy can call it"
    if loading is None:
        return f"by people, and no agent; {where}"
    return f"{loaded_words(loading, now)}; {where}"


def _validated(record: VersionRecord, loading: VersionLoadingRecord | None) -> str:
    """Return what was checked before proxies could call it: agents give an endpoint only after both."""
    digest = (loading.pinned_digest if loading is not None else None) or record.artifact_digest
    if loading is not None and any(one.state == LoadingState.AVAILABLE for one in loading.servers):
        return f"its agents: the digest {digest or 'of its artifact'}, then its cases where the artifact has some"
    if loading is not None:
        return "nothing yet: no server has it"
    return "by no agent; understudy version check asks its model servers"


def _server(one: VersionAtServerRecord, now: datetime) -> ServerRow:
    state = one.state or "nothing has begun"
    tone = next((tone for known, tone in _TONES.items() if known == one.state), Tone.WAIT)
    problem = f"{one.error_code} {one.error} (attempt {one.attempt})" if one.error_code else ""
    return ServerRow(one.server, state, tone, one.why or "not wanted", ago(one.updated_at, now), problem)
