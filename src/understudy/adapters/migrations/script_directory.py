"""Alembic's script directory: the revisions that this code has, the newest first, and how one of them is run."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.runtime.migration import MigrationStep
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection


@cache
def script_directory() -> ScriptDirectory:
    """Return Alembic's view of the revisions in ``versions/``, read once: each reading imports all of them anew."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return ScriptDirectory.from_config(config)


def run_upgrade(connection: Connection, script: Script) -> None:
    """Run the way up of one revision, the next one, in the connection's transaction."""
    _run(connection, MigrationStep.upgrade_from_script(script_directory().revision_map, script))


def run_downgrade(connection: Connection, script: Script) -> None:
    """Run the way down of the revision that the schema is at, in the connection's transaction."""
    _run(connection, MigrationStep.downgrade_from_script(script_directory().revision_map, script))


def _run(connection: Connection, step: MigrationStep) -> None:
    # What alembic's own command does, which reads all revisions anew for each one that it runs.
    context = MigrationContext.configure(connection, opts={"fn": lambda _heads, _context: [step]})
    with Operations.context(context):
        context.run_migrations()


def revisions_between(lower: str | None, upper: str | None) -> Sequence[Script]:
    """Return the revisions above one and up to another, the newest first.

    Raises:
        ValueError: There is no such revision.
    """
    every = list(script_directory().walk_revisions())
    places = {"head": 0, **{script.revision: place for place, script in enumerate(every)}, "base": len(every)}
    for named in (lower, upper):
        if named is not None and named not in places:
            raise ValueError(f"there is no revision {named}; there are: {', '.join(sorted(places))}")
    return every[places[upper or "base"] : places[lower or "base"]]
