"""A floating label that is followed: what it names anew is registered, loaded, and given to callers by a rollout.

Nothing is remembered: a version whose address has the digest is what was registered for it, and its rollout is what was
started for it. So one who follows may die at any moment, and several may follow the same label.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from understudy.core.loading.floating_label import names_same_image, rollout_steps, version_label
from understudy.core.loading.state import LoadingState
from understudy.errors import AlreadyRegistered, NotRegistered, PolicyRefused
from understudy.lifecycle.registry import register_version
from understudy.ports.loading.loading_registry import LoadingRegistry, VersionLoadingRecord
from understudy.ports.registry.registry import STAGING, Actor, NewVersion, Registry, VersionRecord
from understudy.ports.rollout.rollout_store import RolloutListing, UnreadableRollout

_SAME: Final = (
    "framework",
    "protocol",
    "input_schema",
    "output_schema",
    "base_model",
    "family",
    "backend",
    "deterministic",
    "cache_ttl_seconds",
    "timeout_ms",
)
"""What a version has of the one that it is like."""
WANTED_SECONDS: Final = 7_200.0
"""How long agents keep a version without a role: until a rollout before it is over, they are asked again."""
LISTED: Final = 50
"""Rollouts of a model that are looked at."""


class OnNew(StrEnum):
    """What is done with what a label names anew."""

    REGISTER = "register"
    ROLLOUT = "rollout"


class LabelSeen(NamedTuple):
    """What a label names now."""

    uri: str
    """With the digest."""
    digest: str
    annotations: Mapping[str, str]


class Followed(NamedTuple):
    """A label, and what is made of what it names."""

    model_name: str
    group_name: str
    on_new: OnNew
    like: str | None = None
    """The version whose schemas and settings new ones have; ``None``: the champion's."""
    requires_validation: bool = False
    max_first_percent: int = 10
    """The largest first step that an image's annotation may ask for."""
    plan: str | None = None
    """What is taken where an image asks for no steps; ``None``: what the risk asks for."""


StartRollout = Callable[[str, str | None], Awaitable[None]]
"""Starts a rollout of a version by a plan; ``None``: by what the risk asks for."""


class FollowedLabel:
    """Follows one label.

    Args:
        followed: The label.
        registry: Versions.
        loading: What agents do about them.
        rollouts: Which ones there were.
        look: Asks the image registry.
        start: Starts a rollout.
        actor: Under whose name.
    """

    def __init__(
        self,
        followed: Followed,
        registry: Registry,
        loading: LoadingRegistry,
        rollouts: RolloutListing,
        *,
        look: Callable[[], Awaitable[LabelSeen]],
        start: StartRollout,
        actor: Actor,
    ) -> None:
        self._followed = followed
        self._registry = registry
        self._loading = loading
        self._rollouts = rollouts
        self._look = look
        self._start = start
        self._actor = actor

    async def step(self) -> str:
        """Take what the label names now one step further, and say in words how far it is.

        Raises:
            UnderstudyError: The image registry or the database does not answer, or the version is refused.
        """
        seen = await self._look()
        versions = await self._registry.list_versions(self._followed.model_name)
        version = next((one for one in versions if names_same_image(one.artifact_path, seen.uri)), None)
        if version is None:
            return await self._register(seen, [one.version for one in versions])
        named = f"version {version.version}"
        if self._followed.on_new is OnNew.REGISTER or version.status != STAGING:
            return f"{named} is {version.status}: nothing is new"
        for one in await self._rollouts.listing(self._followed.model_name, LISTED):
            if not isinstance(one, UnreadableRollout) and one.state.challenger == version.version:
                return f"{named} had rollout {one.id}, which is {one.state.phase.value}: nothing is new"
        loading = await self._loading.show(self._followed.model_name, version.version)
        if loading is not None and all(one.why is None for one in loading.servers):  # its time is over, or just begins
            await self._loading.load(
                self._followed.model_name, version.version, self._actor, group_name=None, seconds=WANTED_SECONDS
            )
        waits = _waits_for(loading)
        if waits:
            return f"{named} waits with its rollout: {waits}"
        return await self._roll_out(version, seen)

    async def _register(self, seen: LabelSeen, taken: list[str]) -> str:
        followed = self._followed
        like = followed.like or await self._champion()
        record = await self._registry.show_version(followed.model_name, like)
        label = version_label(seen.annotations, seen.digest, taken)
        new = NewVersion(
            model_name=followed.model_name,
            version=label,
            artifact_path=seen.uri,
            group_name=followed.group_name,
            requires_validation=followed.requires_validation,
            **{name: getattr(record, name) for name in _SAME},
        )
        try:
            await register_version(self._registry, new, self._actor)
        except AlreadyRegistered:  # by another one who follows, since the list was read
            return f"version {label} is registered"
        return f"version {label} is registered, like {like}, for {seen.digest}"

    async def _champion(self) -> str:
        policy = (await self._registry.show_model(self._followed.model_name)).policy
        if policy is None:
            raise NotRegistered(
                f"{self._followed.model_name} has no serving policy, so no champion that new versions could be like",
                hint="Name a version whose schemas they have: --like VERSION.",
            )
        return policy.champion

    async def _roll_out(self, version: VersionRecord, seen: LabelSeen) -> str:
        named = f"version {version.version}"
        try:
            steps = rollout_steps(seen.annotations, self._followed.max_first_percent)
        except ValueError as problem:
            return f"{named} gets no rollout: {problem}"
        plan = steps or self._followed.plan
        try:
            await self._start(version.version, plan)
        except PolicyRefused as problem:
            return f"{named} waits with its rollout: {problem.detail}"
        return f"{named} has its rollout, by the plan {plan or 'that its risk asks for'}"


def _waits_for(loading: VersionLoadingRecord | None) -> str:
    """Return what a version still lacks before callers may get it; empty: nothing."""
    if loading is None:
        return "no agent loads it"
    wanted = [one for one in loading.servers if one.why is not None]
    failed = next((one for one in wanted if one.state == LoadingState.ERROR), None)
    if failed is not None:
        return f"{failed.server} could not load it: {failed.error_code} {failed.error}"
    if not wanted or any(one.state != LoadingState.AVAILABLE for one in wanted):
        return "it is being loaded"
    return loading.unvalidated or ""
