"""Calls about keys, for a key with the scope ``keys``: make, list, revoke.

Each also raises ``RegistryUnavailable``, ``MigrationNeeded``, ``Overloaded`` and ``DeadlineExceeded``.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf
from typing import Annotated, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from understudy.bootstrap.session import Session
from understudy.core.routing.delegation import excess_of, may_revoke
from understudy.core.routing.policy import ApiKey
from understudy.core.routing.rate_limits import Allowance
from understudy.entrypoints.proxy.control.bodies import Body, Label, documented, problem_of_field
from understudy.entrypoints.proxy.control.handler import READ_SECONDS, WRITE_SECONDS, Bulkhead, ControlCall, answer
from understudy.entrypoints.proxy.control.pages import NEXT, PageAsked, page_of
from understudy.entrypoints.proxy.messages.reply import Reply
from understudy.errors import ScopeMissing
from understudy.ports.registry.registry import KeyLimits, KeyRecord
from understudy.registry.changes import checked_scopes, create_key

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

    @model_validator(mode="after")
    def _check_both(self) -> Self:
        if (self.id is None) != (self.sha256 is None):
            raise problem_of_field("id and sha256 are given together, or neither")
        return self

    @property
    def limits(self) -> KeyLimits:
        """What the key may use, and until when."""
        until = None if self.expires_at is None else _moment_of(self.expires_at)
        return KeyLimits(self.tenant, self.calls_per_second, self.bytes_per_second, until)


async def list_keys(call: ControlCall, asked: PageAsked) -> Reply:
    """Return a page of all keys, oldest first; secrets are kept nowhere."""

    async def read(parts: Session) -> Reply:
        page, cursor = page_of(await parts.registry.list_keys(), _age_of, asked)
        return answer({"keys": [key._asdict() for key in page], NEXT: cursor})

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def make_key(call: ControlCall, body: bytes, own: ApiKey) -> Reply:
    """Make a key that is no more than the caller's ``own``.

    Raises:
        MalformedBody, BodyInvalid: The body.
        ScopeMissing: It would be more than the caller's key: in scopes, life, tenant or limits.
        PolicyRefused: There is no such scope, or a limit is none.
        LoginNotAllowed: The proxy's login may make no keys.
    """
    asked = KeyCreation.read(body)
    checked_scopes(asked.scopes)
    excess = excess_of(own, _as_key("", asked.scopes, asked.limits))
    if excess is not None:
        raise ScopeMissing(excess)
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


async def revoke_key(call: ControlCall, key_id: str, own: ApiKey) -> Reply:
    """Revoke a key that may do no more than the caller's ``own``; one that is revoked stays so.

    Raises:
        NotRegistered: There is no such key.
        ScopeMissing: It has a scope that the caller has not, or is another tenant's.
        LoginNotAllowed: The proxy's login may revoke no keys.
    """

    async def end(parts: Session) -> Reply:
        found = next((key for key in await parts.registry.list_keys() if key.id == key_id), None)
        if found is not None and not may_revoke(own, _as_key(found.id, found.scopes, KeyLimits(found.tenant))):
            raise ScopeMissing("a key revokes none that may do more than itself, and none of another tenant")
        return answer({"key": (await parts.registry.revoke_key(key_id, call.actor(None)))._asdict(), "dry_run": False})

    return await call.run(Bulkhead.WRITE, end, WRITE_SECONDS)


def _age_of(key: KeyRecord) -> str:
    """Return a key's place among all: one text is before another where its key is older."""
    return f"{key.created_at.timestamp():.6f}.{key.id}"


def _as_key(key_id: str, scopes: Sequence[str], limits: KeyLimits) -> ApiKey:
    until = inf if limits.expires_at is None else limits.expires_at.timestamp()
    allowance = Allowance(limits.calls_per_second, limits.bytes_per_second)
    return ApiKey(key_id, b"", frozenset(scopes), limits.tenant, allowance, until)


def _moment_of(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        return None if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):  # in UTC it may be before the year 1
        return None
