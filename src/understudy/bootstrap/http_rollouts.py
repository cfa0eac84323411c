"""``RolloutOperations`` over HTTP: the proxy prepares, warms up and starts; its documents are read back as values."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from understudy.adapters.http.control_plane import DRY_RUN, PASSING, ControlPlaneClient, said
from understudy.adapters.http.paths import model_path
from understudy.adapters.http.registry import HttpRegistry
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.forecast import RolloutForecast, StepForecast
from understudy.core.rollout.plan import Grade, Risk
from understudy.core.rollout.plan_reader import read_plan
from understudy.core.rollout.state import Command, CommandKind, Kind, state_from_json
from understudy.core.routing.proxy_liveness import StaleProxies
from understudy.core.schema.input_diff import InputDifferences
from understudy.errors import ControlPlaneAway, MigrationNeeded, NotRegistered
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutView, UnreadableRollout
from understudy.rollout.commands import CommandResult
from understudy.rollout.operations import FoundRollouts, StartAsked
from understudy.rollout.start.start import Prepared

Document = Mapping[str, Any]
_MAX_LISTED = 100
"""As the route has it."""
_WATCHED = 20
"""Newest rollouts of a model, among which one is that a command waits for."""


class HttpRollouts:
    """Asks one proxy."""

    def __init__(self, client: ControlPlaneClient) -> None:
        self._client = client

    async def prepare(self, asked: StartAsked) -> Prepared:
        """Return what a start would mean, as the proxy sees it."""
        path = model_path(asked.model_name, "rollouts")
        found = await self._client.send("POST", path, _start_body(asked), parameters=DRY_RUN)
        return await self._prepared(found["plan"])

    async def require_ready(self, asked: StartAsked) -> None:
        """Do nothing: the proxy makes the warm-up when it starts the rollout, from where its callers are answered."""

    async def start(self, asked: StartAsked, prepared: Prepared, salt: str | None, actor: Actor) -> RolloutRecord:
        """Begin what was prepared."""
        body = said(actor.reason, **_start_body(asked), salt=salt, generation=prepared.generation)
        found = await self._client.send("POST", model_path(asked.model_name, "rollouts"), body)
        return record_of(found["rollout"])

    async def listing(
        self, model_name: str | None = None, limit: int = 20
    ) -> Sequence[RolloutRecord | UnreadableRollout]:
        """Return the newest rollouts, newest first."""
        return (await self.found(model_name, limit)).records

    async def found(self, model_name: str | None, limit: int) -> FoundRollouts:
        """Return the newest rollouts with the policies of their models, as far as these say the shares."""
        path = "/v1/rollouts" if model_name is None else model_path(model_name, "rollouts")
        said = await self._client.get(path, {"limit": str(min(limit, _MAX_LISTED))})
        found, unread = said["rollouts"], map(_unreadable, said.get("unreadable", ()))
        records = [record_of(document) for document in found]
        policies: dict[str, PolicySeen] = {}
        for record, document in zip(records, found, strict=True):
            seen = _seen(record, document)
            if seen is not None and record.state.model_name not in policies:
                policies[record.state.model_name] = seen
        return FoundRollouts(sorted((*records, *unread), key=lambda one: one.id, reverse=True), policies)

    async def newest(self, model_name: str) -> RolloutView:
        """Return a model's newest rollout."""
        found = await self.found(model_name, 1)
        if not found.records:
            raise NotRegistered(f"{model_name} never had a rollout", hint="understudy rollout start begins one.")
        return _view(_readable(found.records[0]), found.policies.get(model_name))

    async def again(self, seen: RolloutView) -> RolloutView:
        """Return a rollout as it is now; a proxy that has just started, or has too much to do, counts as away."""
        try:
            return await self.numbered(seen.record.state.model_name, seen.record.id)
        except PASSING as problem:
            raise ControlPlaneAway(problem.detail, hint=problem.next_step) from problem

    async def numbered(self, model_name: str, rollout_id: int) -> RolloutView:
        """Return a model's rollout by its number, of its newest ones."""
        found = await self.found(model_name, _WATCHED)
        record = next((one for one in found.records if one.id == rollout_id), None)
        if record is None:
            raise NotRegistered(f"rollout {rollout_id} of {model_name} is not among its newest {_WATCHED}")
        seen_now = found.policies.get(model_name) if record is found.records[0] else None
        return _view(_readable(record), seen_now)

    async def command(self, model_name: str, command: Command) -> CommandResult:
        """Carry out a command to a model's newest rollout."""
        newest = (await self.newest(model_name)).record
        path = f"{model_path(model_name, 'rollouts', str(newest.id))}:{command.kind}"
        found = await self._client.send("POST", path, _command_body(command))
        view = _view(record_of(found["rollout"]), None, found["presence"])
        return CommandResult(view, found["changed"], found["event"])

    async def _prepared(self, plan: Document) -> Prepared:
        """Return a planned rollout; of its versions the registry has the rest."""
        registry, model_name = HttpRegistry(self._client), plan["model_name"]
        told = plan["forecast"]
        nearest = told["nearest_ladder"]
        forecast = RolloutForecast(
            tuple(StepForecast(**step) for step in told["steps"]),
            told["seconds"],
            told["sentence"],
            tuple(told["warnings"]),
            None if nearest is None else tuple(nearest),
        )
        return Prepared(
            await registry.show_version(model_name, plan["champion"]),
            await registry.show_version(model_name, plan["challenger"]),
            Grade(Risk(plan["risk"]), plan["risk_reason"]),
            read_plan(plan["plan"]),
            forecast,
            None,
            plan["generation"],
            InputDifferences(*(tuple(plan["input_differences"][name]) for name in InputDifferences._fields)),
            tuple(plan["deadline_warnings"]),
            tuple(plan.get("score_warnings", ())),  # a proxy of a release before names none
        )


def _unreadable(document: Document) -> UnreadableRollout:
    return UnreadableRollout(**{**document, "started_at": _seconds(document["started_at"])})


def _readable(found: RolloutRecord | UnreadableRollout) -> RolloutRecord:
    """Return a rollout that this release, or the proxy's, can read.

    Raises:
        MigrationNeeded: A newer release wrote it.
    """
    if isinstance(found, UnreadableRollout):
        raise MigrationNeeded(found.problem)
    return found


def record_of(document: Document) -> RolloutRecord:
    """Return a rollout; the ids of its versions, which no command shows, are 0."""
    moments = ("started_at", "limit_from", "promoted_at", "finished_at", "announced_at")
    at = {name: _seconds(document[name]) for name in moments}
    plan, kind = read_plan(document["plan"]), Kind(document["kind"])
    state = {name: document[name] for name in _STATE if name in document} | {
        "started_at": at["started_at"],
        "limit_from": at["limit_from"],
        "promoted_at": at["promoted_at"],
        "step_starts": [_seconds(start) for start in document["step_starts"]],
        "split_from": _seconds(document["split_from"]) or 0.0,
    }
    return RolloutRecord(
        id=document["rollout_id"],
        state=state_from_json(state, plan, kind),
        revision=document["revision"],
        champion_id=0,
        challenger_id=0,
        salt=document["salt"],
        slow_us=document["slow_us"],
        reason=document["reason_for_it"],
        started_by=document["started_by"],
        finished_at=at["finished_at"],
        announced_at=at["announced_at"],
        guard_id=document["guard_id"],
    )


_STATE = (
    *("rollout_id", "model_name", "champion", "challenger", "policy", "phase", "waiting_for", "reason"),
    *("approved_step", "gate"),
)


def _seconds(moment: str | None) -> float | None:
    return None if moment is None else datetime.fromisoformat(moment).timestamp()


def _seen(record: RolloutRecord, document: Document) -> PolicySeen | None:
    """Return the policy as far as a list says it: the challenger's share where the policy says one."""
    percent = document.get("policy_weight_percent")
    if percent is None:
        return None
    state = record.state
    return state.policy._replace(challenger=state.challenger, weight_percent=percent)


def _view(record: RolloutRecord, policy: PolicySeen | None, presence: Document | None = None) -> RolloutView:
    told = presence or {"proxies": 0, "proxies_on_generation": 0, "proxies_hidden": False, "silent": None}
    stale = StaleProxies.from_json(told["silent"] or {"count": 0, "first": []})
    return RolloutView(
        record,
        policy,
        {},
        told["proxies"],
        told["proxies_on_generation"],
        {},
        record.finished_at or record.state.started_at,
        stale=stale,
        proxies_hidden=told["proxies_hidden"],
    )


def _start_body(asked: StartAsked) -> dict[str, Any]:
    body: dict[str, Any] = {"version": asked.version, "expect_different_scores": asked.expect_different_scores}
    if asked.plan is not None:
        body["plan"] = asked.plan if isinstance(asked.plan, str) else dict(asked.plan)
    return {**body, "freezes": list(asked.freezes)} if asked.freezes else body


def _command_body(command: Command) -> dict[str, Any]:
    body = said(command.reason)
    if command.kind is CommandKind.RESUME and command.expects_different_scores:
        body["expect_different_scores"] = True
    if command.kind is CommandKind.APPROVE:
        body["ahead"] = command.is_ahead
        body |= {} if command.to_percent is None else {"to_percent": command.to_percent}
    return body
