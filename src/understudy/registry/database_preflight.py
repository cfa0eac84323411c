"""The preflight of a database: whether this release can run on it, and what to do where it cannot."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from understudy.core.first_names import first_names
from understudy.ports.preflight import DatabaseSnapshot, Numbering, Setting
from understudy.registry.findings.finding import Finding, State
from understudy.registry.findings.log import MONTHS_AHEAD
from understudy.registry.findings.servers import ROLES_ADVICE

MAX_NAMED = 6
"""Things of one kind that a finding names; of the others it gives the number."""
OLDEST_SERVER, NEWEST_SERVER = 15, 18
"""Major versions of Postgres that the tests run on."""
HEADROOM_WARNING_RATIO, HEADROOM_PROBLEM_RATIO = 0.5, 0.9
"""Of a sequence's values, how many are used up."""
MIN_STATEMENT_SECONDS = 2.0
"""A shipper gives one batch of the log this long; Postgres should not end it before."""
MIN_LOCK_SECONDS = 0.5
MAX_MONTHS_LOOKED_AT = 24
UPGRADE = "understudy db upgrade"
_UNIT_SECONDS = {"us": 1e-6, "": 1e-3, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}


class Needs(NamedTuple):
    """What this release needs of a database."""

    revision: str
    known_revisions: Sequence[str]
    objects: frozenset[str]
    roles: Sequence[str]


def judge_database(snapshot: DatabaseSnapshot, needs: Needs) -> list[Finding]:
    """Return a finding for each subject; on a schema of another release, only what does not depend on it."""
    found = [
        _judge_schema(snapshot.revision, needs),
        _judge_server(snapshot),
        _judge_extensions(snapshot.extensions),
        _judge_settings(snapshot),
    ]
    if snapshot.revision == needs.revision:
        found += [
            _judge_objects(snapshot.objects, needs.objects),
            _judge_triggers(snapshot.disabled_triggers),
            _judge_indexes(snapshot.invalid_indexes),
            _judge_constraints(snapshot.unproven_constraints),
            _judge_owners(snapshot),
            _judge_months(snapshot),
            _judge_roles(snapshot, needs.roles),
            _judge_sequences(snapshot.sequences),
        ]
        if snapshot.has_foreign_transactions is not None:
            found.append(_judge_transactions(has_foreign=snapshot.has_foreign_transactions))
    if snapshot.unreadable:
        advice = "As the owner of the tables: understudy db check."
        found.append(Finding("not looked at", State.WARNING, _named(snapshot.unreadable), advice))
    return found


def _judge_schema(revision: str | None, needs: Needs) -> Finding:
    if revision == needs.revision:
        return Finding("schema", State.GOOD, f"at {revision}, as this release needs it")
    what = f"at {revision or 'nothing'}, and this release needs {needs.revision}"
    if revision is not None and revision not in needs.known_revisions:
        advice = "A newer release made it. The release before that one runs on it; this one was not tried."
        return Finding("schema", State.PROBLEM, what, advice)
    return Finding("schema", State.PROBLEM, what, f"{UPGRADE} brings it up.")


def _judge_server(snapshot: DatabaseSnapshot) -> Finding:
    major = snapshot.server_version // 10_000
    what = f"Postgres {major}, {snapshot.encoding}"
    if snapshot.is_standby:
        advice = "Name the primary in DATABASE_URL (target_session_attrs=read-write finds it)."
        return Finding("server", State.PROBLEM, f"{what}, a standby that nothing can be written to", advice)
    if snapshot.encoding != "UTF8":
        advice = "Ids and inputs are Unicode: make a database WITH ENCODING 'UTF8' TEMPLATE template0, and move."
        return Finding("server", State.PROBLEM, what, advice)
    if major < OLDEST_SERVER:
        return Finding("server", State.PROBLEM, what, f"Understudy needs {OLDEST_SERVER} or newer.")
    if major > NEWEST_SERVER:
        return Finding("server", State.WARNING, what, f"Tried were {OLDEST_SERVER} to {NEWEST_SERVER}.")
    if snapshot.collation_moved:
        advice = "REINDEX DATABASE, then ALTER DATABASE … REFRESH COLLATION VERSION: text indexes may miss rows."
        return Finding("server", State.WARNING, f"{what}, its collation has moved: {snapshot.collation_moved}", advice)
    return Finding("server", State.GOOD, what)


def _judge_extensions(extensions: Sequence[str]) -> Finding:
    if "plpgsql" not in extensions:
        advice = "CREATE EXTENSION plpgsql; the guards are written in it."
        return Finding("extensions", State.PROBLEM, "plpgsql is not there", advice)
    return Finding("extensions", State.GOOD, "plpgsql; no other is needed")


def _judge_settings(snapshot: DatabaseSnapshot) -> Finding:
    problems = [problem for one in snapshot.settings if (problem := _problem_of(one, snapshot.schema, snapshot.owner))]
    if problems:
        worst = max((state for state, _, _ in problems), key=list(State).index)
        return Finding(
            "settings",
            worst,
            "; ".join(what for _, what, _ in problems),
            " ".join(dict.fromkeys(advice for _, _, advice in problems)),
        )
    return Finding("settings", State.GOOD, "none is in the way")


def _problem_of(setting: Setting, schema: str, owner: str) -> tuple[State, str, str] | None:
    name, value = setting.name.lower(), setting.value.strip().strip("'\"").lower()
    reset = f"ALTER DATABASE or ALTER ROLE … RESET {setting.name}."
    harm: tuple[State, str, str] | None = None
    if name in _ONLY and value not in _ONLY[name].good:
        harm = (_ONLY[name].state, _ONLY[name].harm, _ONLY[name].advice or reset)
    elif name == "search_path" and schema not in _schemas_of(setting.value, owner):
        harm = (State.PROBLEM, f"our tables are in {schema}", reset)
    elif name in _MIN_SECONDS and 0 < _seconds(value) < _MIN_SECONDS[name]:
        harm = (State.WARNING, f"a proxy's write may take {_MIN_SECONDS[name]:g} s", reset)
    if harm is None:
        return None
    state, what, advice = harm
    return state, f"{setting.name} of {setting.whose} is {setting.value}: {what}", advice


def _schemas_of(search_path: str, owner: str) -> list[str]:
    """Return the schemas that a path leads through, as our own login meets them."""
    named = [part.strip().strip("'\"") for part in search_path.split(",")]
    return [owner if name == "$user" else name for name in named]


class _Only(NamedTuple):
    """The values of a setting that do no harm, and the harm of every other."""

    good: Sequence[str]
    state: State
    harm: str
    advice: str = ""


_ONLY = {
    "session_replication_role": _Only(("origin", "local"), State.PROBLEM, "no guard fires"),
    "default_transaction_read_only": _Only(("off", "false", "no", "0"), State.PROBLEM, "nothing can be written"),
    "default_transaction_isolation": _Only(
        ("read committed", "read uncommitted"), State.PROBLEM, "writers refuse each other"
    ),
    "synchronous_commit": _Only(
        ("on", "true", "yes", "1", "local", "remote_write", "remote_apply"),
        State.WARNING,
        "a crash of Postgres loses rows that were said to be written",
    ),
    "timezone": _Only(
        ("utc", "etc/utc", "gmt", "etc/gmt", "universal", "zulu", "etc/universal", "etc/zulu"),
        State.WARNING,
        "date_trunc in a session cuts other days than Understudy, which cuts them in UTC",
        "ALTER DATABASE … SET timezone = 'UTC'.",
    ),
}
_MIN_SECONDS = {
    "statement_timeout": MIN_STATEMENT_SECONDS,
    "lock_timeout": MIN_LOCK_SECONDS,
    "transaction_timeout": MIN_STATEMENT_SECONDS,
}


def _seconds(value: str) -> float:
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", value)
    return 0.0 if parts is None else float(parts[1]) * _UNIT_SECONDS.get(parts[2], 1e-3)


def _judge_objects(there: frozenset[str], needed: frozenset[str]) -> Finding:
    missing = sorted(needed - there)
    if missing:
        # Without its table, that its columns are missing too says nothing more.
        tables = {one.partition(" ")[2] for one in missing if one.startswith("table ")}
        short = [one for one in missing if not any(_is_of(one, table) for table in tables)]
        advice = "It was dropped or renamed: restore it from a backup, or from the migrations' SQL."
        return Finding("objects", State.PROBLEM, f"missing: {_named(short)}", advice)
    return Finding("objects", State.GOOD, f"all {len(needed)} tables, columns, views, functions and triggers are there")


def _is_of(one: str, table: str) -> bool:
    return one.startswith(f"column {table}.") or one.endswith(f" on {table}")


def _judge_triggers(disabled: Sequence[str]) -> Finding:
    if disabled:
        advice = "ALTER TABLE … ENABLE TRIGGER …, and look at what was written meanwhile: nothing judged or told it."
        return Finding("guards", State.PROBLEM, f"switched off: {_named(disabled)}", advice)
    return Finding("guards", State.GOOD, "every trigger fires")


def _judge_indexes(invalid: Sequence[str]) -> Finding:
    if invalid:
        advice = "REINDEX INDEX CONCURRENTLY … for each; of PredictionLog's own, the partition that lacks it."
        return Finding("indexes", State.PROBLEM, f"invalid, so no query uses them: {_named(invalid)}", advice)
    return Finding("indexes", State.GOOD, "all are valid")


def _judge_constraints(unproven: Sequence[str]) -> Finding:
    if unproven:
        advice = "ALTER TABLE … VALIDATE CONSTRAINT …"
        return Finding("constraints", State.WARNING, f"not proven for older rows: {_named(unproven)}", advice)
    return Finding("constraints", State.GOOD, "all hold for every row")


def _judge_owners(snapshot: DatabaseSnapshot) -> Finding:
    strangers = [
        f"{name} ({owner})" for owner, names in snapshot.owners.items() if owner != snapshot.owner for name in names
    ]
    if strangers:
        advice = f"REASSIGN OWNED, or ALTER … OWNER TO {snapshot.owner}: guards act with their owner's rights."
        return Finding("ownership", State.PROBLEM, f"not of {snapshot.owner}: {_named(sorted(strangers))}", advice)
    if snapshot.is_open_to_all:
        advice = f"REVOKE CREATE ON SCHEMA {snapshot.schema} FROM PUBLIC"
        return Finding("ownership", State.WARNING, f"any login may make objects in schema {snapshot.schema}", advice)
    return Finding("ownership", State.GOOD, f"all is of {snapshot.owner}")


def _judge_months(snapshot: DatabaseSnapshot) -> Finding:
    make = "understudy db partitions makes them."
    wanted = [_month_after(snapshot.this_month, ahead) for ahead in range(MONTHS_AHEAD + 1)]
    last = max([snapshot.this_month, *snapshot.months])
    later = [_month_after(snapshot.this_month, ahead) for ahead in range(MONTHS_AHEAD + 1, MAX_MONTHS_LOOKED_AT)]
    wanted += [month for month in later if month < last]
    missing = sorted(set(wanted) - set(snapshot.months))
    if snapshot.loose_months:
        advice = "ALTER TABLE PredictionLog ATTACH PARTITION … FOR VALUES FROM … TO …, or rename it out of the way."
        what = f"have the name of a partition and are none: {_named(snapshot.loose_months)}"
        return Finding("partitions", State.PROBLEM, what, advice)
    if snapshot.this_month in missing:
        return Finding("partitions", State.PROBLEM, f"PredictionLog has none for {_named(missing)}: rows wait", make)
    if missing:
        return Finding("partitions", State.WARNING, f"PredictionLog has none for {_named(missing)}", make)
    return Finding("partitions", State.GOOD, f"PredictionLog to the end of {last.replace('_', '-')}")


def _judge_roles(snapshot: DatabaseSnapshot, roles: Sequence[str]) -> Finding:
    missing = [role for role in roles if role not in snapshot.roles]
    if missing:
        return Finding("roles", State.WARNING, f"missing: {_named(missing)}", ROLES_ADVICE)
    if snapshot.rights is None:
        return Finding("roles", State.GOOD, "all are there")
    lacking = sorted(snapshot.rights_meant - snapshot.rights)
    if lacking:
        return Finding("roles", State.PROBLEM, f"lack: {_named(lacking)}", f"{UPGRADE} grants them again.")
    beyond = sorted(snapshot.rights - snapshot.rights_meant)
    if beyond:
        what = f"have more than they need: {_named(beyond)}"
        return Finding("roles", State.WARNING, what, f"{UPGRADE} takes it back.")
    return Finding(
        "roles", State.GOOD, f"{len(roles)} roles with their {len(snapshot.rights_meant)} rights, and no other"
    )


def _judge_sequences(sequences: Sequence[Numbering]) -> Finding:
    behind = [one for one in sequences if one.highest > one.last]
    if behind:
        names = [f"{one.name} is at {one.last}, {one.table} at {one.highest}" for one in behind]
        one = behind[0]
        # Never to a smaller number than it has come to by then.
        advice = (
            f"SELECT setval('{one.name}', greatest(nextval('{one.name}'), {one.highest})), and so for each: new rows "
            "collide with old ones."
        )
        return Finding("sequences", State.PROBLEM, _named(names), advice)
    fullest = max(sequences, key=lambda one: one.last / one.most, default=None)
    if fullest is None:
        return Finding("sequences", State.GOOD, "there are none")
    used = fullest.last / fullest.most
    what = f"{fullest.name} has used {used:.0%} of its numbers"
    if used >= HEADROOM_WARNING_RATIO:
        state = State.PROBLEM if used >= HEADROOM_PROBLEM_RATIO else State.WARNING
        advice = f"ALTER SEQUENCE {fullest.name} AS bigint NO MAXVALUE, and its column as bigint."
        return Finding("sequences", state, what, advice)
    return Finding("sequences", State.GOOD, f"the fullest, {what}")


def _month_after(month: str, ahead: int) -> str:
    year, number = map(int, month.split("_"))
    years, index = divmod(number - 1 + ahead, 12)
    return f"{year + years}_{index + 1:02d}"


def _named(names: Iterable[str]) -> str:
    return first_names(names, MAX_NAMED)


def _judge_transactions(*, has_foreign: bool) -> Finding:
    if has_foreign:
        what = (
            "rows name transactions that this server has not come to, since it was restored from a dump: agents wait "
            "for them before they unload a version, and proxies read all changes at each poll"
        )
        advice = "docs/how-to/back-up-and-restore.md, step 3 of Restore, has the SQL that brings them up."
        return Finding("transactions", State.WARNING, what, advice)
    return Finding("transactions", State.GOOD, "all are this server's own")
