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

from understudy.registry.console_link import LINK, console_link, signature

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


class _Link(NamedTuple):
    """What a link that signs in once has in it."""

    key_id: str
    id: str
    made_at: float


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
        """Return the key that a link signs in with; ``None`` where it is over, used or none."""
        found = self._good_link(link)
        return None if found is None else found.key_id

    def use_link(self, link: str) -> bool:
        """Use a link up, and return whether it was good still: of two who do so at once one is let in."""
        found = self._good_link(link)
        if found is None:
            return False
        self._used_links[found.id] = found.made_at + LINK_SECONDS
        return True

    def of_proxy(self, name: str) -> ConsoleSession:
        """Return the session of one whom an identity proxy names: it lasts as long as the proxy says so.

        Its id is the name, which begins as no key's session does, so that its forms outlive a secret that is replaced.
        """
        now = self._now()
        return ConsoleSession(name, name, now, now)

    def _good_link(self, link: str) -> "_Link | None":
        if len(link) > MAX_COOKIE or not link.isascii():
            return None
        payload, _, signed = link.partition(".")
        if not self._is_signed(LINK, payload, signed):
            return None
        found, now = _Link(*orjson.loads(urlsafe_b64decode(payload))), self._now()
        self._used_links = {one: over_at for one, over_at in self._used_links.items() if over_at > now}
        is_good = 0 <= now - found.made_at < LINK_SECONDS and found.id not in self._used_links
        return found if is_good and len(self._used_links) < MAX_USED else None

    def _sign(self, purpose: str, text: str) -> str:
        return signature(self._secrets[0], purpose, text)

    def _is_signed(self, purpose: str, text: str, signed: str) -> bool:
        """Whether one of the secrets has signed a text; every one is tried."""
        found = [hmac.compare_digest(signed, signature(one, purpose, text)) for one in self._secrets]
        return any(found)
