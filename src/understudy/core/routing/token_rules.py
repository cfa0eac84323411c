"""What a token of an OIDC issuer gives its bearer: whose it has to be, and which claims give which scopes."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from understudy.core.routing.policy import ApiKey
from understudy.core.routing.token_grants import Grant, claim_of, given_scopes, texts_of
from understudy.errors import Unauthenticated

ACTOR = "oidc:"
"""What an actor's name begins with whose token was accepted: no subject passes for a key or for a login."""
MAX_ACTOR = 200
"""Characters of a name in the audit."""


class TokenRules(NamedTuple):
    """Which tokens are accepted, and for what."""

    issuer: str
    audience: str
    grants: Sequence[Grant]
    actor_claim: str = "sub"
    leeway_seconds: float = 60.0
    max_seconds: float = 86_400.0
    """Longest life of a token: nothing but its end revokes it."""

    def caller_of(self, claims: Mapping[str, Any], now: float) -> ApiKey:
        """Return the bearer of a token whose signature is good, as a key with its scopes, and its end.

        Args:
            claims: All that the token says.
            now: In seconds since the epoch.

        Raises:
            Unauthenticated: It is another issuer's, for another audience, over, not valid yet, valid for too long, or
                names no actor. A token without a scope is good, and enough for nothing.
        """
        if claims.get("iss") != self.issuer:
            raise Unauthenticated("the token is of another issuer", hint=_HINT)
        if self.audience not in texts_of(claims.get("aud")):
            raise Unauthenticated("the token is for another audience", hint=_HINT)
        ends_at = self._end_of(claims, now)
        return ApiKey(self._actor_of(claims), b"", given_scopes(self.grants, claims), expires_at=ends_at)

    def _end_of(self, claims: Mapping[str, Any], now: float) -> float:
        ends_at, begins_at, made_at = (_seconds(claims, name) for name in ("exp", "nbf", "iat"))
        if ends_at is None:
            raise Unauthenticated("the token has no end: no claim exp", hint=_HINT)
        if ends_at + self.leeway_seconds <= now:
            raise Unauthenticated("the token has expired", hint=_HINT)
        if begins_at is not None and begins_at - self.leeway_seconds > now:
            raise Unauthenticated("the token is not valid yet", hint=_HINT)
        if made_at is not None and made_at - self.leeway_seconds > now:
            raise Unauthenticated("the token was issued in the future", hint=_HINT)
        if ends_at - (now if made_at is None else made_at) > self.max_seconds:
            raise Unauthenticated(f"the token is valid for more than {self.max_seconds:g} s", hint=_HINT)
        return ends_at + self.leeway_seconds

    def _actor_of(self, claims: Mapping[str, Any]) -> str:
        name = claim_of(claims, self.actor_claim)
        if not isinstance(name, str) or not 0 < len(name) <= MAX_ACTOR or not name.isprintable():
            raise Unauthenticated(f"the token's claim {self.actor_claim} names no actor", hint=_HINT)
        return ACTOR + name


_HINT = "Have the issuer make a new one for this proxy."


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    said = claims.get(name)
    if said is None:
        return None
    if isinstance(said, bool) or not isinstance(said, int | float) or abs(said) > _MAX_SECONDS or not isfinite(said):
        raise Unauthenticated(f"the token's claim {name} is no time", hint=_HINT)
    return float(said)


_MAX_SECONDS = 253_402_300_799
"""The end of the year 9999."""
