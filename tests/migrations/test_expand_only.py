"""Each migration only adds to what the release before uses, or declares what it takes (``NARROWS``)."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import asyncpg
import pytest
from catalogue import Catalogue, catalogue_of, differences, narrowings

from understudy.adapters import migrations
from understudy.adapters.migrations.losses import declared_narrowings

REVISIONS = migrations.revisions()

BAD = {
    "DROP TABLE Experiment": "relation experiment is gone",
    "ALTER TABLE Experiment RENAME TO Trial": "relation experiment is gone",
    "ALTER TABLE Rollout DROP COLUMN salt_before": "column rollout.salt_before is gone",
    "ALTER TABLE Rollout RENAME COLUMN salt TO pepper": "column rollout.salt is gone",
    "ALTER TABLE SpoolOffset ALTER segment TYPE INT": "column spooloffset.segment is of another type",
    "ALTER TABLE Rollout ALTER reason SET NOT NULL": "column rollout.reason may not be NULL any more",
    "ALTER TABLE Rollout ALTER revision DROP DEFAULT": "column rollout.revision has no default any more",
    "ALTER TABLE Rollout ADD COLUMN pace INT NOT NULL": "column rollout.pace demands a value",
    "ALTER TABLE Rollout ADD CHECK (step < 50)": "constraint rollout_step_check1 on rollout may refuse",
    "ALTER TABLE ModelVersion ADD UNIQUE (artifact_path)": "constraint modelversion_artifact_path_key",
    "CREATE UNIQUE INDEX one ON ApiKey (note)": "index one on apikey may refuse what was written before",
    "CREATE INDEX slow ON PredictionLog (entity_id)": "index slow on predictionlog is built while writers wait",
    "DROP INDEX predictionmetric_computed_at": "index predictionmetric_computed_at on predictionmetric is gone",
    "DROP VIEW understudy_split": "relation understudy_split is gone",
    "DROP FUNCTION understudy_rollback(TEXT, TEXT)": "function understudy_rollback(text,text) is gone",
    "DROP FUNCTION understudy_redact_inputs(TEXT); CREATE FUNCTION understudy_redact_inputs(entity TEXT) RETURNS INT "
    "LANGUAGE sql AS 'SELECT 1'": "function understudy_redact_inputs(text) returns something else",
    "CREATE TRIGGER fussy BEFORE INSERT ON OutcomeEvent FOR EACH ROW EXECUTE FUNCTION understudy_guard_age()": (
        "trigger fussy on outcomeevent may refuse"
    ),
    "CREATE OR REPLACE TRIGGER spooloffset_guard BEFORE INSERT OR UPDATE OR DELETE ON SpoolOffset FOR EACH ROW "
    "EXECUTE FUNCTION understudy_guard_offset()": "trigger spooloffset_guard on spooloffset fires at other times",
    "REVOKE SELECT ON ServingPolicy FROM understudy_proxy": ("rights servingpolicy: understudy_proxy SELECT is taken"),
    "ALTER TABLE Rollout ALTER salt TYPE VARCHAR(20)": "column rollout.salt is of another type",
    "ALTER SEQUENCE rollout_id_seq AS INT": "sequence rollout_id_seq is another",
}
GOOD = (
    "CREATE TABLE Ticket (id BIGSERIAL PRIMARY KEY, rollout_id BIGINT NOT NULL UNIQUE, CHECK (rollout_id > 0))",
    "ALTER TABLE Rollout ADD COLUMN pace INT",
    "ALTER TABLE Rollout ADD COLUMN pace INT NOT NULL DEFAULT 3 CHECK (pace > 0)",
    "ALTER TABLE Rollout ALTER plan DROP NOT NULL",
    "CREATE INDEX of_salt ON Rollout (salt)",
    (
        "CREATE OR REPLACE VIEW understudy_arms AS SELECT *, last - first + 1 AS share FROM"
        " (SELECT ''::varchar(255) AS model, ''::varchar(100) AS version,"
        " 1::bigint AS version_id, 1 AS first, 2 AS last) AS arm"
    ),
    "CREATE FUNCTION understudy_more() RETURNS INT LANGUAGE sql AS 'SELECT 1'",
    "GRANT SELECT ON ApiKey TO understudy_reader",
)


@pytest.mark.parametrize("revision", REVISIONS[1:])
def test_a_migration_takes_from_the_release_before_it_what_it_declares_and_no_more(
    steps: Mapping[str, Catalogue], revision
):
    before = steps[REVISIONS[REVISIONS.index(revision) - 1]]

    assert narrowings(before, steps[revision]) == sorted(declared_narrowings(revision))


@asynccontextmanager
async def tried(database: asyncpg.Connection, statement: str) -> AsyncIterator[None]:
    """Run a statement as a migration does, and take it back."""
    attempt = database.transaction()
    await attempt.start()
    try:
        await database.execute(statement)
        yield
    finally:
        await attempt.rollback()


async def test_a_migration_that_takes_something_is_found_out(database):
    before = await catalogue_of(database)

    for statement, said in BAD.items():
        async with tried(database, statement):
            found = narrowings(before, await catalogue_of(database))
        assert any(one.startswith(said) for one in found), (statement, found)


async def test_a_migration_that_only_adds_is_in_nobodys_way(database):
    before = await catalogue_of(database)

    for statement in GOOD:
        async with tried(database, statement):
            after = await catalogue_of(database)
        assert differences(before, after) != [], statement
        assert narrowings(before, after) == [], statement
    assert differences(before, await catalogue_of(database)) == []
