"""What a checkup says of callers' keys: which of them end soon."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from shlex import quote

from understudy.ports.registry.registry import KeyRecord
from understudy.registry.findings.finding import Finding, State

SOON = timedelta(days=7)
"""So long before its end a key is named: time to make a new one and bring it to its caller."""
FORGOTTEN = timedelta(days=7)
"""So long after its end an expired key is named: its caller is refused, or has another one by now."""
MAX_NAMED = 20


def judge_keys(keys: Sequence[KeyRecord], now: datetime) -> list[Finding]:
    """Judge the keys that end within a week, or have ended; of others, and of revoked ones, nothing is said."""
    ending = [
        (key.expires_at, key)
        for key in keys
        if key.expires_at is not None and key.revoked_at is None and -FORGOTTEN < key.expires_at - now < SOON
    ]
    return [_of_key(key, expires_at, now) for expires_at, key in sorted(ending, key=lambda one: one[0])[:MAX_NAMED]]


def _of_key(key: KeyRecord, expires_at: datetime, now: datetime) -> Finding:
    note = f" ({key.note})" if key.note else ""
    word = "expires" if expires_at > now else "expired"
    scopes = " ".join(f"--scope {quote(scope)}" for scope in key.scopes)
    return Finding(
        f"key {key.id}",
        State.WARNING,
        f"{word} on {expires_at:%Y-%m-%d %H:%MZ}{note}",
        f"understudy key create {scopes} --expires 30d makes a new one; understudy key revoke {key.id} says that it is "
        "needed no more.",
    )
