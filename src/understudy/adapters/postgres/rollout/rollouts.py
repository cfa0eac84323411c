"""``RolloutStore`` in Postgres: each transition is one transaction, from the policy's row to the alert."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from shlex import quote
from typing import Any

import asyncpg
import orjson

from understudy import __version__
from understudy.adapters.postgres.connections.connection import SessionPerCall, named_by_callers
from understudy.adapters.postgres.connections.proxy_reports import ProxyReports
from understudy.adapters.postgres.monitoring.lease import fenced
from understudy.adapters.postgres.monitoring.outbox import add_alert
from understudy.adapters.postgres.rollout.judge_questions import (
    add_tie,
    read_budget,
    read_record,
    reserve,
    set_idle,
    settle,
)
from understudy.adapters.postgres.rollout.metric_points import add_points, read_points
from understudy.adapters.postgres.rollout.rollout_acts import read_acts
from understudy.adapters.postgres.rollout.rollout_rows import (
    EVENTS,
    GUARD,
    GUARDS,
    LATEST,
    LIST,
    LIVENESS,
    LIVENESS_HIDDEN,
    LOCK_GUARDS,
    MODEL_NAMES,
    ON_DRIFT,
    OPEN,
    POLICIES,
    POLICY,
    POLICY_OF_ARM,
    REACH,
    REACH_HIDDEN,
    ROLLOUT,
    SHARES,
    UNVALIDATED,
    WEIGHTS,
    WEIGHTS_OF_ARM,
    event_of,
    in_flight_of,
    listed_of,
    policy_seen,
    reach_of,
    record_of,
    stale_proxies_of,
)
from understudy.core.alerts.alerts import AlertEvent
from understudy.core.canary.judge_limits import BudgetStop, JudgeLimit
from understudy.core.canary.judgement_records import JudgeOutcome, JudgeQuestion, JudgeRecord
from understudy.core.canary.metric_samples import MetricPoint
from understudy.core.rollout.actions import PolicyAction, PolicySeen, RetireOld
from understudy.core.rollout.plan import plan_to_json
from understudy.core.rollout.state import (
    DriftMode,
    GuardMode,
    Kind,
    RolloutState,
    Transition,
    new_rollout_state,
    state_to_json,
)
from understudy.errors import GenerationMoved, NotRegistered, PolicyRefused
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import (
    EVERY_ACT,
    MONITOR,
    NewQuestion,
    NewRollout,
    NewRolloutEvent,
    PolicyReach,
    RecordSeen,
    RollbackRecord,
    RolloutAct,
    RolloutActFilter,
    RolloutEventRecord,
    RolloutRecord,
    RolloutView,
    UnreadableRollout,
)

_SIGN = "SELECT set_config('understudy.actor', $1, TRUE), set_config('understudy.via', $2, TRUE), "
_SIGN += "set_config('understudy.reason', $3, TRUE)"
_INSERT = """
    INSERT INTO rollout (model_name, champion_version, challenger_version, plan, salt, salt_before, slow_us, reason,
                         started_by)
    SELECT p.model_name, p.champion_version, v.id, $3, $4, p.salt, $5, $6, $7
    FROM servingpolicy p JOIN modelversion v ON v.model_name = p.model_name AND v.version = $2
    WHERE p.model_name = $1
    RETURNING id, extract(epoch FROM started_at)::float8 AS started_at
"""
# 0 is no rollout's: the trigger puts the id of the guard there that it opens.
_WATCH = """
    UPDATE servingpolicy p SET rollout_id = 0
    WHERE (challenger_weight > 0 OR arms <> '[]') AND guard <> 'off' AND NOT EXISTS (
        SELECT FROM rollout r WHERE r.model_name = p.model_name AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING'))
    RETURNING model_name
"""
_TAKE_ROLE = """
    UPDATE servingpolicy SET rollout_id = $2, salt = $3, challenger_weight = 0, challenger_version = (
        SELECT challenger_version FROM rollout WHERE id = $2)
    WHERE model_name = $1
"""
_SET_STATE = """
    UPDATE rollout
    SET state = $2, phase = $3, step = $4, step_started_at = to_timestamp($5), revision = revision + 1,
        finished_at = CASE WHEN $6 THEN coalesce(finished_at, now()) END
    WHERE id = $1
"""
_ADD_EVENT = """
    INSERT INTO rolloutevent (rollout_id, step, phase, verdict, reason, evidence, inputs, thresholds, code_version,
                              actor)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
# The challenger keeps its role at weight 0, so that an operator can examine it; the rollout's own settings are removed.
# A salt that another change set stays, and so does that of another split: a new one would reassign its entities.
_LEAVE_POLICY = """
    UPDATE servingpolicy p
    SET rollout_id = NULL,
        salt = CASE WHEN p.challenger_weight = 0 AND p.salt IS NOT DISTINCT FROM r.salt THEN r.salt_before
                    ELSE p.salt END
    FROM rollout r WHERE r.id = $1 AND p.model_name = r.model_name AND p.rollout_id = r.id
"""
# The next guard begins with new evidence for all versions; where a row's own share was taken back, the others go on.
_LEAVE_ARMS = """
    UPDATE servingpolicy p SET rollout_id = 0
    FROM rollout r WHERE r.id = $1 AND p.model_name = r.model_name AND p.guard_id = r.guard_id
        AND r.challenger_version IN (SELECT version_id FROM understudy_shares(p))
"""
# The buckets of one version go to the champion, and the others stay.
_TAKE_SHARE = """
    UPDATE servingpolicy p
    SET challenger_weight = CASE WHEN p.challenger_version = r.challenger_version THEN 0 ELSE p.challenger_weight END,
        arms = (SELECT coalesce(jsonb_agg(arm), '[]') FROM jsonb_array_elements(p.arms) AS arm
                WHERE (arm ->> 'version_id')::bigint <> r.challenger_version)
    FROM rollout r WHERE r.id = $1 AND p.model_name = r.model_name
"""
# A shadow version that answers callers again is no shadow any more, and must not fail a rollback.
_CHANGE_POLICY = """
    UPDATE servingpolicy p
    SET challenger_weight = $2, champion_version = roles.champion, challenger_version = roles.challenger,
        shadow_version = nullif(nullif(p.shadow_version, roles.champion), roles.challenger)
    FROM (SELECT (SELECT id FROM modelversion WHERE model_name = $1 AND version = $3) AS champion,
                 (SELECT id FROM modelversion WHERE model_name = $1 AND version = $4) AS challenger) AS roles
    WHERE p.model_name = $1
"""
_RETIRE = """
    UPDATE modelversion SET status = 'retired' WHERE model_name = $1 AND version = $2 AND status = 'staging'
"""
# The versions of a guard share the champion's windows, and so the threshold that these are counted by.
_SET_SLOW = """
    UPDATE rollout SET slow_us = $2
    WHERE slow_us IS NULL AND (id = $1 OR guard_id = (SELECT guard_id FROM rollout WHERE id = $1))
"""
_ANNOUNCE = "UPDATE rollout SET announced_at = now() WHERE id = $1 AND announced_at IS NULL"
_LOCK = "FOR UPDATE OF p"
_MAX_NAMED = 20
"""Models that are named where another one was meant."""
_ONE_OPEN = "rollout_one_open_per_model"


class PostgresRolloutStore(SessionPerCall):
    """Implements ``ports.RolloutStore``."""

    def __init__(
        self, database_url: str, *, timeout_seconds: float, on_unusable: Callable[[str, int], None] | None = None
    ) -> None:
        super().__init__(database_url, timeout_seconds=timeout_seconds, on_unusable=on_unusable)
        self._proxy_reports = ProxyReports()

    async def start(self, new: NewRollout, actor: Actor, *, expected_generation: int | None = None) -> RolloutRecord:
        async with self._connection() as connection, _refusals(new.model_name), connection.transaction():
            await _sign(connection, actor)
            # Before the policy, as a transition of the guard takes them: the new row's trigger ends the guard.
            await connection.execute(LOCK_GUARDS, new.model_name)
            before = policy_seen(await connection.fetchrow(f"{POLICY} {_LOCK}", new.model_name))
            if before is None:
                raise NotRegistered(f"{new.model_name} has no serving policy, so no champion to compare with")
            if before.champion == new.challenger:
                # It became champion after the rollout was prepared.
                raise PolicyRefused(
                    f"version {new.challenger} is the champion of {new.model_name} already",
                    hint=f"Name another version: understudy version list {quote(new.model_name)}.",
                )
            row = await connection.fetchrow(
                _INSERT,
                new.model_name,
                new.challenger,
                _json(plan_to_json(new.plan)),
                new.salt,
                new.slow_us,
                actor.reason,
                actor.name,
            )
            if row is None:
                raise NotRegistered(f"{new.model_name} has no version {new.challenger!r}")
            # After the insert: of two equal starts the second one is refused because of the first, not of its policy.
            if expected_generation is not None and before.generation != expected_generation:
                raise GenerationMoved(f"the policy of {new.model_name} is at generation {before.generation}")
            await connection.execute(_TAKE_ROLE, new.model_name, row["id"], new.salt)
            policy = policy_seen(await connection.fetchrow(POLICY, new.model_name))
            assert policy is not None
            state = new_rollout_state(row["id"], new.model_name, new.plan, policy, row["started_at"])
            await _store_state(connection, state)
            await _add_event(connection, state, "begins", NewRolloutEvent(actor.name))
            return await _record(connection, row["id"])

    async def watch_splits(self, *, epoch: Epoch | None = None) -> Sequence[str]:
        async with self._connection() as connection, fenced(connection, epoch):
            await _sign(connection, Actor(MONITOR, "rollout", "the split had no guard"))
            return [row["model_name"] for row in await connection.fetch(_WATCH)]

    async def open_ids(self) -> Sequence[int]:
        async with self._connection() as connection:
            return [row["id"] for row in await connection.fetch(OPEN)]

    async def guard_ids(self) -> Sequence[int]:
        async with self._connection() as connection:
            return [row["id"] for row in await connection.fetch(GUARDS)]

    async def latest_id(self, model_name: str) -> int:
        async with self._connection() as connection:
            with named_by_callers():
                found: int | None = await connection.fetchval(LATEST, model_name)
            if found is None:
                await _require_model(connection, model_name)
        if found is None:
            raise NotRegistered(
                f"{model_name} never had a rollout", hint=f"understudy rollout start {quote(model_name)} …"
            )
        return found

    async def view(self, rollout_id: int) -> RolloutView:
        # One snapshot for all of it.
        async with (
            self._connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            record = await _record(connection, rollout_id)
            policy = await _policy_of(connection, record)
            asked = (
                (WEIGHTS, record.state.model_name, rollout_id)
                if record.guard_id is None
                else (WEIGHTS_OF_ARM, rollout_id)
            )
            weights = await connection.fetch(*asked)
            shares: dict[str, int] = dict(map(tuple, await connection.fetch(SHARES, record.state.model_name)))
            is_seen = await self._proxy_reports.can_be_read(connection)
            live = (LIVENESS, record.state.model_name) if is_seen else (LIVENESS_HIDDEN,)
            liveness = await connection.fetchrow(*live)
            is_guard = record.state.kind is Kind.GUARD
            guard = await connection.fetchval(GUARD, record.state.model_name) if is_guard else GuardMode.ROLLBACK
            on_drift = await connection.fetchval(ON_DRIFT, record.state.model_name)
            unvalidated = await connection.fetchval(UNVALIDATED, record.challenger_id)
        assert liveness is not None
        self._left_out("ProxyInstance", liveness["unusable"])
        return RolloutView(
            record,
            policy,
            {row["generation"]: row["weight"] for row in weights},
            liveness["proxies"],
            liveness["on_generation"],
            in_flight_of(liveness),
            liveness["now"],
            stale_proxies_of(liveness),
            stale_proxies_of(liveness, "all_silent"),
            GuardMode(guard or GuardMode.OFF),
            proxies_hidden=not is_seen,
            champion_percent=None if policy is None else 100 - sum(shares.values()),
            on_drift=DriftMode(on_drift or DriftMode.ALERT),
            unvalidated=unvalidated or "",
            shares=shares,
        )

    async def record(self, rollout_id: int) -> RecordSeen:
        async with self._connection() as connection:
            row = await _row_of(connection, rollout_id)
        return RecordSeen(record_of(row), row["read_at"])

    async def list(self, model_name: str | None = None, limit: int = 20) -> Sequence[RolloutRecord]:
        return [record_of(row) for row in await self._newest(model_name, limit)]

    async def listing(
        self, model_name: str | None = None, limit: int = 20
    ) -> Sequence[RolloutRecord | UnreadableRollout]:
        return [listed_of(row) for row in await self._newest(model_name, limit)]

    async def _newest(self, model_name: str | None, limit: int) -> Sequence[asyncpg.Record]:
        async with self._connection() as connection:
            with named_by_callers():
                rows: Sequence[asyncpg.Record] = await connection.fetch(LIST, model_name, limit)
        return rows

    async def policies(self, model_names: Sequence[str]) -> Mapping[str, PolicySeen]:
        async with self._connection() as connection:
            rows = await connection.fetch(POLICIES, list(model_names))
        return {row[0]: PolicySeen(*row[1:]) for row in map(tuple, rows)}

    async def events(self, rollout_id: int) -> Sequence[RolloutEventRecord]:
        async with self._connection() as connection:
            return [event_of(row) for row in await connection.fetch(EVENTS, rollout_id)]

    async def acts(self, model_name: str, limit: int, only: RolloutActFilter = EVERY_ACT) -> Sequence[RolloutAct]:
        async with self._connection() as connection:
            return await read_acts(connection, model_name, limit, only)

    async def apply(
        self,
        view: RolloutView,
        transition: Transition,
        event: NewRolloutEvent,
        alerts: Sequence[AlertEvent] = (),
        *,
        epoch: Epoch | None = None,
    ) -> bool:
        state = transition.state
        async with self._connection() as connection, _refusals(state.model_name), fenced(connection, epoch):
            if not await _is_current(connection, view.record):
                return False
            await _sign(connection, Actor(event.actor, event.via, transition.event))
            changes = await _changes(connection, view, transition)
            if changes is None:
                return False
            # Before the policy: its trigger ends a guard that is open, and opens one where a rollout has ended.
            await _store_state(connection, state)
            for wanted in changes:
                await _change_policy(connection, view.record, wanted)
            if state.phase.is_final:
                leave = _LEAVE_POLICY if view.record.guard_id is None else _LEAVE_ARMS
                await connection.execute(leave, state.rollout_id)
            # After the end is stored: while a version is kept warm for a rollout, the database refuses to retire it.
            for action in transition.actions:
                if isinstance(action, RetireOld):
                    await connection.execute(_RETIRE, state.model_name, action.version)
            await _add_event(connection, state, transition.event, event)
            for alert in alerts:
                await add_alert(connection, alert)
        return True

    async def set_slow_us(self, rollout_id: int, slow_us: int, *, epoch: Epoch | None = None) -> None:
        async with self._connection() as connection, fenced(connection, epoch):
            await connection.execute(_SET_SLOW, rollout_id, slow_us)

    async def metric_points(self, record: RolloutRecord, since: float) -> Sequence[MetricPoint]:
        async with self._connection() as connection:
            return await read_points(connection, record, since)

    async def add_metric_points(
        self, record: RolloutRecord, points: Sequence[MetricPoint], *, epoch: Epoch | None = None
    ) -> None:
        async with self._connection() as connection, fenced(connection, epoch):
            await add_points(connection, record, points)

    async def judge_record(self, record: RolloutRecord) -> JudgeRecord:
        async with self._connection() as connection:
            return await read_record(connection, record)

    async def judge_budget(self, record: RolloutRecord, limit: JudgeLimit) -> BudgetStop | None:
        async with self._connection() as connection:
            return await read_budget(connection, record, limit)

    async def reserve_question(
        self, record: RolloutRecord, limit: JudgeLimit, new: NewQuestion, *, epoch: Epoch | None = None
    ) -> JudgeQuestion | BudgetStop:
        async with self._connection() as connection, fenced(connection, epoch):
            return await reserve(connection, record, limit, new)

    async def add_tie(
        self, record: RolloutRecord, limit: JudgeLimit, new: NewQuestion, *, epoch: Epoch | None = None
    ) -> JudgeQuestion | None:
        async with self._connection() as connection, fenced(connection, epoch):
            return await add_tie(connection, record, limit, new)

    async def settle_question(
        self, question_id: int, outcome: JudgeOutcome, difference: float | None, *, epoch: Epoch | None = None
    ) -> float | None:
        async with self._connection() as connection, fenced(connection, epoch):
            return await settle(connection, question_id, outcome, difference)

    async def set_judge_idle(
        self, record: RolloutRecord, limit: JudgeLimit, idle: JudgeOutcome | None, *, epoch: Epoch | None = None
    ) -> None:
        async with self._connection() as connection, fenced(connection, epoch):
            await set_idle(connection, record, limit, idle)

    async def announce(
        self, view: RolloutView, reason: str, event: NewRolloutEvent, *, epoch: Epoch | None = None
    ) -> None:
        async with self._connection() as connection, fenced(connection, epoch):
            if await connection.execute(_ANNOUNCE, view.record.id) == "UPDATE 1":
                await _add_event(connection, view.record.state, reason, event)

    async def tell(self, alerts: Sequence[AlertEvent], *, epoch: Epoch | None = None) -> None:
        async with self._connection() as connection, fenced(connection, epoch):
            for alert in alerts:
                await add_alert(connection, alert)

    async def roll_back(self, model_name: str, actor: Actor, *, dry_run: bool = False) -> RollbackRecord:
        try:
            return await self._roll_back(model_name, actor, dry_run=dry_run)
        except PolicyRefused:
            async with self._connection() as connection:
                await _require_model(connection, model_name)
            # The champion before may have been retired between the look at it and the change. The next look finds that,
            # and takes back what else there is; what was refused for another reason is refused again.
            return await self._roll_back(model_name, actor, dry_run=dry_run)

    async def _roll_back(self, model_name: str, actor: Actor, *, dry_run: bool) -> RollbackRecord:
        async with self._connection() as connection, _refusals(model_name):
            transaction = connection.transaction()
            await transaction.start()
            await _sign(connection, actor)
            said = await connection.fetchval("SELECT understudy_rollback($1)", model_name)
            await (transaction.rollback() if dry_run else transaction.commit())
        found = orjson.loads(said)
        return RollbackRecord(
            found["model"],
            found["did"],
            found["generation"],
            found["champion"],
            found["challenger"],
            found["rollout_id"],
            tuple(sorted(found["without_calls"])),
        )

    async def reach(self, model_name: str, generation: int | None = None) -> PolicyReach:
        async with self._connection() as connection, connection.transaction():
            is_seen = await self._proxy_reports.can_be_read(connection)
            asked = (REACH, model_name, generation) if is_seen else (REACH_HIDDEN, model_name)
            row = await connection.fetchrow(*asked)
        if row is None:
            raise NotRegistered(f"{model_name} has no serving policy")
        self._left_out("ProxyInstance", row["unusable"])
        return reach_of(row, proxies_hidden=not is_seen)

    def _connection(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._session("rollouts", "understudy-rollouts")


async def _record(connection: asyncpg.Connection, rollout_id: int) -> RolloutRecord:
    return record_of(await _row_of(connection, rollout_id))


async def _row_of(connection: asyncpg.Connection, rollout_id: int) -> asyncpg.Record:
    row = await connection.fetchrow(ROLLOUT, rollout_id)
    if row is None:
        raise NotRegistered(f"there is no rollout {rollout_id}", hint="understudy rollout list shows them.")
    return row


async def _is_current(connection: asyncpg.Connection, record: RolloutRecord) -> bool:
    """Whether the rollout is unchanged since it was read; locks its row until the transaction ends."""
    revision = await connection.fetchval("SELECT revision FROM rollout WHERE id = $1 FOR UPDATE", record.id)
    return bool(revision == record.revision)


async def _changes(
    connection: asyncpg.Connection, view: RolloutView, transition: Transition
) -> list[PolicySeen] | None:
    """Return the policies that are to be written, none where that was done before, and lock the policy's row.

    ``None``: another change has taken the policy over.
    """
    actions = [action for action in transition.actions if isinstance(action, PolicyAction)]
    found = []
    for action in actions:
        seen = await _policy_of(connection, view.record, _LOCK)
        if seen is not None and action.applies_to(seen):
            found.append(action.result(seen))
        elif not transition.state.is_in_place(seen):
            return None
    if transition.state.phase.is_final and not actions:
        # That nothing is to be taken back was decided on the policy, too: a share that was given since would stay.
        seen = await _policy_of(connection, view.record, _LOCK)
        return found if _is_as(seen, view.policy) else None
    return found


def _is_as(policy: PolicySeen | None, other: PolicySeen | None) -> bool:
    return policy is other if policy is None or other is None else policy.is_as(other)


async def _policy_of(connection: asyncpg.Connection, record: RolloutRecord, lock: str = "") -> PolicySeen | None:
    """Return the policy as a rollout sees it; with the lock, as it stays until the transaction ends."""
    asked = (POLICY, record.state.model_name) if record.guard_id is None else (POLICY_OF_ARM, record.id)
    return policy_seen(await connection.fetchrow(f"{asked[0]} {lock}", asked[1]))


async def _change_policy(connection: asyncpg.Connection, record: RolloutRecord, wanted: PolicySeen) -> None:
    if record.guard_id is not None:  # the one change of a guard: the share goes to the champion
        await connection.execute(_TAKE_SHARE, record.id)
        return
    roles = (wanted.weight_percent, wanted.champion, wanted.challenger)
    await connection.execute(_CHANGE_POLICY, record.state.model_name, *roles)


async def _store_state(connection: asyncpg.Connection, state: RolloutState) -> None:
    await connection.execute(
        _SET_STATE,
        state.rollout_id,
        _json(state_to_json(state)),
        state.phase.value,
        state.step,
        state.step_started_at,
        state.phase.is_final,
    )


async def _add_event(connection: asyncpg.Connection, state: RolloutState, reason: str, event: NewRolloutEvent) -> None:
    await connection.execute(
        _ADD_EVENT,
        state.rollout_id,
        state.step,
        state.phase.value,
        None if event.verdict is None else event.verdict.value,
        reason,
        _json(list(event.evidence)),
        _json(event.inputs),
        _json(event.thresholds),
        __version__,
        event.actor,
    )


async def _sign(connection: asyncpg.Connection, actor: Actor) -> None:
    """Name the actor of this transaction to the audit's trigger."""
    await connection.execute(_SIGN, actor.name, actor.via, actor.reason or "")


async def _require_model(connection: asyncpg.Connection, model_name: str) -> None:
    """Go on only with a model that has versions; asked where a name leads to nothing, which may be misspelt."""
    names = [row["model_name"] for row in await connection.fetch(MODEL_NAMES)]
    if model_name not in names:
        raise NotRegistered(f"no model {model_name!r} is registered", others=", ".join(names[:_MAX_NAMED]))


@asynccontextmanager
async def _refusals(model_name: str) -> AsyncIterator[None]:
    """Turn the database's refusals into ``PolicyRefused`` with its texts."""
    try:
        yield
    except asyncpg.UniqueViolationError as problem:
        if problem.constraint_name != _ONE_OPEN:
            raise
        named = quote(model_name)
        raise PolicyRefused(
            f"{model_name} has an open rollout, and one at a time is enough",
            hint=f"See it: understudy rollout show {named}; end it: understudy rollout abort {named}.",
        ) from problem
    except (asyncpg.CheckViolationError, asyncpg.ForeignKeyViolationError) as problem:
        raise PolicyRefused(str(problem.args[0]), hint=problem.hint) from problem


def _json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
