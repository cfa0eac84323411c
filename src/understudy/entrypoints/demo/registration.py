"""Migrates the demo's database, registers its models, has them loaded, and makes their first policies and its key."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from understudy.adapters.dev_server.example_models import ExampleVersion, example_baselines, example_version
from understudy.bootstrap import schema
from understudy.bootstrap.session import Session
from understudy.core.drift.baseline import baselines_to_json
from understudy.core.routing.access import Scope
from understudy.entrypoints.demo.artifacts import Artifact
from understudy.entrypoints.demo.refusal import DemoRefused
from understudy.entrypoints.demo.topology import (
    DATABASE_SECONDS,
    GROUP,
    POLICIES,
    SCENARIO_MODEL,
    VERSIONS,
    FirstPolicy,
    ServedVersion,
    Standing,
)
from understudy.errors import GenerationMoved
from understudy.ports.registry.registry import Actor, NewVersion, Registry
from understudy.registry.changes import create_key, register_version, set_policy

ACTOR = Actor(name="demo", via="understudy demo", reason="the demo's first policy")
STARTING = Actor(name="demo", via="understudy demo", reason="the demo starts")
KEY_NOTE = "understudy demo: of this start only"
LOAD_SECONDS = 60.0
POLL_SECONDS = 0.1
_FIRST_GENERATION = 1
_RETIRED = "retired"


async def migrate_demo_database(database_url: str) -> str:
    """Migrate the demo's database, and return at which revision it is."""
    return f"schema at {await schema.upgrade(database_url)}"


def open_session(database_url: str) -> Session:
    """Return the session with the demo's own stores."""
    return Session(database_url, timeout_seconds=DATABASE_SECONDS)


async def make_key(database_url: str, scopes: Sequence[str] = tuple(Scope), *, note: str = KEY_NOTE) -> str:
    """Make a key for what the demo shows, end those of its earlier starts, and return what callers send.

    ``note`` says what it is for, and so which ones of earlier starts it takes the place of.
    """
    async with open_session(database_url) as session:
        registry = session.registry
        for earlier in await registry.list_keys():
            if (earlier.created_by, earlier.note) == (ACTOR.name, note) and earlier.revoked_at is None:
                await registry.revoke_key(earlier.id, STARTING)
        return (await create_key(registry, scopes, note, STARTING)).credential


async def register_at(database_url: str, endpoint: str) -> Standing:
    """Register what is missing at a server that has all models, and return how the scenario's model stands.

    Versions that are registered already move to that server.
    """
    async with open_session(database_url) as session:
        registry = session.registry
        for version in VERSIONS:
            await _register_at(registry, version, endpoint)
        return await _with_policies(registry)


async def register_artifacts(database_url: str, artifacts: Mapping[ServedVersion, Artifact]) -> None:
    """Register what is missing, and have agents load each version for good.

    Raises:
        DemoRefused: A version is registered with something else than its artifact.
    """
    async with open_session(database_url) as session:
        for version, artifact in artifacts.items():
            label = str(version.version)
            known = {one.version: one for one in await session.registry.list_versions(version.model_name)}
            if label not in known:
                new = _described(version)._replace(
                    artifact_path=artifact.path, artifact_digest=artifact.digest, group_name=GROUP
                )
                await register_version(session.registry, new, STARTING)
            elif known[label].artifact_digest != artifact.digest:
                raise DemoRefused(
                    f"the database has another version {label} of {version.model_name} than this demo brings: a demo of"
                    " an earlier release made it, or a person",
                    "Start afresh with understudy demo --reset; in a database of yours, name an empty one.",
                )
            if label not in known or known[label].status != _RETIRED:
                await session.loading.load(version.model_name, label, STARTING, group_name=GROUP, seconds=None)


async def first_policies(database_url: str, targets: Collection[str], *, seconds: float = LOAD_SECONDS) -> Standing:
    """Wait until agents have loaded every version, and return how the scenario's model stands.

    ``targets`` has ``host:port`` of each server. A first policy is made where there is none; a later start leaves
    it as operators changed it.

    Raises:
        DemoRefused: They have not within so many ``seconds``; the message says what they recorded.
    """
    give_up = time.monotonic() + seconds
    async with open_session(database_url) as session:
        while missing := await _still_missing(session.registry, targets):
            if time.monotonic() > give_up:
                said = "; ".join(words for one in await session.loading.list_missing() for words in one.without)
                raise DemoRefused(
                    f"agents have not loaded {', '.join(missing)} within {seconds:.0f} s: {said or 'nothing said'}",
                    "Read logs/*-agent.log in the state folder, or start afresh with understudy demo --reset.",
                )
            await asyncio.sleep(POLL_SECONDS)
        return await _with_policies(session.registry)


async def _still_missing(registry: Registry, targets: Collection[str]) -> list[str]:
    """Return versions that proxies cannot call at each server of today; endpoints of an earlier start do not count."""
    missing = []
    for model_name in dict.fromkeys(version.model_name for version in VERSIONS):
        known = {one.version: one for one in await registry.list_versions(model_name)}
        for version in VERSIONS:
            record = known.get(str(version.version)) if version.model_name == model_name else None
            if record is not None and record.status != _RETIRED and not set(targets) <= set(record.endpoints):
                missing.append(f"{model_name} {version.version}")
    return missing


async def _register_at(registry: Registry, served: ServedVersion, endpoint: str) -> None:
    label = str(served.version)
    known = {version.version: version for version in await registry.list_versions(served.model_name)}
    if label not in known:
        new = _described(served)._replace(backend={"version": label}, endpoints=(endpoint,))
        await register_version(registry, new, STARTING)
        return
    # The new one first: a version is never without a server.
    for target in {endpoint} - set(known[label].endpoints):
        await registry.add_endpoint(served.model_name, label, target, STARTING)
    for target in set(known[label].endpoints) - {endpoint}:
        await registry.remove_endpoint(served.model_name, label, target, STARTING)


def _described(served: ServedVersion) -> NewVersion:
    example: ExampleVersion = example_version(served.model_name, served.version)
    return NewVersion(
        model_name=served.model_name,
        version=str(served.version),
        artifact_path=f"package://understudy/models/{example.file}",
        artifact_digest=f"sha256:{example.sha256}",
        framework=example.framework,
        input_schema=example.input_schema,
        output_schema=example.output_schema,
        metrics={**example.metrics, "baseline": baselines_to_json(example_baselines(example))},
    )


async def _with_policies(registry: Registry) -> Standing:
    """Make the first policy of each model that has none, and return how the scenario's model stands."""
    known = {model.model_name for model in await registry.list_models() if model.policy is not None}
    for policy in POLICIES:
        if policy.model_name not in known:
            await _set_first(registry, policy)
    return await _standing(registry)


async def _set_first(registry: Registry, policy: FirstPolicy) -> None:
    changes = {
        "champion": str(policy.champion),
        "challenger": None if policy.challenger is None else str(policy.challenger),
        "challenger_weight": policy.challenger_weight,
        "shadow": None if policy.shadow is None else str(policy.shadow),
    }
    try:
        await set_policy(registry, policy.model_name, changes, ACTOR, expected_generation=0)
    except GenerationMoved:
        return  # another demo on the same database was first


async def _standing(registry: Registry) -> Standing:
    policy = (await registry.show_model(SCENARIO_MODEL)).policy
    assert policy is not None, "it was made above where there was none"
    roles = {policy.champion, policy.shadow}
    versions = await registry.list_versions(SCENARIO_MODEL)
    candidates = {version.version for version in versions if version.status != _RETIRED} - roles
    return Standing(policy.champion, policy.generation == _FIRST_GENERATION, frozenset(candidates))
