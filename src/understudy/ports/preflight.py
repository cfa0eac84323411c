"""What a database says of itself, which tells whether this release can run on it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Setting(NamedTuple):
    """One value that sessions begin with."""

    whose: str
    """``this session``, ``the database``, or ``the login x``."""
    name: str
    value: str


class Numbering(NamedTuple):
    """A sequence that numbers the rows of a table."""

    name: str
    table: str
    last: int
    most: int
    highest: int
    """The highest number in the table; 0: it has no rows, or may not be read."""


class DatabaseSnapshot(NamedTuple):
    """What a database says of itself; names are those of its catalogue."""

    revision: str | None
    server_version: int
    """As ``server_version_num``: 180004."""
    encoding: str
    is_standby: bool
    collation_moved: str
    """The collation's versions, stored and now, when they differ; else empty."""
    extensions: Sequence[str]
    settings: Sequence[Setting]
    schema: str
    is_open_to_all: bool
    """Whether any login may make objects in the schema."""
    objects: frozenset[str]
    """``table x``, ``column x.y``, ``view x``, ``function x(…)``, ``trigger t on x``."""
    disabled_triggers: Sequence[str]
    invalid_indexes: Sequence[str]
    unproven_constraints: Sequence[str]
    owners: Mapping[str, Sequence[str]]
    """From each owner to what it owns of ours."""
    owner: str
    """Who owns ServingPolicy; empty where the table is missing."""
    months: Sequence[str]
    """``2026_11``, of which PredictionLog has partitions."""
    loose_months: Sequence[str]
    """Tables with the name of a partition that are none, and were not detached by the archiver."""
    this_month: str
    roles: frozenset[str]
    rights: frozenset[str] | None
    """``role privilege object[.column]``, as the catalogue has them; ``None``: the login may not know what is meant."""
    rights_meant: frozenset[str]
    sequences: Sequence[Numbering]
    unreadable: Sequence[str]
    """What the login may not read."""
    has_foreign_transactions: bool | None = False
    """Whether rows name transactions that this server has not come to: they are another server's. ``None``: the login
    may not read each of the tables, and those that it may read name none."""
