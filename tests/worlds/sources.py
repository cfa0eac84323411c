"""One model of an installation that sources are followed into: the part of its registry that a follower sees."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from understudy.core.loading.state import LoadingState
from understudy.core.rollout.plan import Grade, Risk, plan_for
from understudy.core.rollout.sources.version_source import Offered, SourceSpec
from understudy.core.rollout.state import Kind, Phase
from understudy.core.schema.input_diff import NO_DIFFERENCES
from understudy.errors import AlreadyRegistered, NotRegistered, PolicyRefused
from understudy.ports.loading.loading_registry import VersionAtServerRecord, VersionLoadingRecord
from understudy.ports.registry.registry import Actor, NewVersion, VersionRecord
from understudy.registry.changes import register_version
from understudy.rollout.operations import StartAsked
from understudy.rollout.source_follower import ControlParts, SourceFollower

SCHEMA = {
    "features": [{"name": "age", "dtype": "float32"}, {"name": "income", "dtype": "float32"}],
    "tensors": [{"name": "x", "dtype": "float32", "features": ["age", "income"]}],
}
CHAMPION = VersionRecord(
    id=6, model_name="fraud", version="6", status="champion", artifact_path="s3://m/6", artifact_digest="sha256:6",
    base_model="trees-v2", family="trees", framework="sklearn", protocol="oip", endpoints=("models:8001",),
    input_schema=SCHEMA, output_schema={"tensor": "p"}, metrics={"auc": 0.9}, backend={"model_name": "fraud"},
    deterministic=False, cache_ttl_seconds=60, timeout_ms=80, created_at=datetime(2026, 11, 1, tzinfo=UTC),
    deployed_at=datetime(2026, 11, 2, tzinfo=UTC),
)  # fmt: skip
SPEC = SourceSpec("mlflow", "fraud", "https://mlflow", "eu.fraud", "challenger", endpoints="m:1")


def version_offered(number: str, **fields: Any) -> Offered:
    note = {"registered_model": "eu.fraud", "version": number}
    return Offered(number, f"mlflow-artifacts:/1/m-{number}", note, f"mlflow: is version {number}")._replace(**fields)


class Label:
    """A label of a registry: names one version after the other."""

    def __init__(self, *offered: Offered | None) -> None:
        self._offered = list(offered)

    def move(self, offered: Offered | None) -> None:
        self._offered = [offered]

    async def offered(self) -> Offered | None:
        await asyncio.sleep(0)
        return self._offered.pop(0) if len(self._offered) > 1 else self._offered[0]

    async def described(self, offered: Offered) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        pass


class Installation:
    """Versions, rollouts and loading of the model ``fraud``, with the database's own rules; each call is a turn."""

    def __init__(self) -> None:
        self.champion = "6"
        self.versions = {"6": CHAMPION}
        self.rollouts: list[Any] = []
        self.loading: dict[str, VersionLoadingRecord] = {}
        self.asked_to_load: list[str] = []
        self.reasons: list[str | None] = []
        self.before_start: Callable[[], None] = lambda: None

    def follower(self, label: Label, spec: SourceSpec = SPEC) -> SourceFollower:
        own = cast(Any, self)
        return SourceFollower(spec, label, ControlParts(own, own, own_loading(self), own.register, "robot"))

    def end(self, phase: Phase) -> None:
        """End the open rollout."""
        self.rollouts[0].state.phase = phase
        if phase is Phase.SUCCEEDED:
            self.champion = self.rollouts[0].state.challenger

    def server(self, label: str, **fields: Any) -> None:
        """Say what a server with an agent has of a version."""
        known = dict.fromkeys(VersionAtServerRecord._fields)
        own = {"server": "onnx-0", "why": "explicit", "state": LoadingState.AVAILABLE, "will_retry": True, **fields}
        self.loading[label] = self.loading[label]._replace(servers=[VersionAtServerRecord(**{**known, **own})])

    async def show_model(self, model_name: str) -> Any:
        await asyncio.sleep(0)
        sharing = [one.state.challenger for one in self.rollouts if not one.state.phase.is_final]
        policy = SimpleNamespace(
            champion=self.champion, challenger=next(iter(sharing), None), challenger_weight=10, arms=()
        )
        return SimpleNamespace(policy=policy)

    async def show_version(self, model_name: str, version: str) -> VersionRecord:
        await asyncio.sleep(0)
        if version not in self.versions:
            raise NotRegistered(version)
        return self.versions[version]

    async def list_versions(self, model_name: str) -> list[VersionRecord]:
        await asyncio.sleep(0)
        return list(self.versions.values())

    async def register(self, new: NewVersion, actor: Actor) -> VersionRecord:
        return await register_version(cast(Any, self), new, actor)

    async def add_version(self, new: NewVersion, actor: Actor, **_: Any) -> VersionRecord:
        await asyncio.sleep(0)
        if new.version in self.versions:
            raise AlreadyRegistered(new.version)
        own = {name: value for name, value in new._asdict().items() if name in VersionRecord._fields}
        made = VersionRecord(**{**CHAMPION._asdict(), **own, "status": "staging", "deployed_at": None})
        self.versions[new.version] = made
        self.reasons.append(actor.reason)
        if new.group_name is not None:
            self.want(new.version, new.group_name)
        return made

    async def listing(self, model_name: str, limit: int) -> list[Any]:
        await asyncio.sleep(0)
        return self.rollouts[:limit]

    async def prepare(self, asked: StartAsked) -> Any:
        await asyncio.sleep(0)
        return SimpleNamespace(plan=plan_for(Grade(Risk.LOW, "").risk), inputs=NO_DIFFERENCES)

    async def require_ready(self, asked: StartAsked) -> None:
        await asyncio.sleep(0)
        self.before_start()

    async def start(self, asked: StartAsked, prepared: Any, salt: str, actor: Actor) -> Any:
        await asyncio.sleep(0)
        if any(not one.state.phase.is_final for one in self.rollouts):
            raise PolicyRefused("fraud has an open rollout")
        state = SimpleNamespace(challenger=asked.version, phase=Phase.PROGRESSING, kind=Kind.ROLLOUT, plan=asked.plan)
        self.rollouts.insert(0, SimpleNamespace(id=len(self.rollouts) + 1, state=state))
        self.versions[asked.version] = self.versions[asked.version]._replace(deployed_at=datetime.now(UTC))
        self.reasons.append(actor.reason)
        return self.rollouts[0]

    def want(self, label: str, group_name: str) -> None:
        until = datetime.now(UTC) + timedelta(hours=2)
        self.asked_to_load.append(label)
        self.loading[label] = VersionLoadingRecord("fraud", label, group_name, until, False, None, [])


def own_loading(installation: Installation) -> Any:
    """The part of an installation that has to do with agents; its ``load`` is no version's."""

    async def show(model_name: str, version: str) -> VersionLoadingRecord | None:
        await asyncio.sleep(0)
        return installation.loading.get(version)

    async def load(model_name: str, version: str, actor: Actor, *, group_name: str | None, seconds: float) -> None:
        await asyncio.sleep(0)
        installation.want(version, str(group_name))

    return SimpleNamespace(show=show, load=load)
