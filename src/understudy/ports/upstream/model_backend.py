"""What answers a predict call: a model on a server."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.tensors import Block, Row, Tensor


class ServerSeen(NamedTuple):
    """One model server of a version, as an examination found it."""

    endpoint: str
    seconds: float
    """Round trip of the probe over an open connection; of one that is not ready, until that was known."""
    problem: str = ""
    """Why it does not serve the version; empty: it says that it does."""
    address: str = ""
    """Which of its name's addresses it is, where each of them is a replica."""

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return f"{self.endpoint} at {self.address}" if self.address else self.endpoint


class ModelBackend(Protocol):
    """The model servers of one version."""

    @property
    def rows_per_call(self) -> int | None:
        """Most rows that one call of :meth:`infer` takes; ``None``: as many as wanted."""

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to one of its servers now: after a probe, whether this process reaches any."""

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        """Return the tensor that the version's ``output_schema`` names, for all ``rows`` in one call.

        Several rows only when the version's ``input_schema`` declares a batch dimension, and :attr:`rows_per_call` at
        most.

        Raises:
            BackendUnavailable: No replica answers.
            DeadlineExceeded: ``timeout_seconds`` passed (stage ``upstream``).
            BadAnswer: The server refused the call or its answer cannot be read.
        """

    async def infer_block(self, block: Block, timeout_seconds: float) -> Tensor:
        """Return the same tensor for inputs whose shapes are given whole; one row a call at most is a ``BadAnswer``.

        Raises:
            BackendUnavailable, DeadlineExceeded, BadAnswer: As :meth:`infer`.
        """

    async def ready(self, timeout_seconds: float) -> bool:
        """Whether at least one replica says that it serves the version. Never raises."""

    async def close(self) -> None:
        """Close every connection; calls in flight fail."""


ConnectBackend = Callable[[ModelVersion], ModelBackend]
"""Makes a version's backend; opens no connection until the first call, and must run after any fork."""
