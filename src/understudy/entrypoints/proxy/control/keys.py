"""Calls about keys, for a key with the scope ``keys``: make, list, revoke.

Each also raises ``RegistryUnavailable``, ``MigrationNeeded``, ``Overloaded`` and ``DeadlineExceeded``.
"""

from datetime import UTC, datetime
from math import inf
from typing import Annotated, Any

from pydantic import ConfigDict, Field, field_validator

from understudy.bootstrap.session import Session
from understudy.core.routing.access import scopes_beyond
from understudy.core.routing.policy import ApiKey
from understudy.entrypoints.proxy.control.bodies import Body, Label, documented, problem_of_field
from understudy.entrypoints.proxy.control.handler import READ_SECONDS, WRITE_SECONDS, Bulkhead, ControlCall, answer
from understudy.entrypoints.proxy.messages.reply import Reply
from understudy.errors import ScopeMissing
from understudy.lifecycle.registry import checked_scopes, create_key
from understudy.ports.registry.registry import KeyLimits

_MAX_SCOPES, _MAX_SCOPE, _MAX_NOTE = 1_000, 300, 1_000


class KeyCreation(Body):
    """A key to be made: by the proxy, which then tells its secret once, or of a secret that only the caller knows."""

    model_config = ConfigDict(
        json_schema_extra=documented(
            {"scopes": ["predict:visits"], "note": "the shop", "expires_at": "2027-01-31T00:00:00Z"}
        )
    )

    scopes: list[Annotated[str, Field(min_length=1, max_length=_MAX_SCOPE)]] = Field(
        min_length=1, max_length=_MAX_SCOPES, description="No scope that the caller's own key has not."
    )
    note: Annotated[str, Field(max_length=_MAX_NOTE)] | None = None
    tenant: Label | None = None
    calls_per_second: float | None = None
    bytes_per_second: float | None = None
    expires_at: str | None = Field(None, max_length=100, description="ISO 8601 with a zone; then it is refused.")
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")] | None = Field(
        None, description="With sha256: the id of a key whose secret the caller made."
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(None, description="Of that secret, in hex.")

    @field_validator("expires_at")
    @classmethod
    def _check_moment(cls, text: str | None) -> str | None:
        if text is not None and _moment_of(text) is None:
            raise problem_of_field("expected a moment with a zone, such as 2027-01-31T00:00:00Z")
        return text

    @field_validator("sha256")
    @classmethod
    def _check_both(cls, digest: str | None, asked: Any) -> str | None:
        if (digest is None) != (asked.data.get("id") is None):
            raise problem_of_field("id and sha256 are given together, or neither")
        return digest

    @property
    def limits(self) -> KeyLimits:
        """What the key may use, and until when."""
        until = None if self.expires_at is None else _moment_of(self.expires_at)
        return KeyLimits(self.tenant, self.calls_per_second, self.bytes_per_second, until)


async def list_keys(call: ControlCall) -> Reply:
    """Return every key; secrets are kept nowhere."""

    async def read(parts: Session) -> Reply:
        return answer({"keys": [key._asdict() for key in await parts.registry.list_keys()]})

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def make_key(call: ControlCall, body: bytes, own: ApiKey) -> Reply:
    """Make a key with scopes that the caller's ``own`` key has, and that does not outlast it.

    Raises:
        MalformedBody, BodyInvalid: The body.
        ScopeMissing: It asks for a scope that the caller has not, or outlasts the caller's key.
        PolicyRefused: There is no such scope, or a limit is none.
        LoginNotAllowed: The proxy's login may make no keys.
    """
    asked = KeyCreation.read(body)
    if scopes_beyond(own.scopes, checked_scopes(asked.scopes)):
        raise ScopeMissing("a key gives no scope that it has not itself")
    until = asked.limits.expires_at
    if own.expires_at < inf and (until is None or until.timestamp() > own.expires_at):
        raise ScopeMissing("a key that expires makes none that outlasts it: expires_at is missing, or too late")
    actor = call.actor(None)

    async def store(parts: Session) -> Reply:
        if asked.id is not None and asked.sha256 is not None:
            record = await parts.registry.add_key(
                asked.id, asked.sha256, asked.scopes, note=asked.note, actor=actor, limits=asked.limits
            )
            return answer({"key": record._asdict()}, 201)
        made = await create_key(parts.registry, asked.scopes, asked.note, actor, asked.limits)
        return answer({"key": made.record._asdict(), "credential": made.credential}, 201)

    return await call.run(Bulkhead.WRITE, store, WRITE_SECONDS)


async def revoke_key(call: ControlCall, key_id: str) -> Reply:
    """Revoke a key; one that is revoked stays so.

    Raises:
        NotRegistered: There is no such key.
        LoginNotAllowed: The proxy's login may revoke no keys.
    """

    async def end(parts: Session) -> Reply:
        return answer({"key": (await parts.registry.revoke_key(key_id, call.actor(None)))._asdict(), "dry_run": False})

    return await call.run(Bulkhead.WRITE, end, WRITE_SECONDS)


def _moment_of(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else found.astimezone(UTC)
