"""The in-memory twin of ``adapters/postgres/monitoring/lease.py``: one object is the row that holders compete for."""

from collections.abc import Callable

from understudy.errors import RegistryUnavailable
from understudy.ports.monitoring.lease import LEASE_SECONDS, Epoch


class MemoryLease:
    """A :class:`understudy.ports.monitoring.lease.Lease` in this process, which expires by the clock ``now``."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.available = True
        """Whether calls are answered."""
        self._now = now
        self._holder = ""
        self._epoch: Epoch = 0
        self._renewed_at = float("-inf")

    async def take_or_renew(self, holder: str) -> Epoch | None:
        self._answer_or_fail()
        if holder != self._holder:
            if self._now() - self._renewed_at < LEASE_SECONDS:
                return None
            self._holder = holder
            self._epoch += 1
        self._renewed_at = self._now()
        return self._epoch

    async def release(self, holder: str) -> None:
        self._answer_or_fail()
        if holder == self._holder:
            self._holder = ""
            self._renewed_at = float("-inf")

    async def close(self) -> None:
        """Nothing is open."""

    def _answer_or_fail(self) -> None:
        if not self.available:
            raise RegistryUnavailable("the lease is switched off")
