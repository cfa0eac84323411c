"""``TokenReader`` of one OIDC issuer: signatures by its published keys, and what was verified kept until it is over.

Source:
    RFC 7515 (JSON Web Signature), RFC 7519 (JSON Web Token), RFC 8725 (JSON Web Token Best Current Practices).
"""

import asyncio
import json
import time
import warnings
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

import structlog
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jws import JWSRegistry, deserialize_compact, extract_compact

from understudy.adapters.oidc.published_keys import NotFetched, PublicKey, PublishedKeys
from understudy.core.routing.access import MAX_TOKEN
from understudy.core.routing.policy import ApiKey
from understudy.core.routing.token_rules import TokenRules
from understudy.errors import TokenKeysAway, Unauthenticated

_log = structlog.get_logger(__name__)
ALGORITHMS = ("RS256", "ES256", "EdDSA")
"""All of them by the issuer's public key: never ``none``, and never one by a secret that the issuer shares."""
REFRESH_SECONDS = 300.0
REFETCH_SECONDS = 10.0
"""Between two fetches, whatever tokens name."""
MAX_STALE_SECONDS = 86_400.0
"""For so long keys are believed that could not be fetched again."""
RETRY_SECONDS = 30.0
"""After a fetch that failed."""
MAX_ASKED = 256
"""Names of unknown keys that are remembered between two fetches; one more is refused as it was before."""
MAX_KID = 512
"""Characters of a key's name that is remembered."""
MAX_KEPT = 4_096
"""Verified tokens that are kept; the oldest goes first, and is verified again."""
_OWN_KEYS = frozenset({"jku", "jwk", "x5u", "x5c", "crit"})
"""Header fields by which a token would bring a key, or name an address of one, or ask for what is not understood."""
_HINT = "Send a token of the issuer that this proxy is configured for, or a key: understudy key create makes one."


class OidcTokens:
    """Reads the tokens of one issuer.

    Args:
        rules: Which are accepted, and for what.
        fetch: Returns the issuer's keys, or raises :class:`NotFetched`.
        algorithms: Of :data:`ALGORITHMS`, those that are accepted.
        wall: The clock that tokens end by, in seconds since the epoch.
        now: The clock of fetches, in seconds.
        refetch_seconds: Between two fetches, whatever tokens name.
        max_kept: Verified tokens that are kept.
        tell_away: Called after each fetch with how long the keys could not be fetched, in seconds; 0: they were.
    """

    def __init__(
        self,
        rules: TokenRules,
        fetch: Callable[[], Awaitable[PublishedKeys]],
        *,
        algorithms: Collection[str] = ALGORITHMS,
        wall: Callable[[], float] = time.time,
        now: Callable[[], float] = time.monotonic,
        refetch_seconds: float = REFETCH_SECONDS,
        max_kept: int = MAX_KEPT,
        tell_away: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._rules = rules
        self._fetch = fetch
        self._algorithms = frozenset(algorithms)
        # RFC 7515 §4: fields that are not understood are passed over; what must be understood is in "crit".
        self._registry = JWSRegistry(algorithms=sorted(algorithms), strict_check_header=False)
        self._registry.max_header_length = self._registry.max_signature_length = MAX_TOKEN
        self._wall = wall
        self._now = now
        self._refetch_seconds = refetch_seconds
        self._max_kept = max_kept
        self._tell_away = tell_away
        self._failing_since: float | None = None
        self._asked: set[str] = set()
        """Keys that tokens named since the last fetch began, and that are not known."""
        self._absent: frozenset[str] = frozenset()
        """Those that the last fetch was to bring, and did not."""
        self._keys: PublishedKeys = {}
        self._fetched_at: float | None = None
        self._wanted = asyncio.Event()
        self._kept: dict[bytes, ApiKey] = {}

    def caller(self, token: str) -> ApiKey:
        """Return the bearer of a token; one that was verified before costs a digest and a look-up."""
        digest = sha256(token.encode()).digest()
        found = self._kept.get(digest)
        if found is not None and found.expires_at > self._wall():
            return found
        found = self._rules.caller_of(self._verified(token), self._wall())
        self._kept.pop(digest, None)
        while len(self._kept) >= self._max_kept:
            del self._kept[next(iter(self._kept))]
        self._kept[digest] = found
        return found

    async def run(self) -> None:
        """Fetch the keys now, every :data:`REFRESH_SECONDS`, and when a token names one that is not known."""
        while True:
            self._wanted.clear()
            await self.fetch_once()
            await asyncio.sleep(self._refetch_seconds)
            idle_seconds = REFRESH_SECONDS if self._failing_since is None else RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, idle_seconds - self._refetch_seconds)):
                    await self._wanted.wait()

    async def fetch_once(self) -> None:
        """Fetch the keys; where that fails, those from before stay."""
        asked, self._asked = self._asked, set()
        try:
            keys = await self._fetch()
        except NotFetched as problem:
            _log.warning("oidc.keys_not_fetched", why=str(problem))
            self._failing_since = self._now() if self._failing_since is None else self._failing_since
            self._tell_away(max(1.0, self._now() - self._failing_since))
            if self._is_stale():
                self._kept.clear()  # or what they signed would be believed for longer than they are
            return
        if not keys:  # nothing is believed then: the issuer may have taken back the only one
            _log.warning("oidc.no_keys", why="the issuer publishes no key for RS256, ES256 or EdDSA")
        names, before = set(keys), set(self._keys)
        if names != before or any(keys[name].thumbprint() != self._keys[name].thumbprint() for name in names):
            self._kept.clear()  # what a key signed that is not published any more is not believed any more
        self._keys, self._fetched_at, self._failing_since = keys, self._now(), None
        self._absent = frozenset(asked - {kid for kid, _ in keys})
        self._tell_away(0.0)

    def __len__(self) -> int:
        """Return how many verified tokens are kept."""
        return len(self._kept)

    def _is_stale(self) -> bool:
        return self._fetched_at is not None and self._now() - self._fetched_at > MAX_STALE_SECONDS

    def _verified(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token whose signature is the issuer's."""
        key = self._key_of(self._header_of(token))
        try:
            with warnings.catch_warnings():
                # RFC 9864 has another name for EdDSA by this curve, which issuers do not use yet.
                warnings.simplefilter("ignore", SecurityWarning)
                claims = json.loads(deserialize_compact(token.encode(), key, registry=self._registry).payload)
        except JoseError:
            raise Unauthenticated("the token's signature is wrong", hint=_HINT) from None
        except (ValueError, RecursionError):
            raise Unauthenticated("what the token says is no JSON", hint=_HINT) from None
        if not isinstance(claims, dict):
            raise Unauthenticated("what the token says is no JSON object", hint=_HINT)
        return claims

    def _header_of(self, token: str) -> Mapping[str, Any]:
        try:
            header = dict(extract_compact(token.encode(), registry=self._registry).headers())
        except (JoseError, ValueError, TypeError, AttributeError, RecursionError):
            raise Unauthenticated("the token is no signed JWT", hint=_HINT) from None
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            allowed = ", ".join(sorted(self._algorithms))
            raise Unauthenticated(f"the token's algorithm is none of {allowed}", hint=_HINT)
        if not _OWN_KEYS.isdisjoint(header):
            raise Unauthenticated("the token brings a key, or the address of one", hint=_HINT)
        return header

    def _key_of(self, header: Mapping[str, Any]) -> PublicKey:
        """Return the issuer's key that a token names, or its only one of that kind for a token that names none."""
        if self._fetched_at is None or self._is_stale():
            self._wanted.set()
            raise TokenKeysAway
        age = self._now() - self._fetched_at
        algorithm, kid = str(header["alg"]), header.get("kid")
        if kid is None:
            fitting = [key for (_, one), key in self._keys.items() if one == algorithm]
            if len(fitting) == 1:
                return fitting[0]
            raise Unauthenticated("the token does not name its key (kid)", hint=_HINT)
        if not isinstance(kid, str):
            raise Unauthenticated("the token does not name its key (kid)", hint=_HINT)
        found = self._keys.get((kid, algorithm))
        if found is not None:
            return found
        if any(known == kid for known, _ in self._keys):
            raise Unauthenticated("the token's algorithm is not that of its key", hint=_HINT)
        if len(kid) > MAX_KID:
            raise Unauthenticated("the token names a key (kid) that its issuer does not publish", hint=_HINT)
        if age < self._refetch_seconds and (kid in self._absent or len(self._asked) >= MAX_ASKED):
            raise Unauthenticated("the token names a key (kid) that its issuer does not publish", hint=_HINT)
        # Also a moment after a fetch: the issuer may have published the key since.
        self._asked.add(kid)
        self._wanted.set()
        raise TokenKeysAway("the token names a key that is not known yet, and the issuer's keys are fetched again")
