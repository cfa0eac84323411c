"""Visitors: who sends a request, by the session's key as the registry has it at this moment."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple
from weakref import WeakValueDictionary

from understudy.core.routing.access import MAX_CREDENTIAL, Scope, models_of
from understudy.core.routing.policy import ApiKey
from understudy.entrypoints.console.access.sessions import ConsoleSession
from understudy.entrypoints.console.questions import ACT_SECONDS, PATIENCE_SECONDS, within
from understudy.errors import DeadlineExceeded, Overloaded, RegistryUnavailable, Unauthenticated
from understudy.ports.registry.key_lookup import KeyLookup

KEPT_SECONDS = 2.0
"""How long a key is taken to be what it was."""
AWAY_SECONDS = 900.0
"""How long it is taken so for looking on, but for no act, while Postgres does not answer: the last picture stays."""
MAX_KEPT = 1_000
PLACES = 4
"""Keys that are looked up at a time for acts."""
_UNREADABLE = (RegistryUnavailable, DeadlineExceeded, Overloaded)
_BEARER = "bearer "
_NOT_GOOD = "the key is unknown, revoked, or may neither read nor operate"


class Visitor(NamedTuple):
    """Who looks at a page."""

    session: ConsoleSession
    scopes: frozenset[str]
    is_read_only: bool = False
    """Whether the console carries out no acts, whatever the key may do."""
    is_of_proxy: bool = False
    """Whether a proxy in front names the visitor, and no key: who signs out does so there."""

    @property
    def signs_as(self) -> str:
        """What the audit names, in words."""
        return self.session.key_id if self.is_of_proxy else f"key {self.session.key_id}"

    def may_read(self, model_name: str) -> bool:
        """Whether the visitor may see a model: with ``read`` or ``operate``, for it or for all."""
        return any(_has(self.scopes, scope, model_name) for scope in (Scope.READ, Scope.OPERATE))

    def may_operate(self, model_name: str) -> bool:
        """Whether the visitor may change who answers a model's calls."""
        return not self.is_read_only and _has(self.scopes, Scope.OPERATE, model_name)

    @property
    def models(self) -> frozenset[str] | None:
        """The models that the visitor may see; ``None``: all of them."""
        reads, operates = models_of(self.scopes, Scope.READ), models_of(self.scopes, Scope.OPERATE)
        return None if reads is None or operates is None else reads | operates

    def role_for(self, model_name: str) -> str:
        """Return what the visitor may do to a model, in a word."""
        return "operate" if self.may_operate(model_name) else "read"

    @property
    def role(self) -> str:
        """What the visitor may do, in a word."""
        return "operate" if not self.is_read_only and _may(self.scopes, Scope.OPERATE) else "read"


class Visitors:
    """Looks keys up: at the login by their secret, later by their id.

    However many requests and keys there are, one look-up at a time runs for those who look, and one of a key for acts.

    Args:
        keys: Where keys are.
        monotonic: The clock that a look-up ages by.
    """

    def __init__(self, keys: KeyLookup, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._monotonic = monotonic
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._asking: dict[str, _Asking] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._places, self._act_places = asyncio.Semaphore(1), asyncio.Semaphore(PLACES)
        self._renewing: asyncio.Task[None] | None = None
        self._used_at: dict[str, float] = {}
        """When each kept key was asked for last by one who looks."""

    async def check(self, credential: str) -> ApiKey:
        """Return the key of a credential, ``<id>.<secret>``; one that is pasted with its header is taken too.

        Raises:
            Unauthenticated: It is unknown, malformed or revoked, or may neither read nor operate.
            RegistryUnavailable: Postgres does not answer in time.
        """
        key_id, secret = parts_of(credential)
        key = await self._keys.find(key_id) if secret else None
        stored = key.sha256 if key is not None else b"\0" * 32
        matches = compare_digest(sha256(secret.encode()).digest(), stored)
        if key is None or not matches or not may_enter(key.scopes):
            raise Unauthenticated(_NOT_GOOD, hint="Paste the key as <id>.<secret>; understudy key create makes one.")
        return key

    async def entering(self, key_id: str) -> ApiKey:
        """Return a key that was shown to be its bearer's by other means than its secret.

        Raises:
            Unauthenticated: There is none, it was revoked, or it may neither read nor operate.
            RegistryUnavailable: Postgres does not answer in time.
        """
        key = await self._keys.find(key_id)
        if key is None or not may_enter(key.scopes):
            raise Unauthenticated(_NOT_GOOD, hint="Sign in with a key that is good.")
        return key

    async def of(self, session: ConsoleSession, *, acts: bool = False) -> Visitor | None:
        """Return who a session's requests come from; ``None`` once its key is revoked, or may look no more.

        With ``acts`` the key is looked up whatever is known of it.

        Raises:
            RegistryUnavailable: Postgres does not answer in time, nor did it lately.
            Overloaded, DeadlineExceeded: Too many keys are looked up.
        """
        known = await (self._for_act(session.key_id) if acts else self._for_look(session.key_id))
        key = known.key
        return Visitor(session, key.scopes) if key is not None and may_enter(key.scopes) else None

    async def _for_act(self, key_id: str) -> "_Kept":
        """Look a key up anew: no act relies on what was read before it came. Those of one key wait for each other."""
        lock = self._locks.get(key_id)
        if lock is None:
            lock = self._locks[key_id] = asyncio.Lock()
        try:
            async with asyncio.timeout(ACT_SECONDS), lock:
                found = await within(self._act_places, lambda: self._keys.find(key_id), ACT_SECONDS)
        except TimeoutError:
            raise Overloaded("too many acts are sent with this key") from None
        return self._keep(key_id, found)

    async def _for_look(self, key_id: str) -> "_Kept":
        """Return what is known of a key; a newer answer is waited for briefly where there is an earlier one."""
        now, known = self._monotonic(), self._kept.get(key_id)
        self._used_at[key_id] = now
        if known is not None and now - known.tried_at < KEPT_SECONDS:
            return known
        asking = self._asking.get(key_id)
        if asking is None:
            asking = self._asking[key_id] = _Asking(asyncio.get_running_loop().create_future(), now)
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.create_task(self._renew())
        if known is not None and now - known.read_at >= AWAY_SECONDS:
            known = None
        patience = max(0.0, PATIENCE_SECONDS - (now - asking.began_at))
        # Waiting ends no look-up: others wait for it, too.
        await asyncio.wait((asking.answered,), timeout=None if known is None else patience)
        problem = asking.answered.result() if asking.answered.done() else None
        if problem is None:
            return self._kept.get(key_id) or known or _Kept(None, now, now)
        if known is None or not isinstance(problem, _UNREADABLE):
            raise problem
        return known

    async def _renew(self) -> None:
        """Look up what is waited for until nothing is: all keys at a time are one question, as are all viewers."""
        while self._asking:
            waiting = dict(self._asking)
            problem: Exception | None = None
            try:
                await self._look_up({*waiting, *self._soon_asked()})
            except _UNREADABLE as found:
                problem = found.as_value()
                for key_id in waiting:
                    if (known := self._kept.get(key_id)) is not None:
                        self._kept[key_id] = known._replace(tried_at=self._monotonic())
            except Exception as defect:  # noqa: BLE001 - each one who waits raises it
                problem = defect
            for key_id, asking in waiting.items():
                del self._asking[key_id]
                asking.answered.set_result(problem)

    async def _look_up(self, key_ids: set[str]) -> None:
        found = await within(self._places, lambda: self._keys.find_all(key_ids), ACT_SECONDS)
        for key_id in key_ids:
            self._keep(key_id, found.get(key_id))

    def _soon_asked(self) -> set[str]:
        """Return keys of open pages whose time is half over: asked for now, they need no question of their own."""
        now = self._monotonic()
        return {
            key_id
            for key_id, known in self._kept.items()
            if now - self._used_at.get(key_id, now - KEPT_SECONDS) < KEPT_SECONDS
            and now - known.tried_at >= KEPT_SECONDS / 2
        }

    def _keep(self, key_id: str, key: ApiKey | None) -> "_Kept":
        now = self._monotonic()
        found = self._kept[key_id] = _Kept(key, now, now)
        self._kept.move_to_end(key_id)
        while len(self._kept) > MAX_KEPT:
            self._used_at.pop(self._kept.popitem(last=False)[0], None)
        return found


class _Kept(NamedTuple):
    key: ApiKey | None
    read_at: float
    tried_at: float


class _Asking(NamedTuple):
    """A look-up that runs."""

    answered: "asyncio.Future[Exception | None]"
    began_at: float


def parts_of(credential: str) -> tuple[str, str]:
    """Return a credential's key id and secret; the secret is empty where it is no credential."""
    text = credential.strip().removeprefix("Authorization:").strip()
    if text.lower().startswith(_BEARER):
        text = text[len(_BEARER) :].strip()
    key_id, _, secret = text.partition(".")
    return (key_id, secret) if key_id and len(text) <= MAX_CREDENTIAL else ("", "")


def may_enter(scopes: frozenset[str]) -> bool:
    """Whether these scopes let anyone in: to look or to act, if only at one model."""
    return _may(scopes, Scope.READ) or _may(scopes, Scope.OPERATE)


def _may(scopes: frozenset[str], scope: Scope) -> bool:
    """Whether there is any model for which the scope is there."""
    models = models_of(scopes, scope)
    return models is None or bool(models)


def _has(scopes: frozenset[str], scope: Scope, model_name: str) -> bool:
    models = models_of(scopes, scope)
    return models is None or model_name in models
