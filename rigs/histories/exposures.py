"""Exposure: who answered whom under which policy, and what of it is in the prediction log."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from rigs.histories.audit import CLOCK_SECONDS, Chain
from rigs.histories.finding import Finding
from rigs.histories.policy import Policy, exposure
from rigs.histories.record import Kind, Record

FRESH_SECONDS = 5.0
"""How late a proxy may act on a change while nothing is broken. Source: fault matrix, figure 7, with LISTEN dead."""


class Call(NamedTuple):
    """An answered prediction.

    Args:
        record: The operation that it was a part of.
        entity: Whose it is.
        generation: Of the policy that decided.
        version: That answered.
        role: In which it answered.
        fallback_from: The version for which the champion stood in.
        prediction_id: Of its row in the log.
        proxy: The process that answered.
    """

    record: Record
    entity: str
    generation: int
    version: str
    role: str
    fallback_from: str | None
    prediction_id: str
    proxy: str

    @property
    def assigned(self) -> str:
        """The version that the policy names."""
        return self.fallback_from or self.version

    def __str__(self) -> str:
        by = f"{self.version} as {self.role}" + (f" for {self.fallback_from}" if self.fallback_from else "")
        return f"{self.entity} at {self.proxy} by {by} of generation {self.generation} ({self.record.operation.tag})"


def calls_of(records: Sequence[Record]) -> list[Call]:
    """Return all answered predictions."""
    return [
        Call(record, **call)
        for record in records
        if record.operation.kind is Kind.PREDICT
        for call in record.answer.get("calls", ())
    ]


def wrong_exposures(chain: Chain, model_name: str) -> Iterator[Finding]:
    """Yield answers that no committed policy gives, that went back, came late or are not once in the log."""
    calls = calls_of(chain.history.records)
    for call in calls:
        yield from _wrong_call(chain, model_name, call)
    yield from _went_back(calls)
    yield from _moved_back(chain, calls)
    yield from _late(chain, calls)
    yield from _wrong_rows(
        chain.history.logged, {label: number for number, label in chain.history.labels.items()}, calls
    )


def _wrong_call(chain: Chain, model_name: str, call: Call) -> Iterator[Finding]:
    if call.generation not in chain.committed:
        yield Finding("exposure", f"there never was that generation: {call}")
        return
    began_at = chain.history.audit[call.generation - 1].at
    if began_at > call.record.returned + CLOCK_SECONDS:
        yield Finding("exposure", f"its policy was made afterwards: {call}")
    policy = chain.state(call.generation)
    expected = exposure(model_name, policy, call.entity)
    if call.fallback_from is not None:
        if not policy.fallback or expected != (call.fallback_from, "challenger") or call.version != policy.champion:
            yield Finding("exposure", f"the champion stood in, the policy says {expected}: {call}")
    elif (call.version, call.role) != expected:
        yield Finding("exposure", f"the policy says {expected}: {call}")


def _went_back(calls: Sequence[Call]) -> Iterator[Finding]:
    """Yield calls to a process that knew of a later policy before they were sent."""
    by_proxy: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_proxy[call.proxy].append(call)
    for own in by_proxy.values():
        returned = sorted(own, key=lambda call: call.record.returned)
        newest: Call | None = None
        place = 0
        for call in sorted(own, key=lambda call: call.record.invoked):
            while place < len(returned) and returned[place].record.returned < call.record.invoked:
                if newest is None or returned[place].generation > newest.generation:
                    newest = returned[place]
                place += 1
            if newest is not None and newest.generation > call.generation:
                yield Finding("exposure", f"the proxy went back: {call} after {newest}")


def _moved_back(chain: Chain, calls: Sequence[Call]) -> Iterator[Finding]:
    """Yield entities that went back to the champion while the challenger's share did not shrink.

    It asks nothing of buckets, so it holds however entities are hashed.
    """
    by_entity: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.generation in chain.committed:
            by_entity[call.entity].append(call)
    for own in by_entity.values():
        for earlier, later in pairwise(sorted(own, key=lambda call: call.generation)):
            was = chain.state(earlier.generation)
            is_exposed = was.challenger is not None and earlier.assigned == was.challenger
            if is_exposed and later.assigned == was.champion and _only_grows(chain, earlier, later):
                yield Finding("exposure", f"moved back: {later} after {earlier}")


def _only_grows(chain: Chain, earlier: Call, later: Call) -> bool:
    policies = [chain.state(number) for number in range(earlier.generation, later.generation + 1)]
    return all(
        _split(before) == _split(after) and before.weight <= after.weight for before, after in pairwise(policies)
    )


def _split(policy: Policy) -> tuple[object, ...]:
    return policy.champion, policy.challenger, policy.salt, policy.arms


def _late(chain: Chain, calls: Sequence[Call]) -> Iterator[Finding]:
    """Yield calls that a proxy decided by a policy that had been replaced for too long, though nothing was broken."""
    broken = [record for record in chain.history.records if record.operation.kind is Kind.FAULT]
    acknowledged = sorted(_acknowledged(chain))
    newest, place = 0, 0
    for call in sorted(calls, key=lambda call: call.record.invoked):
        due = call.record.invoked - FRESH_SECONDS
        while place < len(acknowledged) and acknowledged[place][0] <= due:
            newest = max(newest, acknowledged[place][1])
            place += 1
        was_broken = any(one.invoked <= call.record.returned and one.returned >= due for one in broken)
        if call.generation < newest and not was_broken:
            yield Finding("exposure", f"generation {newest} was {FRESH_SECONDS:g} s old or more: {call}")


def _acknowledged(chain: Chain) -> Iterator[tuple[float, int]]:
    """Yield when a client knew at the latest that a generation was there."""
    by_tag = {tag: own[0].last for tag, own in chain.by_tag().items()}
    for record in chain.history.records:
        generation = by_tag.get(record.operation.tag)
        if generation is not None:
            yield record.returned, generation


def _wrong_rows(
    logged: Mapping[str, Sequence[Mapping[str, Any]]], ids: Mapping[str, int], calls: Sequence[Call]
) -> Iterator[Finding]:
    for call in calls:
        rows = logged.get(call.prediction_id, ())
        expected = {
            "model_version_id": ids[call.version],
            "assigned_version_id": ids[call.assigned],
            "policy_generation": call.generation,
            "entity_id": call.entity,
        }
        if len(rows) != 1:
            yield Finding("log", f"{len(rows)} rows are in the prediction log of {call}")
        elif any(rows[0][name] != value for name, value in expected.items()):
            yield Finding("log", f"the row {rows[0]} is not of {call}")
