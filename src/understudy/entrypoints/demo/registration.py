"""Migrates the demo's database, registers its models, and makes their first policies and its key."""

from collections.abc import Mapping, Sequence

from understudy.adapters.dev_server.example_models import example_baselines, example_version
from understudy.bootstrap import schema
from understudy.bootstrap.session import Session
from understudy.core.drift.baseline import baselines_to_json
from understudy.core.routing.access import Scope
from understudy.entrypoints.demo.topology import (
    DATABASE_SECONDS,
    POLICIES,
    SCENARIO_MODEL,
    VERSIONS,
    FirstPolicy,
    ServedVersion,
    Standing,
    endpoints_of,
)
from understudy.errors import GenerationMoved
from understudy.lifecycle.registry import create_key, register_version, set_policy
from understudy.ports.registry.registry import Actor, NewVersion, Registry

ACTOR = Actor(name="demo", via="understudy demo", reason="the demo's first policy")
STARTING = Actor(name="demo", via="understudy demo", reason="the demo starts")
KEY_NOTE = "understudy demo: of this start only"
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


async def register(database_url: str, targets: Mapping[str, str]) -> Standing:
    """Register what is missing, give every version its servers of today, and return how the scenario's model stands.

    ``targets`` has ``host:port`` by the server's name. A first policy is made where there is none; a later start leaves
    it as operators changed it.
    """
    async with open_session(database_url) as session:
        registry = session.registry
        known = {(model.model_name, model.policy is not None) for model in await registry.list_models()}
        for version in VERSIONS:
            await _register(registry, version, endpoints_of(version, targets))
        for policy in POLICIES:
            if (policy.model_name, True) not in known:
                await _set_first(registry, policy)
        return await _standing(registry)


async def _register(registry: Registry, served: ServedVersion, endpoints: tuple[str, ...]) -> None:
    label = str(served.version)
    known = {version.version: version for version in await registry.list_versions(served.model_name)}
    if label not in known:
        await register_version(registry, _described(served, endpoints), STARTING)
        return
    # The new ones first: a version is never without a server.
    for target in set(endpoints) - set(known[label].endpoints):
        await registry.add_endpoint(served.model_name, label, target, STARTING)
    for target in set(known[label].endpoints) - set(endpoints):
        await registry.remove_endpoint(served.model_name, label, target, STARTING)


def _described(served: ServedVersion, endpoints: tuple[str, ...]) -> NewVersion:
    example = example_version(served.model_name, served.version)
    return NewVersion(
        model_name=served.model_name,
        version=str(served.version),
        artifact_path=f"package://understudy/models/{example.file}",
        artifact_digest=f"sha256:{example.sha256}",
        framework=example.framework,
        input_schema=example.input_schema,
        output_schema=example.output_schema,
        metrics={**example.metrics, "baseline": baselines_to_json(example_baselines(example))},
        backend={"version": str(served.version)},
        endpoints=tuple(dict.fromkeys(endpoints)),
    )


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
