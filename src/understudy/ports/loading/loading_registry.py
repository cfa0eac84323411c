"""Loading as operators and commands ask for it, and see it."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from understudy.core.loading.replicas import Replicas
from understudy.ports.registry.registry import Actor


class ServerRecord(NamedTuple):
    """A model server with an agent."""

    name: str
    group_name: str
    target: str
    build: str
    problem: str
    seen_seconds: float
    """Since its agent last reported."""
    wanted: int
    """How many versions it is to have."""
    available: int
    """How many of them it has, with their endpoint."""
    failed: int
    is_draining: bool = False
    """Whether it ends: its agent takes every version from it, and gives it none until it is started anew."""


class VersionAtServerRecord(NamedTuple):
    """A version at one server."""

    server: str
    why: str | None
    """Why it is wanted there; ``None``: it is not."""
    state: str | None
    """``None``: nothing has begun."""
    attempt: int
    error_code: str | None
    error: str | None
    digest: str | None
    updated_at: datetime | None
    will_retry: bool
    """After an error: whether the next attempt comes by itself."""
    group_name: str
    """Of the server; of a version that was moved, servers of the group before have it for a while."""


class ValidationRecord(NamedTuple):
    """What is known of the validation of a version at a server where proxies call it by an agent's endpoint."""

    server: str
    target: str
    build: str
    """Of the server now."""
    digest: str | None
    """Of the artifact, as registered or as fetched first."""
    passed: bool | None
    """``None``: it was not validated there."""
    said: str | None
    judged_at: datetime | None
    judged_by: str | None
    problem: str | None
    """Why no validation holds there, such as another build since then; ``None``: one does."""


class UnvalidatedVersion(NamedTuple):
    """A version with a role, or a wish to be loaded, whose validation does not hold at a server."""

    model_name: str
    version: str
    status: str
    is_required: bool
    """Whether it gets its roles only with one that holds."""
    problem: str


class VersionLoadingRecord(NamedTuple):
    """What was asked for a version, and what has become of it."""

    model_name: str
    version: str
    group_name: str
    wanted_until: datetime | None
    """While it has no role; ``None``: it is wanted with a role alone, or for good (``is_kept``)."""
    is_kept: bool
    pinned_digest: str | None
    servers: Sequence[VersionAtServerRecord]
    requires_validation: bool = False
    """Whether it gets a role, or a larger share, only with a validation that holds."""
    validations: Sequence[ValidationRecord] = ()
    unvalidated: str | None = None
    """Why it gets none now; ``None``: a validation holds, or none is required."""
    groups: Sequence[str] | None = None
    """The groups of which an agent has reported a server; ``None``: the proxy of the release before does not say."""
    replicas: Replicas | None = None
    """On how many servers of the group it is to be; ``None``: on every one."""


class MissingVersion(NamedTuple):
    """A wanted version that fewer live servers of its group have than should, or whose group has no live server."""

    model_name: str
    version: str
    why: str
    """Why it is wanted."""
    group_name: str
    servers: int
    """How many servers of the group have an agent that reports."""
    without: Sequence[str]
    """Those of them that are to have it and do not, each with what its agent last recorded."""
    has_endpoint: bool
    """Whether proxies may call it anywhere: where people registered an endpoint, or an agent that is silent now."""
    replicas: int | None = None
    """On how many servers it is to be; ``None``: on every one of the group."""
    has: int = 0
    """How many of the servers have it."""


class VersionLoading(Protocol):
    """What commands ask and see; every method raises ``RegistryUnavailable`` when Postgres does not answer in time."""

    async def load(
        self,
        model_name: str,
        version: str,
        actor: Actor,
        *,
        group_name: str | None,
        seconds: float | None,
        requires_validation: bool | None = None,
        replicas: Replicas | None = None,
        dry_run: bool = False,
    ) -> VersionLoadingRecord:
        """Have agents load a version, for so many seconds (``None``: for good), and longer while it has a role.

        A load that failed begins again. ``requires_validation`` says whether its roles need a validation that holds,
        and ``replicas`` on how many servers of the group it is to be; ``None`` leaves each as it is.

        Raises:
            NotRegistered: There is no such version.
            PolicyRefused: It has no group yet, and none is named; it is wanted, and another group is named of which
                no agent reports a server; it is retired; or proxies call it by another name than that under which
                agents load it.
        """

    async def unload(
        self, model_name: str, version: str, actor: Actor, *, dry_run: bool = False
    ) -> VersionLoadingRecord:
        """Have agents unload a version.

        Raises:
            NotRegistered: There is no such version, or agents do not load it.
            PolicyRefused: It has a role, or a part in a rollout, or is what a rollback brings back.
        """

    async def show(self, model_name: str, version: str) -> VersionLoadingRecord | None:
        """Return what there is of a version; ``None``: agents do not load it."""

    async def list_servers(self) -> Sequence[ServerRecord]:
        """Return the model servers with an agent, by group and name."""


class LoadingRegistry(VersionLoading, Protocol):
    """Of the database also what its own pages and checks need."""

    async def judge(
        self, model_name: str, version: str, asked: ValidationRecord, actor: Actor, *, passed: bool, said: str
    ) -> None:
        """Keep what became of a validation that a person began at a server, as it was when that was ``asked``.

        Raises:
            NotRegistered: There is no such version.
        """

    async def list_unvalidated(self) -> Sequence[UnvalidatedVersion]:
        """Return versions that agents have loaded and whose validation does not hold; without those that had none.

        One that requires a validation is there without a verdict too.
        """

    async def of_model(self, model_name: str, at_most: int) -> Sequence[VersionLoadingRecord]:
        """Return what there is of each version of a model that agents load, of the newest so many versions."""

    async def list_missing(self, model_name: str | None = None) -> Sequence[MissingVersion]:
        """Return the wanted versions, of one model or of all, that are not on every server that is to have them."""
