"""What an engineer does to the registry beyond reading it: register a version, change a policy, make a key."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from secrets import token_hex, token_urlsafe
from typing import Any, NamedTuple

from understudy.core.loading.digest import is_digest
from understudy.core.loading.served_name import served_name
from understudy.core.prediction_log.archive_plan import MAX_FOLDER_BYTES, fits_folder
from understudy.core.routing.access import Scope, is_scope
from understudy.core.routing.policy_file import MAX_LABEL, MAX_NAME
from understudy.core.upstream.same_call import SameCall, same_calls
from understudy.errors import PolicyRefused, SchemaInvalid
from understudy.ports.registry.registry import (
    NO_KEY_LIMITS,
    RETIRED,
    Actor,
    ChangedPolicy,
    FileWords,
    KeyLimits,
    KeyRecord,
    NewVersion,
    Registry,
    VersionRecord,
)
from understudy.registry.policy_changes import complete_changes

SEVERAL_OUTPUTS = frozenset({"oip", "oip-http", "tfserving"})
"""Protocols of model servers whose versions may have outputs beside the judged one."""
SECRET_BYTES = 32
KEY_ID_BYTES = 6
_TYPES: Mapping[str, tuple[type, ...]] = {
    "champion": (str,),
    "challenger": (str, type(None)),
    "challenger_weight": (int,),
    "shadow": (str, type(None)),
    "shadow_percent": (int,),
    "fallback": (bool,),
    "salt": (str, type(None)),
    "category_roles": (dict,),
    "rollout_id": (int, type(None)),
    "input_sample_percent": (int,),
    "arms": (tuple,),
    "guard": (str,),
    "on_drift": (str,),
    "category_holdout_percent": (int,),
}
POLICY_FIELDS = tuple(_TYPES)
"""What :func:`set_policy` can change; a role is the version's text, or ``None`` for no version; ``arms`` are ranges."""


class NewKey(NamedTuple):
    """A key that was just made. Its secret is here and nowhere else: the registry holds a hash of it."""

    record: KeyRecord
    secret: str

    @property
    def credential(self) -> str:
        """What the caller sends after ``Authorization: Bearer``."""
        return f"{self.record.id}.{self.secret}"


async def register_version(
    registry: Registry, new: NewVersion, actor: Actor, *, replace: bool = False, dry_run: bool = False
) -> VersionRecord:
    """Register a version after its schemas have been compiled; the audit gets ``actor``.

    With a group its backend has the name under which agents load it. With ``replace`` it takes the place of a version
    of its name that never served.

    Raises:
        SchemaInvalid: A proxy could not use its ``input_schema`` or ``output_schema``; nothing was registered.
        AlreadyRegistered: The model has a version of this name.
        VersionInUse: It is to be replaced, and was deployed or called, or agents have it loaded.
        PolicyRefused: A value is outside what the registry takes.
        RegistryUnavailable: Postgres does not answer in time.
    """
    if not 0 < len(new.model_name) <= MAX_NAME or not 0 < len(new.version) <= MAX_LABEL:
        raise PolicyRefused(
            f"a model's name has 1 to {MAX_NAME} characters and a version's 1 to {MAX_LABEL}",
            hint="Choose short names: they are labels of metrics and parts of paths.",
        )
    if not fits_folder(new.model_name):
        raise PolicyRefused(
            "the model's name cannot be the name of a folder, of which the archive of the prediction log has one for"
            f" each model: with 'model=' before it, and %XX for what paths may not hold, it has at most"
            f" {MAX_FOLDER_BYTES} bytes in UTF-8",
            hint="Choose a shorter name: names are labels of metrics and parts of paths.",
        )
    from understudy.core.schema.compile import compile_input_schema, compile_output_schema  # noqa: PLC0415 - numpy

    schema = compile_input_schema(new.input_schema)
    if compile_output_schema(new.output_schema).also and new.protocol not in SEVERAL_OUTPUTS:
        raise SchemaInvalid(
            f"output_schema.also: versions of the protocol {new.protocol} have one output;"
            f" those of {', '.join(sorted(SEVERAL_OUTPUTS))} may have several"
        )
    if ":" in new.model_name and schema.stored_names:
        await _require_known(registry, new.model_name)
    if new.group_name is not None:
        _require_digest(new.artifact_digest)
        named = {"model_name": served_name(new.model_name, new.version)}
        new = new._replace(backend={**new.backend, **named})
    return await registry.add_version(new, actor, replace=replace, dry_run=dry_run)


def _require_digest(digest: str | None) -> None:
    """Refuse what no agent could compare with an artifact: its load would be what fails."""
    if digest is not None and not is_digest(digest):
        raise PolicyRefused(
            f"artifact_digest is {digest!r:.80}, not sha256: and 64 hex digits",
            hint="Leave it out, and agents pin the digest of what they fetch first; or see "
            "docs/how-to/load-models.md, which has the command that prints it.",
        )


async def champion_of(registry: Registry, model_name: str) -> VersionRecord | None:
    """Return the champion of a model; ``None`` while it has no policy, or no version at all.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    if not await registry.list_versions(model_name):
        return None
    policy = (await registry.show_model(model_name)).policy
    return None if policy is None else await registry.show_version(model_name, policy.champion)


async def same_calls_of(registry: Registry, made: VersionRecord) -> list[SameCall]:
    """Return which other versions, retired ones aside, a model server may not tell from a version that was registered.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    others = await registry.list_versions(made.model_name)
    return same_calls(made, [other for other in others if other.status != RETIRED])


async def _require_known(registry: Registry, model_name: str) -> None:
    """Refuse a new model with stored features whose keys in Redis could be another model's: ``:`` parts them.

    ``features:shop:vip:42`` is the entity ``vip:42`` of ``shop``, and 42 of ``shop:vip``. A model that is there already
    goes on.
    """
    if not await registry.list_versions(model_name):
        raise PolicyRefused(
            f"the name {model_name!r} has a colon and the model has stored features, whose keys in Redis then may be"
            " those of another model's entities",
            hint="Choose a name without a colon, or send all features with each call.",
        )


async def set_policy(
    registry: Registry,
    model_name: str,
    changes: Mapping[str, Any],
    actor: Actor,
    *,
    expected_generation: int | None = None,
    file: FileWords | None = None,
    dry_run: bool = False,
) -> ChangedPolicy:
    """Change fields of a policy (:data:`POLICY_FIELDS`), or make a model's first one; the audit gets ``actor``.

    A challenger that is taken away takes its weight with it. With ``file`` it is kept what the change comes from.

    Raises:
        PolicyRefused: A field is unknown or of the wrong type, or the database refuses the change.
        NotRegistered: A role names a version that the model does not have.
        GenerationMoved: The policy is not at ``expected_generation``; nothing was changed.
        RegistryUnavailable: Postgres does not answer in time.
    """
    complete = complete_changes(changes)
    for field, value in complete.items():
        _check_field(field, value)
    return await registry.set_policy(
        model_name, complete, actor, expected_generation=expected_generation, file=file, dry_run=dry_run
    )


async def create_key(
    registry: Registry,
    scopes: Sequence[str],
    note: str | None,
    actor: Actor,
    limits: KeyLimits = NO_KEY_LIMITS,
) -> NewKey:
    """Make a caller's key with scopes: ``predict``, ``outcomes``, ``read``, ``operate``, or for one ``read:<model>``.

    Raises:
        PolicyRefused: No scope, or one that does not exist, or a limit that is none.
        RegistryUnavailable: Postgres does not answer in time.
    """
    wanted = checked_scopes(scopes)
    secret = token_urlsafe(SECRET_BYTES)
    hashed = sha256(secret.encode()).hexdigest()
    record = await registry.add_key(token_hex(KEY_ID_BYTES), hashed, wanted, note=note, actor=actor, limits=limits)
    return NewKey(record, secret)


def checked_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    """Return the scopes of a new key, each once.

    Raises:
        PolicyRefused: There is none, or one that does not exist.
    """
    wanted = tuple(dict.fromkeys(scopes))
    unknown = [scope for scope in wanted if not is_scope(scope)]
    if unknown or not wanted:
        raise PolicyRefused(
            f"there is no scope {unknown[0]!r}" if unknown else "a key needs at least one scope",
            hint=f"Choose from {', '.join(Scope)}; for one model add its name, such as {Scope.READ}:<model>.",
        )
    return wanted


def _check_field(field: str, value: Any) -> None:
    if field not in _TYPES:
        raise PolicyRefused(f"a policy has no field {field!r}", hint=f"Its fields are {', '.join(POLICY_FIELDS)}.")
    permitted = _TYPES[field]
    is_number_from_bool = isinstance(value, bool) and bool not in permitted
    if not isinstance(value, permitted) or is_number_from_bool:
        names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in permitted)
        raise PolicyRefused(
            f"{field} is {names}, not {type(value).__name__}", hint=f"Give {field} a value of that type."
        )
