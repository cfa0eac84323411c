"""Alembic's script directory: the revisions that this code has, the newest first, and Alembic's configuration."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from alembic.config import Config
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection


@cache
def script_directory() -> ScriptDirectory:
    """Return Alembic's view of the revisions in ``versions/``, read once: each reading imports all of them anew."""
    return ScriptDirectory.from_config(alembic_config(None))


def alembic_config(connection: Connection | None) -> Config:
    """Return what an Alembic command needs; ``env`` runs it on the connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


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
