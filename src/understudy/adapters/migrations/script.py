"""Runs a revision's SQL script in the migration's own transaction."""

from pathlib import Path

from alembic import op

_FOLDER = Path(__file__).parent / "sql"


def run_script(name: str) -> None:
    """Run a file of ``sql/``; several statements at once go only through the driver's simple protocol."""
    script = (_FOLDER / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    adapted.run_async(lambda driver: driver.execute(script))
