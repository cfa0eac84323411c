"""What an agent reads and records of its server: placements in, states and endpoints out."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import Why
from understudy.ports.monitoring.lease import Epoch


class ServerReport(NamedTuple):
    """What an agent says of its server at each round."""

    name: str
    group_name: str
    target: str
    """``host:port`` for proxies: the endpoint of every version that it serves."""
    build: str
    problem: str
    """Empty while the server's control answers."""
    room_bytes: int | None = None
    """Memory that its versions may take together; ``None``: no account is kept."""
    is_draining: bool = False
    """Whether the server is about to end."""


class LoadingRecord(NamedTuple):
    """What the agent last wrote of a version, and what has become of that since."""

    state: LoadingState
    attempt: int
    """Of loads that were asked for last; 0 once a person has asked again."""
    may_retry: bool
    digest: str | None
    unread_proxies: int = 0
    """While ``QUIESCING``: proxies that were live when the endpoint was taken back, and have not said that they have
    read that; 1 where it is not known."""
    reporting_proxies: int = 0
    """Those of them that report still, and say of other changes that they have read them."""
    is_over: bool = False
    """Whether it ended an hour ago."""
    memory_bytes: int | None = None
    """What it takes of the server's memory; ``None``: it is not known."""
    calls_are_over: bool = False
    """While ``QUIESCING``: whether each of the proxies has said that none of its calls can reach the endpoint."""


class ValidationResult(NamedTuple):
    """What became of a validation."""

    build: str
    """Of the server that was asked."""
    digest: str
    """Of the artifact that it has loaded."""
    passed: bool
    said: str
    """What was passed, or what was not."""


class VersionAtServer(NamedTuple):
    """A version that the server is to have, that proxies may call there, or of which something is recorded."""

    version_id: int
    model_name: str
    version: str
    artifact_uri: str
    framework: str
    expected_digest: str | None
    """As registered, or else as fetched first."""
    timeout_seconds: float
    why: Why | None
    """Why it is wanted; ``None``: it is not."""
    has_endpoint: bool
    """Whether proxies may call the server for it; the endpoint is the agent's or not."""
    owns_endpoint: bool
    """Whether the agent may take it back."""
    record: LoadingRecord | None
    requires_validation: bool = False
    """Whether it gets a role only with a validation that holds."""
    idle_seconds: float | None = None
    """Since when nothing wants it, or since its last call after that; ``None``: it is wanted, or is to be unloaded."""
    is_elsewhere: bool = False
    """Whether another server has an endpoint of it whose agent reports, and says that the server answers."""
    has_had_its_time: bool = False
    """Whether it is placed since it was champion before, for longer than such a version is kept warm, and was asked for
    no longer than until now."""
    is_asked_for: bool = False
    """Whether a person still asks for it in the server's group, by registration or ``understudy version load``."""

    @property
    def is_wanted(self) -> bool:
        """Whether the server is to have it."""
        return self.why is not None and self.idle_seconds is None


class AgentStore(Protocol):
    """The records of one server. Every write names the agent's epoch, without which nothing is written.

    Every call raises ``RegistryUnavailable`` when Postgres does not answer in time, and ``LeadershipLost`` where
    another process has become the server's agent.
    """

    async def look(self, server: ServerReport, epoch: Epoch) -> Sequence[VersionAtServer]:
        """Record that the agent is there, and return what it is to do.

        Raises:
            ServerTaken: The agent of another name reports a server at the same address; nothing was written.
        """

    async def write(
        self, version_id: int, state: LoadingState, epoch: Epoch, *, attempt: int = 0, digest: str | None = None
    ) -> None:
        """Record a state."""

    async def fail(
        self,
        version_id: int,
        code: str,
        error: str,
        epoch: Epoch,
        *,
        attempt: int,
        retry_seconds: float | None,
        expected_bytes: int | None = None,
    ) -> None:
        """Record the failure of an attempt, and when the next one is due; ``None``: once a person has asked for it.

        Where there was no room it is kept how much was expected (``expected_bytes``), for the leader to find a server.
        """

    async def note_memory(self, version_id: int, memory_bytes: int, epoch: Epoch) -> None:
        """Keep what a version takes of its server's memory."""

    async def pin(self, version_id: int, digest: str, epoch: Epoch) -> None:
        """Keep the digest of the artifact as it was fetched first.

        Raises:
            ArtifactDiffers: Another agent has fetched something else meanwhile.
        """

    async def record_validation(self, version_id: int, result: ValidationResult, epoch: Epoch) -> None:
        """Keep what became of the validation of a version at the server, in the place of what was kept before."""

    async def announce(self, version_id: int, epoch: Epoch) -> bool:
        """Add the endpoint and record that the version is available, in one transaction.

        Returns whether it is; a version that is wanted no more is not, and nothing was written.
        An endpoint at the address that an agent of another name added becomes this agent's; one of people stays theirs.

        Raises:
            PolicyRefused: No model server may have that address; nothing was written.
        """

    async def withdraw(self, version_id: int, state: LoadingState, epoch: Epoch, *, in_turn: bool = False) -> bool:
        """Take the endpoint back and record ``state``, in one transaction; return whether the endpoint is gone.

        With ``in_turn`` it stays unless every other server of the group whose agent reports has an endpoint of the
        model: of a group one server at a time is without.

        An endpoint at the address goes too that is left of a server under another name: one whose agent is silent.
        The last endpoint of a version with a role stays, and so does one that people registered. Then ``QUIESCING`` is
        not recorded: the version goes on as it is.
        """

    async def forget(self, version_id: int, epoch: Epoch) -> None:
        """Delete the record."""

    async def listen(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` when a placement of the server changes, until cancelled.

        Raises:
            RegistryUnavailable: The connection cannot be opened, or a heartbeat failed.
        """

    async def close(self) -> None:
        """Close the connections."""
