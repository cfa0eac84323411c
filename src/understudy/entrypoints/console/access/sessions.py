"""Sessions of the console: a signed cookie names the key and the session, and nothing is stored for one that lives.

The scopes are not in the cookie: the key is looked up again with each request, so that a revoked one is out. A link
that signs in once is signed likewise (ADR 133).
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable
from secrets import token_urlsafe
from typing import NamedTuple

import orjson

from understudy.lifecycle.console_link import LINK, console_link, signature

ABSOLUTE_SECONDS = 12 * 3_600.0
IDLE_SECONDS = 3_600.0
RENEWAL_SECONDS = 60.0
"""How old the last sign of use in a cookie is before a page sends a newer one."""
MAX_COOKIE = 1_024
"""Characters of a cookie that are looked at."""
MAX_ENDED = 10_000
"""Sessions that were signed out and are remembered; beyond that the oldest are forgotten, which end by their time."""
SESSION_BYTES = 18
LINK_SECONDS = 60.0
"""How long a link that signs in once is good for."""
MAX_USED = 1_000
"""Links that were used and are remembered until their time is over; while there are so many no further one is taken."""


class ConsoleSession(NamedTuple):
    """Who is signed in. Times are seconds since the epoch."""

    key_id: str
    id: str
    began_at: float
    used_at: float

    def is_over(self, now: float) -> bool:
        """Whether its time is over: 12 h after the sign-in, or an hour without a page or an act."""
        return not (0 <= now - self.began_at < ABSOLUTE_SECONDS and now - self.used_at < IDLE_SECONDS)


class Sessions:
    """Signs and reads the cookies of sessions, and the tokens of their forms.

    Args:
        secret: Signs them; it lets its holder make a session of any key that exists.
        now: The clock, in seconds since the epoch.
        before: The secret that signed them until it was replaced: what it has signed is good still.
    """

    def __init__(self, secret: bytes, now: Callable[[], float], before: bytes | None = None) -> None:
        self._secrets = (secret,) if before is None else (secret, before)
        self._now = now
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._used_links: dict[str, float] = {}
        """When each is over."""

    def start(self, key_id: str) -> ConsoleSession:
        """Return a new session of a key."""
        now = self._now()
        return ConsoleSession(key_id, token_urlsafe(SESSION_BYTES), now, now)

    def cookie(self, session: ConsoleSession) -> str:
        """Return the cookie's value."""
        payload = urlsafe_b64encode(orjson.dumps([*session])).decode()
        return f"{payload}.{self._sign('session', payload)}"

    def read(self, cookie: str | None) -> ConsoleSession | None:
        """Return the session of a cookie; ``None`` where it is none of ours, is over, or was signed out."""
        if cookie is None or len(cookie) > MAX_COOKIE or not cookie.isascii():
            return None
        payload, _, signed = cookie.partition(".")
        if not self._is_signed("session", payload, signed):
            return None
        session = ConsoleSession(*orjson.loads(urlsafe_b64decode(payload)))
        return None if session.is_over(self._now()) or session.id in self._ended else session

    def renewed(self, session: ConsoleSession) -> ConsoleSession | None:
        """Return the session as used now; ``None`` while its cookie says so already."""
        now = self._now()
        return session._replace(used_at=now) if now - session.used_at >= RENEWAL_SECONDS else None

    def end(self, session: ConsoleSession) -> None:
        """Sign out: no cookie of the session is read again by this process."""
        self._ended[session.id] = None
        while len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def form_token(self, session: ConsoleSession) -> str:
        """Return what each form of the session has with it (against cross-site request forgery)."""
        return self._sign("form", session.id)

    def is_form_of(self, session: ConsoleSession, token: str) -> bool:
        """Whether a form's token is the session's."""
        return token.isascii() and self._is_signed("form", session.id, token)

    def link(self, key_id: str) -> str:
        """Return what signs in once with a key, within :data:`LINK_SECONDS`."""
        return console_link(self._secrets[0], key_id, self._now())

    def key_of_link(self, link: str) -> str | None:
        """Return the key that a link signs in with, and use the link up; ``None`` where it is over, used or none."""
        if len(link) > MAX_COOKIE or not link.isascii():
            return None
        payload, _, signed = link.partition(".")
        if not self._is_signed(LINK, payload, signed):
            return None
        key_id, link_id, made_at = orjson.loads(urlsafe_b64decode(payload))
        now = self._now()
        self._used_links = {one: over_at for one, over_at in self._used_links.items() if over_at > now}
        is_good = 0 <= now - made_at < LINK_SECONDS and link_id not in self._used_links
        if not is_good or len(self._used_links) >= MAX_USED:
            return None
        self._used_links[link_id] = made_at + LINK_SECONDS
        return str(key_id)

    def of_proxy(self, name: str) -> ConsoleSession:
        """Return the session of one whom an identity proxy names: it lasts as long as the proxy says so."""
        now = self._now()
        return ConsoleSession(name, self._sign("proxy", name), now, now)

    def _sign(self, purpose: str, text: str) -> str:
        return signature(self._secrets[0], purpose, text)

    def _is_signed(self, purpose: str, text: str, signed: str) -> bool:
        """Whether one of the secrets has signed a text; every one is tried."""
        found = [hmac.compare_digest(signed, signature(one, purpose, text)) for one in self._secrets]
        return any(found)
