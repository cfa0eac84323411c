"""Sessions of the console: a signed cookie names the key and the session, and nothing is stored for one that lives.

The scopes are not in the cookie: the key is looked up again with each request, so that a revoked one is out.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from secrets import token_urlsafe
from typing import NamedTuple

import orjson

ABSOLUTE_SECONDS = 12 * 3_600.0
IDLE_SECONDS = 3_600.0
RENEWAL_SECONDS = 60.0
"""How old the last sign of use in a cookie is before a page sends a newer one."""
MAX_COOKIE = 1_024
"""Characters of a cookie that are looked at."""
MAX_ENDED = 10_000
"""Sessions that were signed out and are remembered; beyond that the oldest are forgotten, which end by their time."""
SESSION_BYTES = 18


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
    """

    def __init__(self, secret: bytes, now: Callable[[], float]) -> None:
        self._secret = secret
        self._now = now
        self._ended: OrderedDict[str, None] = OrderedDict()

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
        payload, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature, self._sign("session", payload)):
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
        return token.isascii() and hmac.compare_digest(token, self.form_token(session))

    def _sign(self, purpose: str, text: str) -> str:
        digest = hmac.new(self._secret, f"{purpose}:{text}".encode(), sha256).digest()
        return urlsafe_b64encode(digest).decode().rstrip("=")
