"""Rollouts as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from understudy.core.canary.decision import Decision
from understudy.core.canary.judge_limits import MICROS
from understudy.core.canary.judgements.judge_check import judge_words
from understudy.core.canary.slices.failing_slices import SliceCount, slice_words
from understudy.core.canary.slices.slice_figures import SliceRow, SliceSide
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import plan_to_json
from understudy.core.rollout.policy_share import policy_percent
from understudy.core.rollout.state import state_to_json
from understudy.entrypoints.documents.json_text import moment_of
from understudy.ports.registry.registry import AuditEntry
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord, RolloutView, UnreadableRollout
from understudy.rollout.checks.judge_check import judge_of
from understudy.rollout.commands import CommandResult
from understudy.rollout.start.start import Prepared
from understudy.rollout.status import RolloutStatus, judgements_seen
from understudy.rollout.verdicts.entity_verdict import failing_counts
from understudy.rollout.verdicts.replay import Damage, Replay
from understudy.rollout.verdicts.slice_verdict import worse_counts
from understudy.rollout.warm_up.warm_up_verdict import agreement_of


def rollout_document(record: RolloutRecord) -> dict[str, Any]:
    """Return a rollout as JSON."""
    state = record.state
    return {
        **state_to_json(state),
        "kind": state.kind,
        "started_at": moment_of(state.started_at),
        "limit_from": moment_of(state.limit_from),
        "step_starts": [moment_of(start) for start in state.step_starts],
        "promoted_at": moment_of(state.promoted_at),
        "split_from": moment_of(state.split_from or None),
        "plan": plan_to_json(state.plan),
        "weight_percent": state.weight_percent,
        "revision": record.revision,
        "guard_id": record.guard_id,
        "salt": record.salt,
        "slow_us": record.slow_us,
        "started_by": record.started_by,
        "reason_for_it": record.reason,
        "finished_at": moment_of(record.finished_at),
        "announced_at": moment_of(record.announced_at),
    }


def listing_document(
    records: Sequence[RolloutRecord | UnreadableRollout], policies: Mapping[str, PolicySeen]
) -> dict[str, Any]:
    """Return several rollouts as JSON; ``policies`` are those of the models by their names.

    Those that this release cannot read have a member of their own, which is left out where there are none.
    """
    unread = [
        {**one._asdict(), "started_at": moment_of(one.started_at)}
        for one in records
        if isinstance(one, UnreadableRollout)
    ]
    found = [
        _with_policy_share(one, policies.get(one.state.model_name))
        for one in records
        if not isinstance(one, UnreadableRollout)
    ]
    return {"rollouts": found, **({"unreadable": unread} if unread else {})}


def _with_policy_share(record: RolloutRecord, policy: PolicySeen | None) -> dict[str, Any]:
    return {**rollout_document(record), "policy_weight_percent": policy_percent(record.state, policy)}


def by_hand_document(entry: AuditEntry | None) -> dict[str, Any]:
    """Return who rolled a rollout back by hand as JSON; a member of what is shown of it."""
    if entry is None:
        return {"rolled_back_by": None}
    return {
        "rolled_back_by": {
            "actor": entry.actor,
            "via": entry.via,
            "reason": entry.reason,
            "at": entry.changed_at,
            "generation": entry.generation,
        }
    }


def status_document(
    status: RolloutStatus, replays: Iterable[tuple[RolloutEventRecord, Replay | Damage | None]]
) -> dict[str, Any]:
    """Return a rollout with its events as JSON; instead of stored inputs an event has their replay or damage."""
    again = {event.id: replay for event, replay in replays}
    events = [_event_document(event, again.get(event.id)) for event in status.events]
    decision = None if status.decision is None else _decision_document(status.decision)
    return {
        "rollout": _with_policy_share(status.view.record, status.view.policy),
        "presence": liveness_document(status.view),
        "decision": decision,
        **_judge_document(status),
        "left_out": {role.value: counts._asdict() for role, counts in status.left_out.items()},
        "events": events,
    }


def _judge_document(status: RolloutStatus) -> dict[str, Any]:
    """Return what the judge of a rollout's plan was asked and how far it can be relied on; nothing without one."""
    limit = judge_of(status.view.record.state)
    if limit is None:
        return {}
    seen = judgements_seen(status)
    columns = ("times", "differences", "buckets")
    counted = {name: value for name, value in seen.to_json().items() if name not in columns}
    spent = {"spent": counted.pop("spent_micros") / MICROS, "words": judge_words(seen, limit)}
    return {"judge": {"name": limit.name, "judgements": len(seen.times), **counted, **spent}}


def _decision_document(decision: Decision) -> dict[str, Any]:
    document = decision.to_json()
    return {**document, "evidence": _evidence_document(document["evidence"])}


def _evidence_document(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of evidence with their moments as documents have them."""
    return [{**row, "since": moment_of(row["since"])} if "since" in row else dict(row) for row in rows]


def slices_document(rows: Iterable[SliceRow]) -> list[dict[str, Any]]:
    """Return both sides' figures of slices as JSON."""
    return [
        {
            "feature": figures.slice.feature,
            "value": figures.slice.value,
            "state": state,
            "champion": _side_document(figures.champion),
            "challenger": _side_document(figures.challenger),
        }
        for figures, state in rows
    ]


def _side_document(side: SliceSide) -> dict[str, Any]:
    return {
        "calls": round(side.calls),
        "errors": round(side.errors),
        "slow": round(side.slow),
        "typical_seconds": side.typical_seconds,
    }


def liveness_document(view: RolloutView) -> dict[str, Any]:
    """Return as JSON how many proxies act on the policy of a rollout, and which are stale."""
    return {
        "proxies": view.proxies,
        "proxies_on_generation": view.proxies_on_generation,
        "proxies_hidden": view.proxies_hidden,
        "silent": view.stale.to_json(),
    }


def _event_document(event: RolloutEventRecord, replay: Replay | Damage | None) -> dict[str, Any]:
    hidden = ("inputs", "thresholds", "damage")
    shown = {name: value for name, value in event._asdict().items() if name not in hidden}
    shown |= {"at": moment_of(event.at), "evidence": _evidence_document(event.evidence)}
    scores = agreement_of(event)
    if scores is not None:
        # What was stored of the pairs is as long as they are many; here it is their number.
        shown["agreement"] = {**scores, "pairs": len(scores.get("pairs", ()))}
    counts = failing_counts([event])
    if counts:
        # Names are in the log alone, so that erasing an entity leaves none here.
        shown["entities"] = [asdict(one) for one in counts]
    if slices := worse_counts([event]):
        shown["slices"] = [_slice_document(one) for one in slices]
    damage = replay.problem if isinstance(replay, Damage) else event.damage
    if damage:
        shown["damage"] = damage
    elif isinstance(replay, Replay):
        shown["replay"] = {"verdict": replay.decision.verdict, "agrees": replay.agrees}
    return shown


def _slice_document(one: SliceCount) -> dict[str, Any]:
    """Return a slice that does worse as JSON, without the sums that its evidence is computed from."""
    hidden = ("gains", "scores", "share")
    shown = {name: value for name, value in asdict(one).items() if name not in hidden}
    return {**shown, "since": moment_of(one.since), "words": slice_words(one)}


def prepared_document(prepared: Prepared) -> dict[str, Any]:
    """Return a planned rollout as JSON."""
    return {
        "model_name": prepared.champion.model_name,
        "champion": prepared.champion.version,
        "challenger": prepared.challenger.version,
        "risk": prepared.grade.risk,
        "risk_reason": prepared.grade.reason,
        "plan": plan_to_json(prepared.plan),
        "forecast": {
            "seconds": prepared.forecast.seconds,
            "sentence": prepared.forecast.sentence,
            "steps": [step._asdict() for step in prepared.forecast.steps],
            "warnings": list(prepared.forecast.warnings),
            "nearest_ladder": prepared.forecast.nearest,
        },
        "generation": prepared.generation,
        "input_differences": prepared.inputs._asdict(),
        "deadline_warnings": list(prepared.deadline_warnings),
        "score_warnings": list(prepared.score_warnings),
    }


def start_document(prepared: Prepared, record: RolloutRecord | None) -> dict[str, Any]:
    """Return a start as JSON; without a record it was a dry run."""
    return {
        "plan": prepared_document(prepared),
        "rollout": None if record is None else rollout_document(record),
        "dry_run": record is None,
    }


def command_document(result: CommandResult) -> dict[str, Any]:
    """Return the result of a command as JSON."""
    return {
        "rollout": rollout_document(result.view.record),
        "presence": liveness_document(result.view),
        "changed": result.changed,
        "event": result.event,
    }
