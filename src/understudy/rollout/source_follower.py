"""Follows a source of versions: registers the version that its label names, and starts its rollout, once."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Final, NamedTuple

from understudy.core.loading.image_tag import names_same_image
from understudy.core.loading.state import LoadingState
from understudy.core.rollout.sources.version_source import (
    NOTE,
    Delay,
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
    is_noted,
    labels_of,
    next_step,
    note_of,
)
from understudy.core.rollout.state import Kind
from understudy.core.schema.described import DescribedModel, all_problems, contradictions
from understudy.errors import (
    AlreadyRegistered,
    ArtifactUnreachable,
    GenerationMoved,
    ModelContradicts,
    NotRegistered,
    PolicyRefused,
    QuotaExceeded,
    RegistryUnavailable,
    ServingError,
    SourceAway,
    UnderstudyError,
    VersionNotReady,
)
from understudy.ports.loading.loading_registry import VersionLoading, VersionLoadingRecord
from understudy.ports.registry.registry import RETIRED, Actor, NewVersion, PolicyRecord, Registry, VersionRecord
from understudy.ports.registry.version_source import VersionSource
from understudy.ports.rollout.rollout_store import UnreadableRollout
from understudy.rollout.operations import RolloutOperations, StartAsked
from understudy.rollout.start.start import require_same_inputs

MAX_ROLLOUTS: Final = 100
"""Of a model, among which one of the version is looked for."""
SALT_BYTES: Final = 4
WANTED_SECONDS: Final = 7_200.0
"""How long agents keep a version without a role: until the rollout before it is over, they are asked again."""
_STEPS: Final = 6
"""Register, have it loaded, start, and see what came of it; again after each race that was lost."""
_PASSING = (VersionNotReady, GenerationMoved, RegistryUnavailable, ArtifactUnreachable, ServingError, QuotaExceeded)
"""What another look, a minute later, may not meet again."""
_RACES = (AlreadyRegistered, GenerationMoved, PolicyRefused)
"""What another process that looks at the same moment may be the reason of."""
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


def not_looked_at(spec: SourceSpec, why: str) -> SourceReport:
    """Return the report of a look that could not begin, or did not end."""
    return SourceReport(spec.name, spec.kind, spec.model_name, None, SourceState.AWAY, f"not looked at: {why}")


class ControlParts(NamedTuple):
    """This installation, over the database or over HTTP."""

    registry: Registry
    rollouts: RolloutOperations
    loading: VersionLoading
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
            if offered is None:
                return report._replace(detail=f"there is no {self._spec.alias} at its registry")
            report = report._replace(label=filled(self._spec.version, offered))
            lost: set[type[UnderstudyError]] = set()
            for _ in range(_STEPS):
                try:
                    report, is_over = await self._advance(report, offered, dry_run=dry_run)
                except _RACES as problem:
                    if type(problem) in lost:
                        raise
                    lost.add(type(problem))
                    continue  # what another process did meanwhile is looked at
                if is_over:
                    break
        except UnderstudyError as problem:
            return report._replace(state=_state_of(problem), detail=problem.detail)
        return report

    async def _advance(self, report: SourceReport, offered: Offered, *, dry_run: bool) -> tuple[SourceReport, bool]:
        """Do the next thing; return what is to be told of it, and whether it was the last."""
        facts = await self._facts(offered)
        step = next_step(self._spec, offered, facts)
        label = facts.label or facts.free_label or str(report.label)
        report = report._replace(state=step.state, detail=step.detail, label=label)
        if step.do is Do.NOTHING or dry_run or facts.champion is None:
            return report, True
        actor = Actor(self._parts.actor, "source", offered.reason)
        if step.do is Do.REGISTER:
            await self._register(label, offered, facts.champion, actor)
            # Agents were told by that; without them nothing keeps the rollout waiting.
            told = f"version {label} is registered, and agents load it"
            report = report._replace(registered=True, detail=told if self._spec.group else step.detail)
            return report, self._spec.group is not None and self._spec.on_new is OnNew.ROLLOUT
        if step.do is Do.LOAD:
            await self._parts.loading.load(
                self._spec.model_name, label, actor, group_name=self._spec.group, seconds=WANTED_SECONDS
            )
            return report, True
        if await self._source.offered() != offered:
            return report._replace(detail=f"the label has moved on from version {label} meanwhile"), True
        return report._replace(started=await self._start(label, step, actor)), False

    async def _facts(self, offered: Offered) -> Facts:
        spec = self._spec
        policy = (await self._parts.registry.show_model(spec.model_name)).policy
        record, free = await self._version_of(offered)
        facts = Facts(None if policy is None else policy.champion, None if record is None else record.version, free)
        if record is None or spec.on_new is OnNew.REGISTER or facts.champion == record.version:
            return facts
        return facts._replace(
            is_retired=record.status == RETIRED,
            had_role=record.deployed_at is not None,
            rollouts=await self._rollouts(),
            sharing=None if policy is None else _sharing(policy),
            delay=_delay(await self._parts.loading.show(spec.model_name, record.version), spec, datetime.now(UTC)),
        )

    async def _version_of(self, offered: Offered) -> tuple[VersionRecord | None, str | None]:
        """Return the version that is offered, under whatever label it is here, and a label that it can have else."""
        free = None
        for label in labels_of(self._spec, offered):
            record = await self._record(label)
            if record is not None and self._is_same(record, offered):
                return record, None
            free = label if record is None and free is None else free
        others = await self._parts.registry.list_versions(self._spec.model_name)
        return next((one for one in reversed(others) if self._is_same(one, offered)), None), free

    async def _record(self, label: str) -> VersionRecord | None:
        try:
            return await self._parts.registry.show_version(self._spec.model_name, label)
        except NotRegistered:
            return None

    def _is_same(self, record: VersionRecord, offered: Offered) -> bool:
        return is_noted(record.metrics, offered) or names_same_image(record.artifact_path, offered.artifact)

    async def _rollouts(self) -> list[PastRollout]:
        found = await self._parts.rollouts.listing(self._spec.model_name, MAX_ROLLOUTS)
        return [
            PastRollout(one.id, one.state.challenger, one.state.phase, one.state.phase.is_final)
            for one in found
            if not isinstance(one, UnreadableRollout) and one.state.kind is Kind.ROLLOUT
        ]

    async def _register(self, label: str, offered: Offered, champion: str, actor: Actor) -> None:
        registry, spec = self._parts.registry, self._spec
        like = await registry.show_version(spec.model_name, spec.like or champion)
        await self._parts.register(
            new_version(spec, offered, label, like, await self._source.described(offered)), actor
        )

    async def _start(self, label: str, step: Step, actor: Actor) -> int:
        rollouts, asked = self._parts.rollouts, StartAsked(self._spec.model_name, label, step.plan)
        prepared = await rollouts.prepare(asked)
        try:
            require_same_inputs(prepared)
        except VersionNotReady as problem:  # which no server's coming back mends
            raise ModelContradicts(problem.detail, hint=problem.next_step) from None
        await rollouts.require_ready(asked)
        salt = prepared.plan.salt or token_hex(SALT_BYTES)
        return (await rollouts.start(asked, prepared, salt, actor)).id


def new_version(
    spec: SourceSpec, offered: Offered, label: str, like: VersionRecord, described: DescribedModel | None
) -> NewVersion:
    """Return the version to be registered: like another one, but for its files and where it is served.

    Raises:
        SchemaInvalid: A schema of the other one cannot be compiled: SQL wrote it.
        ModelContradicts: The model has other tensors.
    """
    if described is not None:
        _require_alike(like, described)
    endpoints = () if spec.group else like.endpoints
    if spec.endpoints is not None:
        endpoints = tuple(target.strip() for target in filled(spec.endpoints, offered).split(",") if target.strip())
    backend: dict[str, Any] = {**like.backend, **{name: filled(text, offered) for name, text in spec.backend.items()}}
    return NewVersion(
        spec.model_name,
        label,
        artifact_of(spec, offered),
        like.framework if described is None else described.framework or like.framework,
        like.input_schema,
        like.output_schema,
        metrics={NOTE: note_of(spec, offered)},
        protocol=spec.protocol or like.protocol,
        base_model=like.base_model,
        family=like.family,
        backend=backend,
        deterministic=like.deterministic,
        cache_ttl_seconds=like.cache_ttl_seconds,
        timeout_ms=like.timeout_ms,
        endpoints=endpoints,
        group_name=spec.group,
        requires_validation=spec.require_validation,
    )


def _require_alike(like: VersionRecord, described: DescribedModel) -> None:
    from understudy.core.schema.compile import compile_input_schema, compile_output_schema  # noqa: PLC0415 - numpy

    inputs, outputs = compile_input_schema(like.input_schema), compile_output_schema(like.output_schema)
    found = contradictions(inputs, outputs, described)
    if found:
        raise ModelContradicts(
            f"{described.source} is unlike version {like.version}: {all_problems(found)}",
            hint="Register it by hand, with schemas of its own; or name another version: like.",
        )


def _sharing(policy: PolicyRecord) -> str | None:
    """Return a version beside the champion that has a share of the calls; rollouts give shares, and people do."""
    if policy.challenger is not None and policy.challenger_weight > 0:
        return policy.challenger
    return policy.arms[0].arm if policy.arms else None


def _delay(loading: VersionLoadingRecord | None, spec: SourceSpec, now: datetime) -> Delay | None:
    """Return why agents do not have a version yet; ``None``: they have, or it is none of theirs."""
    if loading is None:
        return None if spec.group is None else Delay("no agent loads it", is_wanted=False)
    if not loading.is_kept and (loading.wanted_until is None or loading.wanted_until <= now):
        return Delay("agents have not been asked for it of late", is_wanted=False)
    wanted = [one for one in loading.servers if one.why is not None]
    failed = next((one for one in wanted if one.state == LoadingState.ERROR), None)
    if failed is not None:
        words = f"{failed.server} could not load it: {failed.error_code} {failed.error}"
        return Delay(words, is_final=not failed.will_retry)
    if not wanted or any(one.state != LoadingState.AVAILABLE for one in wanted):
        return Delay("it is being loaded")
    return Delay(loading.unvalidated) if loading.unvalidated else None


def _state_of(problem: UnderstudyError) -> SourceState:
    if isinstance(problem, RegistryUnavailable | SourceAway):
        return SourceState.AWAY
    return SourceState.WAITING if isinstance(problem, _PASSING) else SourceState.REFUSED
