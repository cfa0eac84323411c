"""Follows a source of versions: registers the version that its label names, and starts its rollout, once."""

from collections.abc import Awaitable, Callable, Mapping
from secrets import token_hex
from typing import Any, Final, NamedTuple

from understudy.core.rollout.sources.version_source import (
    NOTE,
    Do,
    Facts,
    Offered,
    OnNew,
    PastRollout,
    SourceSpec,
    SourceState,
    Step,
    artifact_of,
    filled,
    next_step,
)
from understudy.core.rollout.state import Kind
from understudy.core.schema.described import DescribedModel, all_problems, contradictions
from understudy.errors import (
    AlreadyRegistered,
    ArtifactUnreachable,
    GenerationMoved,
    ModelContradicts,
    NotRegistered,
    RegistryUnavailable,
    ServingError,
    SourceAway,
    UnderstudyError,
    VersionNotReady,
)
from understudy.ports.registry.registry import RETIRED, Actor, NewVersion, PolicyRecord, Registry, VersionRecord
from understudy.ports.registry.version_source import VersionSource
from understudy.ports.rollout.rollout_store import UnreadableRollout
from understudy.rollout.operations import RolloutOperations, StartAsked
from understudy.rollout.start.start import require_same_inputs

MAX_ROLLOUTS: Final = 100
"""Of a model, among which one of the version is looked for."""
SALT_BYTES: Final = 4
_STEPS: Final = 3
"""Register, start, and see what came of it."""
_PASSING = (VersionNotReady, GenerationMoved, RegistryUnavailable, ArtifactUnreachable, ServingError)
"""What another look, a minute later, may not meet again."""
RegisterNew = Callable[[NewVersion, Actor], Awaitable[VersionRecord]]
"""Registers a version with its artifact pinned; raises as ``register_version``."""


class SourceReport(NamedTuple):
    """How a source stands after a look, and what the look did."""

    name: str
    kind: str
    model_name: str
    label: str | None
    """The version that it offers, as it is called here."""
    state: SourceState
    detail: str
    registered: bool = False
    started: int | None = None
    """The rollout that it started."""


class ControlParts(NamedTuple):
    """This installation's registry and rollouts, over the database or over HTTP."""

    registry: Registry
    rollouts: RolloutOperations
    register: RegisterNew
    actor: str


class SourceFollower:
    """Looks at one source."""

    def __init__(self, spec: SourceSpec, source: VersionSource, parts: ControlParts) -> None:
        self._spec = spec
        self._source = source
        self._parts = parts

    async def look(self, *, dry_run: bool = False) -> SourceReport:
        """Do what the label asks for, as far as it is not done; with ``dry_run`` only say what that is.

        Raises nothing of ours: what is in the way is in the report.
        """
        report = SourceReport(self._spec.name, self._spec.kind, self._spec.model_name, None, SourceState.UNSET, "")
        try:
            offered = await self._source.offered()
        except SourceAway as problem:
            return report._replace(state=SourceState.AWAY, detail=problem.detail)
        if offered is None:
            return report._replace(detail=f"{self._spec.registered_model} has no alias {self._spec.alias}")
        report = report._replace(label=filled(self._spec.version, offered))
        for _ in range(_STEPS):
            try:
                report, is_last = await self._advance(report, offered, dry_run=dry_run)
            except AlreadyRegistered:
                continue  # another process was faster: what it registered is looked at
            except UnderstudyError as problem:
                return report._replace(state=_state_of(problem), detail=problem.detail)
            if is_last:
                break
        return report

    async def _advance(self, report: SourceReport, offered: Offered, *, dry_run: bool) -> tuple[SourceReport, bool]:
        """Do the next thing; return what is to be told of it, and whether it was the last."""
        step, champion = await self._step(report, offered)
        report = report._replace(state=step.state, detail=step.detail)
        if step.do is Do.NOTHING or dry_run or champion is None:
            return report, True
        if step.do is Do.REGISTER:
            await self._register(str(report.label), offered, champion)
            return report._replace(registered=True), False
        return report._replace(started=await self._start(str(report.label), offered)), False

    async def _step(self, report: SourceReport, offered: Offered) -> tuple[Step, str | None]:
        model, label = self._spec.model_name, str(report.label)
        policy = (await self._parts.registry.show_model(model)).policy
        record = await self._record(label)
        is_same = record is not None and self._is_same(record, offered)
        facts = Facts(
            None if policy is None else policy.champion,
            record is not None,
            is_same,
            record is not None and record.status == RETIRED,
            (),
            sharing=None if policy is None else _sharing(policy),
        )
        if record is not None and is_same and self._spec.on_new is OnNew.ROLLOUT and facts.champion != label:
            facts = await self._with_rollouts(facts, record)
        return next_step(label, self._spec.on_new, facts), facts.champion

    async def _record(self, label: str) -> VersionRecord | None:
        try:
            return await self._parts.registry.show_version(self._spec.model_name, label)
        except NotRegistered:
            return None

    async def _with_rollouts(self, facts: Facts, record: VersionRecord) -> Facts:
        found = await self._parts.rollouts.listing(record.model_name, MAX_ROLLOUTS)
        known = [one for one in found if not isinstance(one, UnreadableRollout)]
        past = [
            PastRollout(one.id, one.state.challenger, one.state.phase, one.state.phase.is_final)
            for one in known
            if one.state.kind is Kind.ROLLOUT
        ]
        # One of the version began after that was registered: older rollouts than these may be its own only then.
        oldest = min((one.state.started_at for one in known), default=0.0)
        is_cut = len(found) >= MAX_ROLLOUTS and record.created_at.timestamp() < oldest
        return facts._replace(rollouts=past, is_cut=is_cut)

    def _is_same(self, record: VersionRecord, offered: Offered) -> bool:
        noted = (record.metrics or {}).get(NOTE) if isinstance(record.metrics, Mapping) else None
        return noted == _note(self._spec, offered)

    async def _register(self, label: str, offered: Offered, champion: str) -> None:
        registry, spec = self._parts.registry, self._spec
        like = await registry.show_version(spec.model_name, spec.like or champion)
        new = new_version(spec, offered, label, like, await self._source.described(offered))
        await self._parts.register(new, self._actor(offered))

    async def _start(self, label: str, offered: Offered) -> int:
        rollouts, asked = self._parts.rollouts, StartAsked(self._spec.model_name, label, self._spec.plan)
        prepared = await rollouts.prepare(asked)
        require_same_inputs(prepared)
        await rollouts.require_ready(asked)
        salt = prepared.plan.salt or token_hex(SALT_BYTES)
        return (await rollouts.start(asked, prepared, salt, self._actor(offered))).id

    def _actor(self, offered: Offered) -> Actor:
        spec = self._spec
        by = f", registered by {offered.by}" if offered.by else ""
        reason = f"{spec.kind}: {spec.registered_model}@{spec.alias} is version {offered.number}{by}"
        return Actor(self._parts.actor, "source", reason)


def new_version(
    spec: SourceSpec, offered: Offered, label: str, like: VersionRecord, described: DescribedModel
) -> NewVersion:
    """Return the version to be registered: like another one, but for its files and where it is served.

    Raises:
        SchemaInvalid: A schema of the other one cannot be compiled: SQL wrote it.
        ModelContradicts: The model has other tensors.
    """
    from understudy.core.schema.compile import compile_input_schema, compile_output_schema  # noqa: PLC0415 - numpy

    inputs, outputs = compile_input_schema(like.input_schema), compile_output_schema(like.output_schema)
    found = contradictions(inputs, outputs, described)
    if found:
        raise ModelContradicts(
            f"{described.source} is unlike version {like.version}: {all_problems(found)}",
            hint="Register it by hand, with schemas of its own; or name another version: like.",
        )
    endpoints = () if spec.group else like.endpoints
    if spec.endpoints is not None:
        endpoints = tuple(target.strip() for target in filled(spec.endpoints, offered).split(",") if target.strip())
    backend: dict[str, Any] = {**like.backend, **{name: filled(text, offered) for name, text in spec.backend.items()}}
    return NewVersion(
        spec.model_name,
        label,
        artifact_of(spec, offered),
        described.framework or like.framework,
        like.input_schema,
        like.output_schema,
        metrics={NOTE: _note(spec, offered)},
        protocol=spec.protocol or like.protocol,
        base_model=like.base_model,
        family=like.family,
        backend=backend,
        deterministic=like.deterministic,
        cache_ttl_seconds=like.cache_ttl_seconds,
        timeout_ms=like.timeout_ms,
        endpoints=endpoints,
        group_name=spec.group,
    )


def _sharing(policy: PolicyRecord) -> str | None:
    """Return a version beside the champion that has a share of the calls; rollouts give shares, and people do."""
    if policy.challenger is not None and policy.challenger_weight > 0:
        return policy.challenger
    return policy.arms[0].arm if policy.arms else None


def _note(spec: SourceSpec, offered: Offered) -> dict[str, Any]:
    return {"kind": spec.kind, "url": spec.url, **offered.note}


def _state_of(problem: UnderstudyError) -> SourceState:
    if isinstance(problem, RegistryUnavailable | SourceAway):
        return SourceState.AWAY
    if isinstance(problem, NotRegistered):
        return SourceState.REFUSED
    return SourceState.WAITING if isinstance(problem, _PASSING) else SourceState.REFUSED
