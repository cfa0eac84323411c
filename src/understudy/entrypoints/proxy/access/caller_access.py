"""Access of callers, whatever they call: what their keys permit, who they are, and what their calls are charged to."""

import time
from collections.abc import Callable

from understudy.core.routing.access import (
    AnyModel,
    Scope,
    admit,
    key_id_of,
    key_of,
    models_of,
    scopes_of,
    token_of,
)
from understudy.core.routing.known_models import KnownModels
from understudy.core.routing.policy import ApiKey, PolicySnapshot
from understudy.core.routing.rate_limits import NO_LIMIT
from understudy.core.value import Value
from understudy.entrypoints.proxy.messages.headers import HeaderFields, RequestOptions, content_length, read_headers
from understudy.errors import PolicyNotLoaded, UnderstudyError, UnknownModel
from understudy.ports.registry.tokens import TokenReader
from understudy.serving.routing.rate_limits import RateLimiter


class Admitted(Value, frozen=True):
    """A caller that may call a model, for all of its calls in a turn of the event loop."""

    key: ApiKey | None
    is_limited: bool


class CallerAccess:
    """Admits callers, and charges their calls.

    Args:
        snapshot: Returns the policy snapshot, which has the keys.
        needs_key: Whether callers must send a key.
        now: The clock of rate limits, in seconds.
        wall: The clock that keys expire by, in seconds since the epoch.
        rate_limiter: Each key's limits; by default only those of the keys themselves.
        tokens: Reads tokens of an OIDC issuer, which are accepted beside keys; ``None``: none are.
    """

    def __init__(
        self,
        *,
        snapshot: Callable[[], PolicySnapshot | None],
        needs_key: bool,
        now: Callable[[], float],
        wall: Callable[[], float] = time.time,
        rate_limiter: RateLimiter | None = None,
        tokens: TokenReader | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._needs_key = needs_key
        self._now = now
        self._wall = wall
        self._tokens = None if tokens is None else tokens.caller
        self.rate_limiter = RateLimiter(NO_LIMIT) if rate_limiter is None else rate_limiter
        self._known_models = KnownModels()

    def admit(
        self, options: RequestOptions, needed: Scope, model_name: str | AnyModel | None = None, *, charges: bool = True
    ) -> None:
        """Admit a caller and charge the call to its key, unless it ``charges`` nothing because it was charged before.

        Raises:
            QuotaExceeded: The key is at its rate limit.
            UnderstudyError: As :func:`understudy.core.routing.access.admit`.
        """
        snapshot, authorization, tokens = self._snapshot(), options.authorization, self._tokens
        now = self._wall()
        admit(snapshot, authorization, needed, model_name, needs_key=self._needs_key, now=now, tokens=tokens)
        if charges:
            self.rate_limiter.charge(self.key(options), options.content_length, self._now())

    def admitted(self, options: RequestOptions, model_name: str) -> Admitted:
        """Admit a caller of predictions to a model, and charge nothing; raises as :meth:`admit`."""
        snapshot, authorization, tokens = self._snapshot(), options.authorization, self._tokens
        now = self._wall()
        admit(snapshot, authorization, Scope.PREDICT, model_name, needs_key=self._needs_key, now=now, tokens=tokens)
        key = key_of(snapshot, authorization, tokens)
        return Admitted(key, self.rate_limiter.limits(key))

    def charge(self, caller: Admitted, fields: HeaderFields, now: float) -> None:
        """Charge a call to a caller whose calls are limited; raises ``QuotaExceeded``."""
        self.rate_limiter.charge(caller.key, content_length(fields.get(b"content-length")), now)

    def require_key(self, options: RequestOptions) -> None:
        """Let a caller pass whose model is not known yet: one with a key, whatever that permits, where one is needed.

        Raises:
            PolicyNotLoaded: There is a key, but nothing yet to tell whether it is good.
            Unauthenticated: No key where one is needed, or one that is unknown, malformed, revoked or has expired.
        """
        snapshot = self._snapshot()
        if snapshot is None and options.authorization is not None:
            raise PolicyNotLoaded
        self.scopes(options)

    def permitted_models(self, options: RequestOptions, needed: Scope) -> frozenset[str] | None:
        """Return the models for which a caller has a scope; ``None``: all of them.

        Raises:
            Unauthenticated: The key was revoked, or has expired, after the caller was admitted.
        """
        return models_of(self.scopes(options), needed)

    def scopes(self, options: RequestOptions) -> frozenset[str]:
        """Return all scopes of a caller; raises as :meth:`permitted_models`."""
        snapshot = self._snapshot()
        keys = snapshot.keys if snapshot is not None else {}
        return scopes_of(keys, options.authorization, needs_key=self._needs_key, now=self._wall(), tokens=self._tokens)

    def key(self, options: RequestOptions) -> ApiKey | None:
        """Return the key of a caller that was admitted, or its token as one; ``None`` for one that showed none."""
        return key_of(self._snapshot(), options.authorization, self._tokens)

    def actor(self, options: RequestOptions) -> str:
        """Return who a caller that was admitted is, for the audit: a key's id, or a token's subject."""
        token = None if self._tokens is None or options.authorization is None else token_of(options.authorization)
        if token is not None and self._tokens is not None:
            return self._tokens(token).id
        return key_id_of(options.authorization)

    def charge_members(self, options: RequestOptions, more: int) -> None:
        """Charge a batch's members but the first, which was charged when the batch was admitted."""
        self.rate_limiter.charge_members(self.key(options), more, self._now())

    def charge_bytes(self, options: RequestOptions, more: int) -> None:
        """Charge what a body is longer than the call that was admitted said."""
        self.rate_limiter.charge_bytes(self.key(options), more, self._now())

    def explained(self, problem: UnderstudyError, fields: HeaderFields, model_name: str) -> UnderstudyError:
        """Return an error with what its caller may know more: where there is no such model, which there are.

        Args:
            problem: The error.
            fields: The call's headers; they name the caller.
            model_name: What the call is about.
        """
        snapshot = self._snapshot()
        if type(problem) is not UnknownModel or problem.detail != problem.title or snapshot is None:
            return problem
        try:
            permitted = self.permitted_models(read_headers(fields), Scope.READ)
        except UnderstudyError:  # the key has just expired, or was revoked
            return problem
        return self._known_models.unknown(model_name, snapshot.policies, permitted)
