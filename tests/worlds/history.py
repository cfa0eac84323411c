"""Histories of a product that is right, made by simulation: operations of clients that overlap, each at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from rigs.histories.policy import OpenRollout, Policy, Refusal, after_add, after_rollback, after_set, changed, exposure
from rigs.histories.record import (
    AuditRow,
    Ended,
    EventRow,
    History,
    Kind,
    Operation,
    Record,
    RolloutRow,
    Signature,
    Way,
)

LABELS = {11: "1", 12: "2", 13: "3", 14: "4"}
IDS = {label: number for number, label in LABELS.items()}
OPERATOR = Signature("dana", "sql")
WEIGHTS = (10, 50, 100)


@dataclass
class World:
    """The product as one process without faults; ``now`` is moved by whoever uses it."""

    now: float = 0.0
    states: list[Policy] = field(default_factory=lambda: [Policy("1")])
    audit: list[AuditRow] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    rollouts: list[RolloutRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    logged: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._write(self.states[0], "set up", OPERATOR)

    @property
    def policy(self) -> Policy:
        return self.states[-1]

    def history(self) -> History:
        row = self.audit[-1].after
        records = sorted(self.records, key=lambda record: record.invoked)
        proxies = {"proxy:1": self.policy.generation}
        return History(
            seed=1,
            labels=LABELS,
            records=records,
            audit=self.audit,
            policy=row,
            rollouts=self.rollouts,
            events=self.events,
            signatures={Way.SQL: OPERATOR},
            logged=self.logged,
            proxies=proxies,
        )

    def do(self, client: int, kind: Kind, seconds: float = 0.1, way: Way = Way.SQL, **asked: Any) -> Record:
        """Carry an operation out at ``now``, which lies within it, and record it."""
        number = self.numbers[client] = self.numbers.get(client, -1) + 1
        operation = Operation(client, number, kind, way, asked)
        ended, answer = self._carry_out(operation)
        record = Record(operation, self.now - seconds / 2, self.now + seconds / 2, ended, answer)
        self.records.append(record)
        return record

    def tick(self) -> None:
        """Take the open rollout a step on, as the monitor does."""
        row = self.rollouts[-1]
        entered = sum(
            "goes from" in event.reason or "becomes" in event.reason
            for event in self.events
            if event.rollout_id == row.id
        )
        before, weight = self.policy, row.weights[entered]
        if weight == 100:
            after = changed(before, champion=row.challenger, challenger=None, weight=0)
            self._move(row, [after], "PROMOTING", entered, f"version {row.challenger} becomes champion")
        else:
            said = f"version {row.challenger} goes from {before.weight} to {weight} %"
            self._move(row, [changed(before, weight=weight)], "PROGRESSING", entered, said)

    def finish(self) -> None:
        """End the open rollout: its challenger is champion, and its time is over."""
        row = self.rollouts[-1]
        left = changed(self.policy, rollout_id=None, salt=row.salt_before)
        self._move(row, [left], "SUCCEEDED", len(row.weights) - 1, "version is champion")

    def _carry_out(self, operation: Operation) -> tuple[Ended, dict[str, Any]]:
        writes = {
            Kind.SET: self._set,
            Kind.ADD: self._add,
            Kind.ROLL_BACK: self._roll_back,
            Kind.START: self._start,
            Kind.PAUSE: self._command,
            Kind.RESUME: self._command,
            Kind.ABORT: self._command,
        }
        write = writes.get(operation.kind)
        return (Ended.DONE, self._read(operation)) if write is None else write(operation)

    def _read(self, operation: Operation) -> dict[str, Any]:
        generation = self.policy.generation
        if operation.kind is Kind.READ_POLICY:
            return {"generation": generation, "policy": vars(self.policy)}
        if operation.kind is Kind.READ_AUDIT:
            entries = [[row.generation, row.reason, row.actor] for row in reversed(self.audit[-20:])]
            return {"generation": generation, "entries": entries}
        return {"calls": [self._call(operation, entity) for entity in operation.asked.get("entities", ())]}

    def _add(self, operation: Operation) -> tuple[Ended, dict[str, Any]]:
        return self._changed(after_add(self.policy, operation.asked["add"]), operation)

    def _roll_back(self, operation: Operation) -> tuple[Ended, dict[str, Any]]:
        after, did = after_rollback(self.states, self._open(), frozenset())
        ended, answer = self._changed(after, operation)
        return ended, {**answer, "did": did}

    def _set(self, operation: Operation) -> tuple[Ended, dict[str, Any]]:
        asked = operation.asked
        if asked.get("expected") not in (None, self.policy.generation):
            return Ended.REFUSED, {"why": "moved"}
        after = after_set(self.policy, asked["changes"], frozenset())
        return (Ended.REFUSED, {"why": after.why}) if isinstance(after, Refusal) else self._changed(after, operation)

    def _changed(self, after: Policy, operation: Operation) -> tuple[Ended, dict[str, Any]]:
        is_changed = after != self.policy
        if is_changed:
            self._write(after, operation.tag, OPERATOR)
        return Ended.DONE, {"generation": self.policy.generation, "changed": is_changed}

    def _start(self, operation: Operation) -> tuple[Ended, dict[str, Any]]:
        version, before = operation.asked["version"], self.policy
        if before.rollout_id is not None or before.arms or version in (before.champion, before.shadow):
            return Ended.REFUSED, {"why": "refused"}
        number = len(self.rollouts) + 1
        row = RolloutRow(number, before.champion, version, WEIGHTS, f"s{number}", before.salt, operation.tag)
        self.rollouts.append(row)
        self._event(row, "PROGRESSING", 0, "begins", OPERATOR.actor)
        self._write(
            changed(before, challenger=version, weight=0, salt=row.salt, rollout_id=number), row.reason, OPERATOR
        )
        return Ended.DONE, {"rollout": number, "changed": True}

    def _command(self, operation: Operation) -> tuple[Ended, dict[str, Any]]:
        if self.policy.rollout_id is None:
            return Ended.DONE, {"changed": False, "event": "it is over"}
        row, last = self.rollouts[-1], self.events[-1]
        is_promoted = self.policy.champion == row.challenger
        said = f"{'goes on' if operation.kind is Kind.RESUME else operation.kind} by dana: {operation.tag}"
        if operation.kind is Kind.ABORT:
            own = [event.reason for event in self.events if event.rollout_id == row.id]
            ours: list[tuple[str, str | None]] = [(row.champion, row.challenger)]
            ours += [(row.challenger, None)] if any("becomes" in reason for reason in own) else []
            back = self.policy
            if (back.champion, back.challenger) in ours:
                shadow = None if back.shadow == row.champion else back.shadow
                back = changed(back, champion=row.champion, challenger=row.challenger, weight=0, shadow=shadow)
            salt = row.salt_before if back.salt == row.salt and not back.weight else back.salt
            after = [back, changed(back, rollout_id=None, salt=salt)]
            moves = [one for one in after if one != self.policy]
            self._move(row, moves, "FAILED", last.step, said, actor=OPERATOR.actor)
        elif (last.phase == "WAITING") == (operation.kind is Kind.PAUSE):
            return Ended.DONE, {"changed": False, "event": last.reason}
        else:
            goes_on = "PROMOTING" if is_promoted else "PROGRESSING"
            phase = "WAITING" if operation.kind is Kind.PAUSE else goes_on
            self._event(row, phase, last.step, said, OPERATOR.actor)
        return Ended.DONE, {"changed": True, "event": said}

    def _call(self, operation: Operation, entity: str) -> dict[str, Any]:
        version, role = exposure("visits", self.policy, entity)
        identifier = f"{operation.tag}/{entity}"
        row = {
            "model_version_id": IDS[version],
            "assigned_version_id": IDS[version],
            "policy_generation": self.policy.generation,
            "entity_id": entity,
        }
        self.logged[identifier] = [row]
        return {
            "entity": entity,
            "generation": self.policy.generation,
            "version": version,
            "role": role,
            "fallback_from": None,
            "prediction_id": identifier,
            "proxy": "proxy:1",
        }

    def _move(
        self, row: RolloutRow, after: list[Policy], phase: str, step: int, reason: str, *, actor: str = "monitor"
    ) -> None:
        self._event(row, phase, step, reason, actor)
        for one in after:
            self._write(one, reason, Signature(actor, "rollout"))

    def _event(self, row: RolloutRow, phase: str, step: int, reason: str, actor: str) -> None:
        self.events.append(EventRow(len(self.events) + 1, row.id, self.now, phase, step, actor, reason))

    def _open(self) -> OpenRollout | None:
        row = self.rollouts[-1] if self.policy.rollout_id is not None else None
        return None if row is None else OpenRollout(row.champion, row.challenger)

    def _write(self, after: Policy, reason: str, signature: Signature) -> None:
        if self.audit:
            self.states.append(after)
        before = self.audit[-1].after if self.audit else None
        action = "update" if self.audit else "insert"
        number = len(self.audit) + 1
        row = AuditRow(number, number, self.now, *signature, reason, action, before, row_of(after))
        self.audit.append(row)


def row_of(policy: Policy) -> dict[str, Any]:
    """Return the policy as the table holds it."""
    return {
        "champion_version": IDS[policy.champion],
        "challenger_version": None if policy.challenger is None else IDS[policy.challenger],
        "challenger_weight": policy.weight,
        "shadow_version": None if policy.shadow is None else IDS[policy.shadow],
        "shadow_percent": policy.shadow_percent,
        "fallback": policy.fallback,
        "salt": policy.salt,
        "arms": [{"version_id": IDS[arm.version], "first": arm.first, "last": arm.last} for arm in policy.arms],
        "rollout_id": policy.rollout_id,
        "previous_champion": None if policy.previous_champion is None else IDS[policy.previous_champion],
        "generation": policy.generation,
    }


ENTITIES = tuple(f"person-{number}" for number in range(6))


def a_history(seed: int, operations: int = 60) -> History:
    """Return a history of four clients whose operations overlap, with a monitor beside them."""
    world, random = World(), Random(seed)
    for _ in range(operations):
        world.now += random.uniform(0.02, 0.3)
        _one(world, random)
        if world.policy.rollout_id is not None and random.random() < 0.3:
            world.now += 0.001
            _monitor(world)
    return world.history()


def _one(world: World, random: Random) -> None:
    client, seconds = random.randrange(4), random.uniform(0.01, 0.6)
    versions = list(LABELS.values())
    match random.randrange(9):
        case 0:
            changes: dict[str, Any] = {
                "challenger": random.choice(versions),
                "challenger_weight": random.randint(0, 101),
            }
            world.do(client, Kind.SET, seconds, changes=changes)
        case 1:
            world.do(client, Kind.SET, seconds, changes={"champion": random.choice(versions)})
        case 2:
            expected = world.policy.generation - random.randint(0, 1)
            world.do(client, Kind.SET, seconds, changes={"challenger_weight": 0}, expected=expected)
        case 3:
            world.do(client, Kind.ADD, seconds, add=random.randint(1, 50))
        case 4:
            world.do(client, Kind.ROLL_BACK, seconds)
        case 5:
            world.do(client, random.choice([Kind.READ_POLICY, Kind.READ_AUDIT]), seconds)
        case 6:
            world.do(client, Kind.START, seconds, version=random.choice(versions))
        case 7:
            world.do(client, random.choice([Kind.PAUSE, Kind.RESUME, Kind.ABORT]), seconds)
        case _:
            world.do(client, Kind.PREDICT, seconds, entities=list(ENTITIES))


def _monitor(world: World) -> None:
    """Go on with the rollout where the policy is as it left it."""
    row, policy = world.rollouts[-1], world.policy
    own = [event for event in world.events if event.rollout_id == row.id]
    entered = sum("goes from" in event.reason or "becomes" in event.reason for event in own)
    if own[-1].phase == "WAITING":
        return
    weight = row.weights[entered - 1] if entered else 0
    if (policy.champion, policy.challenger, policy.weight) == (row.champion, row.challenger, weight):
        world.tick()
    elif policy.champion == row.challenger and policy.challenger is None and own[-1].phase == "PROMOTING":
        world.finish()


def replaced(history: History, generation: int, **values: Any) -> History:
    """Return the history with other values in the row of a generation, and with what follows as it was."""
    audit = list(history.audit)
    audit[generation - 1] = replace(audit[generation - 1], **values)
    return history.with_audit(audit)
