"""Access of callers: keys, the scopes and models that a key gives, and whether a call is admitted."""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, StrEnum
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from understudy.core.first_names import first_names
from understudy.core.routing.policy_file import MAX_NAME
from understudy.errors import PolicyNotLoaded, ScopeMissing, Unauthenticated

if TYPE_CHECKING:  # numpy, which a command about keys does not need
    from understudy.core.routing.policy import ApiKey, PolicySnapshot

MAX_CREDENTIAL = 512
"""Characters of a credential that are looked at; a longer one is refused before it is hashed."""


MAX_TOKEN = 16_384
"""Characters of a token of another issuer that are looked at: of Entra, one with 200 groups has some 9,000."""
Tokens = Callable[[str], "ApiKey"]
"""Returns the bearer of a token that an OIDC issuer made, as if it had shown a key; raises ``UnderstudyError``."""


class Scope(StrEnum):
    """What a key may do, with all models. ``read:{model}`` is ``READ`` for one model, and so for the others."""

    PREDICT = "predict"
    OUTCOMES = "outcomes"
    READ = "read"
    OPERATE = "operate"
    REGISTER = "register"
    """Register versions and name their model servers: addresses that proxies call, and tokens that these get."""
    KEYS = "keys"
    """Make, list and revoke keys; no key gives another one a scope that it has not itself."""


def is_scope(text: str) -> bool:
    """Whether there is such a scope, for all models or for one."""
    kind, separator, model_name = text.partition(":")
    if separator:
        return kind in _OF_A_MODEL and 0 < len(model_name) <= MAX_NAME and "\0" not in model_name
    return kind in _OF_A_MODEL or kind == Scope.KEYS


_OF_A_MODEL = frozenset(Scope) - {Scope.KEYS}


class AnyModel(Enum):
    """The type of :data:`ANY_MODEL`."""

    ANY_MODEL = "any model"


ANY_MODEL = AnyModel.ANY_MODEL
"""What a route about several models asks for: a scope for one of them admits the caller, to that model's part alone."""
_NO_KEY = "Send one: Authorization: Bearer <id>.<secret>; of commands, context set --key-file or UNDERSTUDY_CREDENTIAL."
_MAX_NAMED = 5
"""Scopes of a key that a refusal names."""
ANONYMOUS = frozenset({Scope.PREDICT.value, Scope.READ.value})
"""What a caller without a key may do where no key is asked for (loopback): not force versions, not change policies."""


def admit(
    snapshot: "PolicySnapshot | None",
    authorization: str | None,
    needed: Scope,
    model_name: str | AnyModel | None = None,
    *,
    needs_key: bool,
    now: float,
    tokens: Tokens | None = None,
) -> None:
    """Let a caller pass who may do what is ``needed``; a scope for one model must name ``model_name``.

    ``tokens`` reads those of an OIDC issuer; ``None``: there are none beside keys.

    Raises:
        PolicyNotLoaded: There is a key, but nothing yet to tell whether it is good.
        Unauthenticated: No key where one is needed, or one that is unknown, malformed, revoked or has expired.
        TokenKeysAway: There is a token, and its issuer's keys are not there yet.
        ScopeMissing: The key is good, but not for this.
    """
    if snapshot is None and authorization is not None:
        raise PolicyNotLoaded
    keys = snapshot.keys if snapshot is not None else {}
    scopes = scopes_of(keys, authorization, needs_key=needs_key, now=now, tokens=tokens)
    try:
        require(scopes, needed, model_name)
    except ScopeMissing as problem:
        if authorization is None:
            raise ScopeMissing(f"no key was sent: {problem.detail}", hint=_NO_KEY) from None
        raise


def scopes_of(
    keys: "Mapping[str, ApiKey]",
    authorization: str | None,
    *,
    needs_key: bool,
    now: float,
    tokens: Tokens | None = None,
) -> frozenset[str]:
    """Return the scopes of a caller.

    Args:
        keys: Every key that is not revoked, by id.
        authorization: The header's value, ``Bearer <id>.<secret>``.
        needs_key: Whether a caller without a key is refused.
        now: In seconds since the epoch: a key may have an end.
        tokens: As of :func:`admit`.

    Raises:
        Unauthenticated: No key where one is needed, or one that is unknown, malformed, revoked or has expired.
    """
    if authorization is None:
        if needs_key:
            raise Unauthenticated("no key was sent, and this proxy asks every caller for one")
        return ANONYMOUS
    token = None if tokens is None else token_of(authorization)
    if token is not None and tokens is not None:
        bearer = tokens(token)
        if bearer.expires_at <= now:
            raise Unauthenticated("the token has expired")
        return bearer.scopes
    kind, _, credential = authorization.partition(" ")
    key_id, _, secret = credential.strip().partition(".")
    if kind.lower() != "bearer" or not secret or len(credential) > MAX_CREDENTIAL:
        raise Unauthenticated("expected 'Authorization: Bearer <id>.<secret>'")
    key = keys.get(key_id)
    stored = key.sha256 if key is not None else b"\0" * 32
    matches = compare_digest(sha256(secret.encode()).digest(), stored)
    if key is None or not matches:
        raise Unauthenticated("the key is unknown or revoked")
    if key.expires_at <= now:
        raise Unauthenticated("the key has expired", hint="understudy key create --expires makes a new one.")
    return key.scopes


def token_of(authorization: str) -> str | None:
    """Return the JSON Web Token that a header has; ``None`` where it has a key, or nothing that is good."""
    kind, _, credential = authorization.partition(" ")
    credential = credential.strip()
    # Three parts, of which the first is JSON: "{" is "e" and more in base64. The id of a key is in hex.
    is_token = credential.count(".") == 2 and credential.startswith("ey")  # noqa: PLR2004 - header, claims, signature
    if not is_token or kind.lower() != "bearer":
        return None
    if len(credential) > MAX_TOKEN or not credential.isascii():
        raise Unauthenticated(f"a token has at most {MAX_TOKEN} characters, all of ASCII")
    return credential


def key_id_of(authorization: str | None) -> str:
    """Return the id of the key that a caller showed, whether it is good or not; ``anonymous`` without one."""
    if authorization is None:
        return "anonymous"
    return authorization.partition(" ")[2].strip().partition(".")[0]


def key_of(
    snapshot: "PolicySnapshot | None", authorization: str | None, tokens: Tokens | None = None
) -> "ApiKey | None":
    """Return the key of a caller that was let in, or what its token is as one; ``None`` for one that showed none."""
    if snapshot is None or authorization is None:
        return None
    token = None if tokens is None else token_of(authorization)
    if token is not None and tokens is not None:
        return tokens(token)
    return snapshot.keys.get(key_id_of(authorization))


def models_of(scopes: frozenset[str], needed: Scope) -> frozenset[str] | None:
    """Return the models for which a caller has a scope; ``None``: all of them."""
    if needed in scopes:
        return None
    prefix = f"{needed}:"
    return frozenset(scope.removeprefix(prefix) for scope in scopes if scope.startswith(prefix))


def scopes_beyond(scopes: frozenset[str], wanted: Iterable[str]) -> list[str]:
    """Return the scopes of a new key that its maker has not, for all models or for the one that is named."""
    return [scope for scope in wanted if scope not in scopes and scope.partition(":")[0] not in scopes]


def require(scopes: frozenset[str], needed: Scope, model_name: str | AnyModel | None = None) -> None:
    """Let the caller pass, or say which scope is missing, and which of that kind the key has.

    Raises:
        ScopeMissing: Naming the scope.
    """
    if needed in scopes or (model_name is not None and f"{needed}:{model_name}" in scopes):
        return
    if model_name is ANY_MODEL and models_of(scopes, needed):
        return
    raise ScopeMissing(f"this needs a key with scope {_missing(scopes, needed, model_name)}")


def _missing(scopes: frozenset[str], needed: Scope, model_name: str | AnyModel | None) -> str:
    """Return the scope that is missing, and those of its kind that the key has: the path's model may be misspelt."""
    own = sorted(scope for scope in scopes if scope.startswith(f"{needed}:"))
    if not own:
        return repr(needed.value)
    has = f"this one has {first_names(own, _MAX_NAMED)}"
    if not isinstance(model_name, str):
        return f"{needed.value!r} for all models; {has}"
    # Of a predict call the name may come from its body, whose values no answer repeats; no model has such a name.
    is_told = needed is not Scope.PREDICT and len(model_name) <= MAX_NAME and model_name.isprintable()
    return f"'{needed}:{model_name}'; {has}" if is_told else f"{needed.value!r}; {has}"
