"""The database's schema as commands change and examine it."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.adapters import migrations
from understudy.adapters.migrations.bounds import PATIENCE
from understudy.adapters.migrations.bounds import Patience as Patience
from understudy.adapters.migrations.inventory import NEEDED_OBJECTS
from understudy.adapters.migrations.preflight import examine_database
from understudy.adapters.postgres.prediction_log.entity_index import EntityIndex as EntityIndex
from understudy.adapters.postgres.prediction_log.entity_index import (
    drop_entity_index,
    make_entity_index,
    read_entity_index,
)
from understudy.adapters.postgres.prediction_log.partitions import MAX_MONTHS_AHEAD as MAX_MONTHS_AHEAD
from understudy.adapters.postgres.prediction_log.partitions import ensure_partitions
from understudy.registry.database_preflight import Needs, judge_database
from understudy.registry.findings.finding import Finding
from understudy.settings import Settings

LOCK_SECONDS, STATEMENT_SECONDS = PATIENCE
known_revisions, upgrade = migrations.revisions, migrations.upgrade


class Upgraded(NamedTuple):
    """The revision before and after an upgrade (``None``: no schema), and which of our roles lack rights after it."""

    before: str | None
    after: str
    roles_without_rights: Sequence[str]
    notes: Sequence[str]
    """What operators notice of the revisions in between."""


class Downgraded(NamedTuple):
    """The revision before and after a downgrade (``None``: no schema), and what it deletes."""

    before: str | None
    after: str | None
    losses: Sequence[str]


class Examined(NamedTuple):
    """The schema's revision, the one that this release needs, and whether it can run on the database."""

    revision: str | None
    needed_revision: str
    roles_without_rights: Sequence[str]
    findings: Sequence[Finding]


async def upgrade_schema(database_url: str, patience: Patience = PATIENCE, *, dry_run: bool = False) -> Upgraded:
    """Bring the schema to this release's revision; raises as :func:`understudy.adapters.migrations.upgrade`."""
    before = await migrations.current_revision(database_url)
    if dry_run:
        return Upgraded(before, migrations.head(), (), migrations.notes(before))
    after = await migrations.upgrade(database_url, patience=patience)
    missing = await migrations.roles_without_rights(database_url)
    return Upgraded(before, after, missing, migrations.notes(before))


async def downgrade_schema(
    database_url: str, revision: str, patience: Patience, *, lose_data: bool, dry_run: bool
) -> Downgraded:
    """Take migrations back down to a revision; raises as :func:`understudy.adapters.migrations.downgrade`."""
    before = await migrations.current_revision(database_url)
    losses = await migrations.losses_of_downgrade(database_url, revision)
    if dry_run:
        return Downgraded(before, before, losses)
    await migrations.downgrade(database_url, revision, lose_data=lose_data, patience=patience)
    return Downgraded(before, await migrations.current_revision(database_url), losses)


async def examine_schema(settings: Settings) -> Examined:
    """Run the preflight: compare the database with what this release needs; changes nothing.

    Raises:
        RegistryUnavailable: Postgres does not answer.
    """
    database_url = settings.database_url.get_secret_value()
    revision = await migrations.current_revision(database_url)
    without_rights = await migrations.roles_without_rights(database_url) if revision else ()
    snapshot = await examine_database(
        database_url,
        revision=revision,
        roles=migrations.ROLES,
        timeout_seconds=settings.database_timeout_seconds,
    )
    needs = Needs(migrations.head(), migrations.revisions(), NEEDED_OBJECTS, migrations.ROLES)
    return Examined(revision, migrations.head(), without_rights, judge_database(snapshot, needs))


async def make_partitions(settings: Settings, months_ahead: int, *, dry_run: bool) -> int:
    """Make the monthly partitions of the log that are missing, and return how many those are."""
    return await ensure_partitions(
        settings.database_url.get_secret_value(),
        months_ahead,
        timeout_seconds=settings.database_timeout_seconds,
        dry_run=dry_run,
    )


async def index_entities(settings: Settings, *, drop: bool, dry_run: bool) -> tuple[EntityIndex, EntityIndex]:
    """Give the log an index by entity, or take it away; return which months had it before, and which have it now."""
    database_url, seconds = settings.database_url.get_secret_value(), settings.database_timeout_seconds
    before = await read_entity_index(database_url, timeout_seconds=seconds)
    if dry_run:
        return before, before
    if drop:
        await drop_entity_index(database_url, timeout_seconds=seconds)
        return before, await read_entity_index(database_url, timeout_seconds=seconds)
    return before, await make_entity_index(database_url, timeout_seconds=seconds)
