"""``LakeTable`` by pyiceberg: files of Parquet become a table of Apache Iceberg, whose catalogue is in Postgres.

Each commit writes its number into the table's properties, in the same change of metadata that adds its files. So the
table itself says which commits it has: a commit whose outcome is unknown is looked up there, and neither clocks nor
how long snapshots are kept matter. Two processes that commit at once cannot both succeed: the catalogue changes only
from the metadata that a commit was made of, and retries of the library, which would make it again of newer metadata
without looking, are off.
"""

import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.name_mapping import update_mapping
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.transforms import HourTransform, IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)
from sqlalchemy import URL

from understudy.core.prediction_log.archive_plan import ROWS_ROOT
from understudy.core.prediction_log.lake import LAKE_COLUMNS, expired_before
from understudy.errors import LakeUnavailable
from understudy.ports.prediction_log.lake import LakeCommit

CATALOGUE = "understudy"
NAMESPACE = "understudy"
NAME = (NAMESPACE, "predictionlog")
LAST_COMMIT = "understudy.last-commit"
_AGE = "history.expire.max-snapshot-age-ms"
_TYPES = {
    "text": StringType, "time": TimestamptzType, "long": LongType, "int": IntegerType, "double": DoubleType,
    "bool": BooleanType,
}  # fmt: skip
SCHEMA = Schema(*(
    NestedField(number, name, _TYPES[kind](), required=False) for number, (name, kind) in enumerate(LAKE_COLUMNS, 1)
))  # fmt: skip
_SPEC = PartitionSpec(
    PartitionField(SCHEMA.find_field("predicted_at").field_id, 1_000, HourTransform(), "predicted_at_hour"),
    PartitionField(SCHEMA.find_field("model").field_id, 1_001, IdentityTransform(), "model"),
)
_WANTED = {"commit.retry.num-retries": "0"}
_AT_FIRST = _WANTED | {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    _AGE: str(86_400_000),
    # Bounds of values stand in the table's metadata, which outlives rows: of what names a person, counts alone.
    "write.metadata.metrics.column.entity_id": "counts",
    "write.metadata.metrics.column.prediction": "counts",
    "write.metadata.metrics.column.slices": "counts",
    # A partition's value is read from the bounds of a file.
    "write.metadata.metrics.column.model": "full",
}


class IcebergTable:
    """Implements ``ports.LakeTable``.

    Args:
        database_url: Where the catalogue is; the role ``understudy_monitor`` may change it.
        location: Of the lake: ``s3://bucket/prefix`` or ``file:///folder``.
        endpoint: Of S3, when it is not Amazon's.
        timeout_seconds: Longest time of one statement, and of one request to S3.
    """

    def __init__(self, database_url: str, location: str, *, endpoint: str | None, timeout_seconds: float) -> None:
        self.location = location
        self._properties = catalogue_properties(database_url, location, endpoint, timeout_seconds)

    def last_commit(self) -> int:
        with self.told():
            return _number_of(self.load())

    def commit(self, commit: LakeCommit) -> bool:
        with self.told():
            table = self._ready(self.load())
            if _number_of(table) >= commit.number:
                return False
            with table.transaction() as change:
                change.set_properties({LAST_COMMIT: str(commit.number)})
                change.add_files(
                    [f"{self.location}/{key}" for key in commit.keys],
                    snapshot_properties={"understudy.commit": str(commit.number)},
                    check_duplicate_files=False,
                )
            self._expire(table)
            return True

    def load(self) -> Table:
        """Return the table as it is now; a new installation's is made."""
        try:
            return self._catalogue.load_table(NAME)
        except NoSuchTableError:
            self._catalogue.create_namespace_if_not_exists(NAMESPACE)
        return self._catalogue.create_table_if_not_exists(
            NAME, SCHEMA, location=f"{self.location}/{ROWS_ROOT}", partition_spec=_SPEC, properties=_AT_FIRST
        )

    def close(self) -> None:
        """Close the connections."""
        if "_catalogue" in vars(self):
            self._catalogue.close()

    @cached_property
    def _catalogue(self) -> SqlCatalog:
        return SqlCatalog(CATALOGUE, **self._properties)

    def _ready(self, table: Table) -> Table:
        """Add the columns that this release has and the table lacks, and turn retries off if they were turned on."""
        known = set(table.schema().column_names)
        self._check_ids(table.schema(), known)
        missing = [field for field in SCHEMA.fields if field.name not in known]
        changed = {name: value for name, value in _WANTED.items() if table.properties.get(name) != value}
        if missing:
            self._add_columns(table, missing)
        if changed:
            with (self.load() if missing else table).transaction() as change:
                change.set_properties(changed)
        return self.load() if missing or changed else table

    def _add_columns(self, table: Table, missing: Sequence[NestedField]) -> None:
        """Add columns under the ids that files have: the library's own way gives each the next free one."""
        schemas, current = table.metadata.schemas, table.schema()
        added = Schema(*current.fields, *missing, schema_id=1 + max(one.schema_id for one in schemas))
        # Without a number it is the one that was added last.
        updates: tuple[TableUpdate, ...] = (AddSchemaUpdate(schema=added), SetCurrentSchemaUpdate())
        mapping = table.name_mapping()
        if mapping is not None:
            text = update_mapping(mapping, {}, {-1: list(missing)}).model_dump_json()
            updates += (SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: text}),)
        unchanged = AssertCurrentSchemaId.model_validate({"current-schema-id": current.schema_id})
        table.catalog.commit_table(table, (unchanged,), updates)

    def _check_ids(self, schema: Schema, known: Collection[str]) -> None:
        """Refuse files of which the table would take a column for another one, or for none: it goes by the ids."""
        for field in SCHEMA.fields:
            found = schema.find_column_name(field.field_id)
            if found != (field.name if field.name in known else None):
                raise LakeUnavailable(
                    f"{self.location}: the field id {field.field_id} is {field.name} in files, and"
                    f" {found or 'no column'} in the table",
                    hint="Another engine changed the columns: have it give the one with this id that name, and take"
                    " the name from any other.",
                )

    def _expire(self, table: Table) -> None:
        """Forget snapshots that are old; their files of metadata stay in the store."""
        age = int(table.properties.get(_AGE, _AT_FIRST[_AGE]))
        moment = expired_before([one.timestamp_ms for one in table.metadata.snapshots], time.time() * 1_000 - age)
        if moment is not None:
            table.maintenance.expire_snapshots().older_than(datetime.fromtimestamp(moment / 1_000, UTC)).commit()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Raise what the libraries raise as ``LakeUnavailable``."""
        try:
            yield
        except LakeUnavailable:
            raise
        except CommitFailedException as problem:
            raise LakeUnavailable(
                f"{self.location}: another process changed the table: {_first_line(problem)}"
            ) from None
        except Exception as problem:
            # Object stores, Arrow, SQLAlchemy and pyiceberg have no common error; none of theirs is a defect of ours.
            raise LakeUnavailable(f"{self.location}: {type(problem).__name__}: {_first_line(problem)}") from problem


def catalogue_properties(
    database_url: str, location: str, endpoint: str | None, timeout_seconds: float
) -> dict[str, str]:
    """Return what the library opens the catalogue and the object store with.

    Raises:
        LakeUnavailable: As :func:`driver_url`.
    """
    properties = {
        "uri": driver_url(database_url, timeout_seconds),
        "warehouse": location,
        "init_catalog_tables": "false",
        "pool_pre_ping": "true",
        "s3.connect-timeout": f"{timeout_seconds:.1f}",
        "s3.request-timeout": f"{timeout_seconds:.1f}",
    }
    return properties if endpoint is None else properties | {"s3.endpoint": endpoint}


def driver_url(database_url: str, timeout_seconds: float) -> str:
    """Return the URL of the same database for the synchronous driver; several hosts and sockets are understood.

    What libpq does not know as a parameter is a setting of the session, as it is for the asynchronous driver.

    Raises:
        LakeUnavailable: libpq cannot read the URL. Nothing of it is repeated, since it has a password.
    """
    address, _, query = re.sub(r"^[a-z]+(\+[a-z]+)?://", "postgresql://", database_url).partition("?")
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    known = {default.keyword.decode() for default in Conninfo.get_defaults()}
    settings = {"statement_timeout": f"{timeout_seconds * 1_000:.0f}"} | {
        name: parameters.pop(name) for name in list(parameters) if name not in known
    }
    options = [parameters.pop("options", ""), *(f"-c {name}={_escaped(value)}" for name, value in settings.items())]
    try:
        given = conninfo_to_dict(f"{address}?{urlencode(parameters, quote_via=quote)}")
    except ProgrammingError:
        raise LakeUnavailable("the database's URL is not one that the synchronous driver reads") from None
    wanted: dict[str, Any] = {
        "application_name": "understudy-lake",
        "connect_timeout": max(2, round(timeout_seconds)),
        "options": " ".join(filter(None, options)),
    } | {name: value for name, value in given.items() if value is not None}
    password = wanted.pop("password", None)
    url = URL.create(
        "postgresql+psycopg",
        username=wanted.pop("user", None),
        password=None if password is None else str(password),
        database=wanted.pop("dbname", None),
        query={name: str(value) for name, value in wanted.items()},
    )
    return url.render_as_string(hide_password=False)


def _escaped(value: str) -> str:
    return re.sub(r"([\\ ])", r"\\\1", value)


def _number_of(table: Table) -> int:
    return int(table.properties.get(LAST_COMMIT, "0"))


def _first_line(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [""])[0][:300]
