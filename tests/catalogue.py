"""What a database's catalogue says of our schema, as text that can be compared: the same for the same schema, however
it came about; and what a migration takes from the release before it, read from two such texts."""

import re
from collections.abc import Mapping
from pathlib import Path

import asyncpg

Catalogue = Mapping[str, str]
"""From an object ("column servingpolicy.arms") to all that is to be said of it."""

_OBJECTS = (Path(__file__).parent / "catalogue.sql").read_text()
LARGE = ("predictionlog", "predictionmetric", "predictionwindow", "outcomeevent", "policyaudit", "rolloutevent")
"""Tables that may be so large that reading them once holds writers up for long."""


async def catalogue_of(connection: asyncpg.Connection) -> Catalogue:
    """Read the schema ``public`` of a database."""
    return {row["object"]: row["said"] or "" for row in await connection.fetch(_OBJECTS)}


def differences(one: Catalogue, other: Catalogue) -> list[str]:
    """Return where two schemas differ, in words for people."""
    return [
        f"{name}: {one.get(name, 'is not there')}  →  {other.get(name, 'is not there')}"
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    ]


def narrowings(before: Catalogue, after: Catalogue) -> list[str]:
    """Return what a migration takes from the release before: what that one uses and does not find, or may do no more.

    A trigger or a constraint on what was there may refuse what the older release writes, and an index on a large table
    holds its writers up. Bodies of functions are not read: only running the older release's tests tells what they do.
    """
    gone = [
        f"{name} is gone" for name in before if name not in after and not name.startswith(("constraint ", "trigger "))
    ]
    return sorted([*gone, *_changed(before, after), *_added(before, after)])


def _changed(before: Catalogue, after: Catalogue) -> list[str]:
    found = []
    for name in before.keys() & after.keys():
        kind = name.split()[0]
        if kind == "column":
            found += _narrower_column(name, before[name], after[name])
        elif kind == "rights":
            found += [
                f"{name}: {one} is taken" for one in before[name].split(", ") if one not in after[name].split(", ")
            ]
        elif kind == "function" and _signature(before[name]) != _signature(after[name]):
            found.append(f"{name} returns something else")
        elif kind in ("constraint", "sequence", "index") and before[name] != after[name]:
            found.append(f"{name} is another")
        elif kind == "trigger" and _events(before[name]) != _events(after[name]):
            found.append(f"{name} fires at other times")
    return found


def _narrower_column(name: str, before: str, after: str) -> list[str]:
    (was_type, was_not_null, was_default), (type_, not_null, default) = before.split("|")[:3], after.split("|")[:3]
    found = []
    if was_type != type_:
        found.append(f"{name} is of another type")
    if not_null and not was_not_null:
        found.append(f"{name} may not be NULL any more")
    if was_default and not default:
        found.append(f"{name} has no default any more")
    return found


def _added(before: Catalogue, after: Catalogue) -> list[str]:
    found = []
    for name in after.keys() - before.keys():
        kind, _, rest = name.partition(" ")
        table = rest.rpartition(" on ")[2] if " on " in rest else rest.partition(".")[0]
        if f"relation {table}" not in before:
            continue  # what belongs to a new table is in nobody's way
        if kind == "column" and "|NOT NULL||" in after[name]:
            found.append(f"{name} demands a value")
        elif kind == "trigger":
            found.append(f"{name} may refuse what was done before")
        elif kind == "constraint" and after[name].startswith("NOT NULL"):
            continue  # the column says so; only since Postgres 18 there is such a constraint
        elif kind == "constraint" and not _is_of_new_columns(before, table, after[name]):
            found.append(f"{name} may refuse what was written before")
        elif kind == "index" and table in LARGE:
            found.append(f"{name} is built while writers wait")
        elif kind == "index" and "CREATE UNIQUE" in after[name]:
            found.append(f"{name} may refuse what was written before")
    return found


def _is_of_new_columns(before: Catalogue, table: str, definition: str) -> bool:
    """Whether a constraint names no column that was there: what the older release writes has none of the new ones."""
    old = [name.rpartition(".")[2] for name in before if name.startswith(f"column {table}.")]
    return not any(re.search(rf"\b{column}\b", definition) for column in old)


def _signature(definition: str) -> str:
    return definition.partition("\nAS ")[0].partition("RETURNS")[2].partition("\n")[0]


def _events(definition: str) -> str:
    return definition.partition(" ON ")[0]
