"""Tries at the login: a few wrong secrets a minute by key id and address, by address alone, and by key id alone."""

from collections import OrderedDict, deque
from collections.abc import Callable

from understudy.errors import TooManyLogins

TRIES_OF_BOTH, TRIES_OF_ADDRESS, TRIES_OF_KEY = 5, 60, 20
"""Few of one key id from one address; many of an address: behind an ingress all browsers have its own. A secret has 256
bits: guessing is hopeless."""
WINDOW_SECONDS = 60.0
MAX_COUNTED = 10_000
"""Addresses and key ids that are counted; beyond that the ones tried longest ago are forgotten."""


class LoginTries:
    """Counts tries within a minute. A try counts before it is looked at, so that many at once are no way around.

    Args:
        now: The clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._tries: OrderedDict[str, deque[float]] = OrderedDict()

    def begin(self, address: str, key_id: str) -> None:
        """Count a try.

        Raises:
            TooManyLogins: There were too many, of the address or of the key id.
        """
        now = self._now()
        counted = [(self._of(name, limit), limit) for name, limit in _counted(address, key_id).items()]
        for tries, limit in counted:
            while tries and now - tries[0] >= WINDOW_SECONDS:
                tries.popleft()
            if len(tries) >= limit:
                raise TooManyLogins(retry_after_seconds=max(1, round(WINDOW_SECONDS - (now - tries[0]))))
        for tries, _ in counted:
            tries.append(now)

    def forgive(self, address: str, key_id: str) -> None:
        """Take back a try that was no wrong key."""
        for name in _counted(address, key_id):
            tries = self._tries.get(name)
            if tries:
                tries.pop()

    def _of(self, name: str, limit: int) -> deque[float]:
        tries = self._tries.pop(name, None) or deque(maxlen=limit)
        self._tries[name] = tries
        while len(self._tries) > MAX_COUNTED:
            self._tries.popitem(last=False)
        return tries


def _counted(address: str, key_id: str) -> dict[str, int]:
    """Return what a try is counted by, and how many there may be of each within a minute."""
    found = {f"address {address}": TRIES_OF_ADDRESS}
    if key_id:  # else it is a link, or no key at all: anyone's nonsense would refuse the others' links
        found |= {f"key {key_id}": TRIES_OF_KEY, f"both {address} {key_id}": TRIES_OF_BOTH}
    return found
