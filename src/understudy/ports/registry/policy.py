"""Who answers a model's calls, and how a worker hears of a change."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from understudy.core.routing.policy_document import PolicyDocument


class PolicyChange(NamedTuple):
    """A hint that a model's rows changed; ``model_name`` is ``None`` when everything should be read again."""

    model_name: str | None


class PolicySource(Protocol):
    """Where policies come from.

    Every call raises ``RegistryUnavailable`` when Postgres does not answer in time, and ``MigrationNeeded`` where the
    tables are not there.
    """

    async def load(self, model_names: Sequence[str] | None = None) -> PolicyDocument:
        """Return the rows of these models, by default of all; a named model without policy has ``policy: None``."""

    async def changed_since_last_poll(self) -> Sequence[str]:
        """Return the models whose rows changed since the last call (at first: since :meth:`load`); may repeat some."""

    @property
    def horizon(self) -> int | None:
        """Every change by a transaction before this one was returned by :meth:`load`; ``None``: not known to be so."""

    @property
    def newest_change(self) -> int | None:
        """The transaction of the newest change that the last poll found; a horizon behind it does not cover it yet."""

    async def listen(self, on_change: Callable[[PolicyChange], None]) -> None:
        """Call ``on_change`` for each committed change until cancelled or the connection is found dead.

        Calls it once with ``model_name=None`` when the subscription stands, so that nothing between the last load and
        the subscription is missed.

        Raises:
            RegistryUnavailable: The connection cannot be opened or a heartbeat failed.
        """

    async def report(
        self, instance: str, generations: Mapping[str, int], in_flight: Mapping[int, int], horizon: int | None
    ) -> None:
        """Record what this proxy instance acts on: the generation of each model, and every change before ``horizon``.

        ``in_flight`` are its calls under way by version id.
        """

    async def sign_off(self, instance: str) -> None:
        """Forget what this proxy instance reported: it sends no traffic any more; one that never did is no error."""

    async def close(self) -> None:
        """Close the connections."""


class SnapshotFile(Protocol):
    """The last good policy document on local disk."""

    def read(self) -> PolicyDocument | None:
        """Return the document, or ``None`` when there is none or it cannot be read."""

    def write(self, document: PolicyDocument) -> None:
        """Replace the document atomically; a failure is counted and logged, never raised."""
