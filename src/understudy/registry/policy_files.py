"""Policies beside their files: what differs, what others changed since a file was applied, and applying it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from understudy.core.first_names import first_names
from understudy.core.rollout.state import Kind
from understudy.core.routing.arms import arm_percents
from understudy.core.routing.policy_file import PolicyFile
from understudy.errors import (
    FileProblem,
    NotRegistered,
    PolicyContradicted,
    PolicyFileInvalid,
    PolicyRefused,
    ScopeMissing,
)
from understudy.ports.registry.registry import (
    Actor,
    AppliedFile,
    AuditEntry,
    AuditSubject,
    ChangedPolicy,
    FileWords,
    PolicyRecord,
    Registry,
)
from understudy.ports.rollout.rollout_store import RolloutListing, UnreadableRollout
from understudy.registry.changes import set_policy
from understudy.registry.policy_changes import MOVING, with_arms
from understudy.registry.rollback_moves import moves_undone, newest_change

MAX_CHANGES = 200
"""Of a policy's newest changes, those that are searched for who changed a field."""
_MAX_ROLLOUTS = 10
"""Newest ones of a model: the open one is among them, or its guards, one for each version that is watched."""
_ROLES = ("champion", "challenger", "shadow")


class Contradiction(NamedTuple):
    """A field that is not as the file said when it was last applied."""

    field: str
    said: Any
    now: Any
    by: AuditEntry | None = None
    """The newest change of the field since then; ``None``: it is not among the newest changes of the policy."""
    is_move: bool = False
    """Whether a rollout, a guard or a rollback set a field that no applied file named: ``said`` is then unknown."""


class Comparison(NamedTuple):
    """A policy beside its file."""

    file: PolicyFile
    policy: PolicyRecord | None
    applied: AppliedFile | None
    differences: Mapping[str, tuple[Any, Any]]
    """The fields that are not as the file says: what holds now, and what the file says."""
    contradictions: Sequence[Contradiction] = ()
    """What others changed since the file was applied."""
    open_rollout: int | None = None
    """The rollout that moves what the file would set."""

    @property
    def generation(self) -> int:
        """Of the policy as it was read; 0: there is none."""
        return self.policy.generation if self.policy is not None else 0

    @property
    def is_equal(self) -> bool:
        """Whether the policy is as the file says, and known to be from it: to apply it would change nothing."""
        words = FileWords(self.file.path, self.file.fields)
        known = self.applied and FileWords(self.applied.path, self.applied.fields)
        return not self.differences and words == known


def values_of(policy: PolicyRecord) -> dict[str, Any]:
    """Return a policy's fields as a file has them."""
    return {**policy._asdict(), "arms": arm_percents(policy.arms)}


def contradictions_of(applied: AppliedFile, policy: PolicyRecord) -> list[Contradiction]:
    """Return the fields that are not as the file said when it was applied; what is no field is passed over."""
    values = values_of(policy)
    return [
        Contradiction(name, said, values[name])
        for name, said in applied.fields.items()
        if name in values and values[name] != said
    ]


async def explained_contradictions(
    registry: Registry, applied: AppliedFile, policy: PolicyRecord
) -> list[Contradiction]:
    """Return :func:`contradictions_of` with the newest change of each field since the file was applied."""
    found = contradictions_of(applied, policy)
    if not found:
        return []
    return _explained(found, applied, await _changes_of(registry, policy))


async def _changes_of(registry: Registry, policy: PolicyRecord) -> Sequence[AuditEntry]:
    return await registry.list_audit(policy.model_name, MAX_CHANGES, AuditSubject.POLICY)


def _explained(
    found: Iterable[Contradiction], applied: AppliedFile, changes: Iterable[AuditEntry]
) -> list[Contradiction]:
    since = [entry for entry in changes if (entry.generation or 0) > applied.generation]
    return [one._replace(by=newest_change([_column(one.field)], since)) for one in found]


async def compare(registry: Registry, rollouts: RolloutListing, files: Sequence[PolicyFile]) -> list[Comparison]:
    """Return each file beside its model's policy.

    Raises:
        PolicyFileInvalid: A file names a model or a version that is not registered.
        RegistryUnavailable: Postgres does not answer in time.
    """
    models = {model.model_name: model for model in await registry.list_models()}
    applied = {one.model_name: one for one in await registry.list_applied()}
    unknown = [file for file in files if file.model_name not in models]
    problems = [file.problem("model", await _unknown_words(registry, file.model_name, models)) for file in unknown]
    compared = [
        await _comparison(registry, rollouts, file, models[file.model_name].policy, applied.get(file.model_name))
        for file in files
        if file.model_name in models
    ]
    problems += [problem for one in compared for problem in await _unknown_versions(registry, one)]
    if problems:
        raise PolicyFileInvalid.naming(problems)
    return compared


async def _unknown_words(registry: Registry, model_name: str, models: Iterable[str]) -> str:
    """Return why a model is not among those that were listed: a key may read few of them."""
    try:
        await registry.show_model(model_name)
    except ScopeMissing as problem:
        return f"the key may not read the model {model_name!r}: {problem.detail}"
    except NotRegistered:
        pass
    return f"no model {model_name!r} is registered; there are: {listed(models)}"


def refuse_contradicted(compared: Iterable[Comparison]) -> None:
    """Refuse to undo what others changed since a file was applied, or what an open rollout moves.

    Raises:
        PolicyContradicted: With each field of each file.
    """
    problems = [
        one.file.problem(contradiction.field, contradiction_words(contradiction, one.applied))
        for one in compared
        for contradiction in one.contradictions
        if contradiction.field in one.differences
    ]
    problems += [
        one.file.problem(min(one.differences.keys() & MOVING), rollout_words(one))
        for one in compared
        if one.open_rollout is not None
    ]
    if problems:
        raise PolicyContradicted.naming(problems)


def is_contradicted(compared: Comparison) -> bool:
    """Whether the file would undo what others changed."""
    return any(contradiction.field in compared.differences for contradiction in compared.contradictions)


def contradiction_words(contradiction: Contradiction, applied: AppliedFile | None) -> str:
    """Return what a file said of a field, what holds now, and whose change that was."""
    said, now = value_words(contradiction.said), value_words(contradiction.now)
    by = contradiction.by
    if by is not None and contradiction.is_move:
        who = "the monitor" if by.actor == "monitor" else f"{by.actor} via {by.via}"
        why = f": {by.reason}" if by.reason else ""
        return f"{contradiction.field} is {now}: {who} set it so at {by.changed_at:%Y-%m-%d %H:%M:%SZ}{why}"
    path = applied.path if applied is not None else "the file"
    words = f"{contradiction.field} was {said} when {path} was applied, and is {now} now"
    return words if by is None else f"{words}: {by.actor} via {by.via} at {by.changed_at:%Y-%m-%d %H:%M:%SZ}"


def rollout_words(compared: Comparison) -> str:
    """Return that an open rollout moves what the file would set."""
    return f"rollout {compared.open_rollout} of {compared.file.model_name} is open and moves this split itself"


async def propose(
    registry: Registry, compared: Sequence[Comparison], actor: Actor
) -> list[tuple[Comparison, ChangedPolicy]]:
    """Try each change in the database and take it back, before the first one is made.

    Raises:
        PolicyFileInvalid: With everything that the database refuses.
        GenerationMoved: A policy has changed since it was compared.
        RegistryUnavailable: Postgres does not answer in time.
    """
    proposed: list[tuple[Comparison, ChangedPolicy]] = []
    problems: list[FileProblem] = []
    for one in compared:
        try:
            proposed.append((one, await apply_file(registry, one, actor, dry_run=True)))
        except (PolicyRefused, NotRegistered) as refused:
            problems.append(one.file.problem(named_field(refused.detail, one.differences), _refusal_words(refused)))
    if problems:
        raise PolicyFileInvalid.naming(problems)
    return proposed


async def apply_file(registry: Registry, compared: Comparison, actor: Actor, *, dry_run: bool = False) -> ChangedPolicy:
    """Change a policy to what its file says, in one transaction, if it is as it was compared; the audit names the file.

    Raises:
        PolicyRefused, NotRegistered: The database refuses the change.
        GenerationMoved: The policy has changed since it was compared; nothing was changed.
        RegistryUnavailable: Postgres does not answer in time.
    """
    file, policy = compared.file, compared.policy
    changes = {name: said for name, (_, said) in compared.differences.items()}
    arms = file.fields.get("arms")
    if changes and arms is not None:
        ended = dict.fromkeys(arm_percents(policy.arms) if policy is not None else (), 0)
        changes.pop("arms", None)  # those of the file, whether they differ or only have to make room
        changes = with_arms(policy, changes, {**ended, **arms})
    reason = f"{file.path}: {actor.reason}" if actor.reason else file.path
    return await set_policy(
        registry,
        file.model_name,
        changes,
        actor._replace(reason=reason),
        expected_generation=compared.generation,
        file=FileWords(file.path, file.fields),
        dry_run=dry_run,
    )


async def _comparison(
    registry: Registry,
    rollouts: RolloutListing,
    file: PolicyFile,
    policy: PolicyRecord | None,
    applied: AppliedFile | None,
) -> Comparison:
    if policy is None:
        return Comparison(file, None, applied, {name: (None, said) for name, said in file.fields.items()})
    values = values_of(policy)
    differences = {name: (values[name], said) for name, said in file.fields.items() if values[name] != said}
    contradictions = await _all_contradictions(registry, differences, applied, policy)
    open_rollout = await open_rollout_of(rollouts, policy) if differences.keys() & MOVING else None
    return Comparison(file, policy, applied, differences, contradictions, open_rollout)


async def _all_contradictions(
    registry: Registry,
    differences: Mapping[str, tuple[Any, Any]],
    applied: AppliedFile | None,
    policy: PolicyRecord,
) -> list[Contradiction]:
    """Return what contradicts the applied file, and what rollouts set that no file knew and this one would undo."""
    found = contradictions_of(applied, policy) if applied is not None else []
    wanted = {name: said for name, (_, said) in differences.items()}
    if not found and not wanted.keys() & MOVING:
        return []
    changes = await _changes_of(registry, policy)
    told = _explained(found, applied, changes) if applied is not None else []
    known = {one.field for one in found}
    values = values_of(policy)
    return told + [
        Contradiction(name, None, values[name], entry, is_move=True)
        for name, entry in moves_undone(wanted, policy, changes).items()
        if name not in known and not _is_known(name, entry, applied)
    ]


def _is_known(field: str, entry: AuditEntry, applied: AppliedFile | None) -> bool:
    """Whether a file named the field after that change."""
    return applied is not None and field in applied.fields and (entry.generation or 0) <= applied.generation


async def open_rollout_of(rollouts: RolloutListing, policy: PolicyRecord) -> int | None:
    """Return the rollout that moves the policy's split; a guard watches it, and moves nothing."""
    if policy.rollout_id is None:
        return None
    newest = await rollouts.listing(policy.model_name, _MAX_ROLLOUTS)
    kinds = {one.id: one.kind if isinstance(one, UnreadableRollout) else one.state.kind for one in newest}
    guards = {number for number, kind in kinds.items() if kind == Kind.GUARD}
    return None if policy.rollout_id in guards else policy.rollout_id


async def _unknown_versions(registry: Registry, compared: Comparison) -> list[FileProblem]:
    """Return the versions that a file would give a role and the model does not have."""
    file = compared.file
    named = [(role, file.fields[role]) for role in _ROLES if role in compared.differences and file.fields[role]]
    named += [("arms", arm) for arm in file.fields.get("arms", ()) if "arms" in compared.differences]
    if not named:
        return []
    known = [version.version for version in await registry.list_versions(file.model_name)]
    return [
        file.problem(field, f"{file.model_name} has no version {version!r}; it has: {listed(known)}")
        for field, version in named
        if version not in known
    ]


def _refusal_words(refused: PolicyRefused | NotRegistered) -> str:
    """Return what was refused, with the advice that this refusal has of its own."""
    if refused.next_step == type(refused).hint:
        return refused.detail
    return f"{refused.detail.removesuffix('.')}. {refused.next_step}"


def named_field(detail: str, fields: Iterable[str]) -> str:
    """Return the field that the database's words are about, by its first word; else ``model``."""
    longest = sorted(fields, key=len, reverse=True)  # a challenger_weight is no challenger
    named = [field for field in longest if field in detail] or [
        field for field in longest if field.partition("_")[0] in detail
    ]
    return named[0] if named else "model"


def _column(field: str) -> str:
    """Return a field's column: the audit has policies as rows."""
    return f"{field}_version" if field in _ROLES else field


def value_words(value: Any) -> str:
    """Return a field's value as a file has it, in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{name}: {of_it}" for name, of_it in value.items()) or "{}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def listed(names: Iterable[str], at_most: int = 20) -> str:
    """Return names in one line, the first ones of many."""
    return first_names(names, at_most) or "none"
