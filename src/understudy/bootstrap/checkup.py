"""Everything that an installation depends on, examined once: ``understudy doctor``."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime

from understudy.adapters import migrations
from understudy.adapters.disk.snapshot_file import JsonSnapshotFile
from understudy.adapters.disk.spool_folder import bytes_in
from understudy.adapters.model_servers.connect import HOSTS_SUFFIX, PROTOCOLS, TOKEN_PREFIX
from understudy.adapters.model_servers.connect import examine as examine_servers
from understudy.adapters.postgres.connections.checkup import (
    PostgresCheckup,
    examine_archive,
    examine_erasures,
    examine_gates,
    examine_guards,
    examine_monitor,
    examine_postgres,
    examine_shares,
)
from understudy.adapters.redis.checkup import examine_redis
from understudy.bootstrap.prediction_log.lake import waiting_files
from understudy.bootstrap.session import session_of
from understudy.bootstrap.upstream.backends import ask_proxies, connector_of, policies_of_proxies, proxy_warm_up
from understudy.core.rollout.state import Kind
from understudy.core.routing.policy import ModelVersion, PolicySnapshot, Role, ServingPolicy
from understudy.core.routing.policy_document import apply_document
from understudy.core.upstream.same_call import same_call
from understudy.errors import (
    BackendUnavailable,
    LoginNotAllowed,
    MigrationNeeded,
    RegistryUnavailable,
)
from understudy.registry.findings.finding import Finding, State
from understudy.registry.findings.judges import judge_asked
from understudy.registry.findings.keys import judge_keys
from understudy.registry.findings.loading import judge_agents, judge_missing, judge_unvalidated
from understudy.registry.findings.log import (
    ERASURE_LATE_SECONDS,
    MAX_ERASURES,
    judge_archive,
    judge_erasure,
    judge_lake,
    judge_partitions,
    judge_spool,
)
from understudy.registry.findings.policies import judge_files
from understudy.registry.findings.servers import (
    CATCH_UP_SECONDS,
    HIDDEN_PROXIES,
    NO_MONITOR,
    NO_PROXY,
    OUTAGE,
    UNSEEN_REDIS,
    judge_clock,
    judge_config,
    judge_monitor,
    judge_postgres,
    judge_proxy,
    judge_redis,
    judge_roles,
    judge_saved_policies,
    judge_servers,
    judge_wire,
)
from understudy.registry.findings.tokens import judge_token_hosts, judge_token_wire
from understudy.registry.findings.traffic import (
    MAX_FAILING_RATIO,
    MIN_CALLS,
    judge_failing_share,
    judge_gate,
    judge_guard,
    judge_rejected,
)
from understudy.registry.findings.versions import judge_same_call
from understudy.registry.policy_files import contradictions_of
from understudy.rollout.checks.judge_check import judge_wanted, judgements_stored
from understudy.settings import FILE_SUFFIX, Settings

READY_SECONDS = 2.0
VERSIONS_AT_ONCE = 64
"""Versions whose model servers are asked at the same time; with more, this process itself would be the bottleneck."""


async def examine(settings: Settings, *, is_beside_proxy: bool = False) -> list[Finding]:
    """Check everything; a check that depends on a part that is unreachable is left out.

    While Postgres is away, model servers are those of the policies that a proxy has saved in this state folder. Where
    ``is_beside_proxy`` is false, no proxy uses the folder, and nothing is read there.
    """
    database_url = settings.database_url.get_secret_value()
    redis_url = settings.redis_url.get_secret_value() if settings.redis_url is not None else ""
    findings = [_examine_config(settings), await _examine_cache(settings)]
    findings += [*judge_wire("redis", redis_url), *judge_wire("postgres", database_url), *_examine_tokens()]
    try:
        checkup = await examine_postgres(database_url, CATCH_UP_SECONDS, settings.database_timeout_seconds)
    except RegistryUnavailable as problem:
        findings.append(Finding("postgres", State.PROBLEM, problem.detail, problem.next_step))
        is_away = not isinstance(problem, LoginNotAllowed)
        if is_away:
            findings.append(OUTAGE)
        return [*findings, *await _examine_folder(settings)] if is_away and is_beside_proxy else findings
    findings += [
        judge_postgres(checkup.server_version, checkup.round_trip_seconds),
        judge_clock(checkup.clock_ahead_seconds, checkup.round_trip_seconds),
    ]
    try:
        revision = await migrations.check(database_url)
        without_rights = await migrations.roles_without_rights(database_url)
    except (MigrationNeeded, RegistryUnavailable) as problem:
        return [*findings, Finding("schema", State.PROBLEM, problem.detail, problem.next_step)]
    this_month = datetime.now(UTC).strftime("%Y-%m")
    findings += [Finding("schema", State.GOOD, f"at {revision}"), judge_roles(without_rights)]
    findings += [judge_partitions(checkup.last_partition, this_month), await _examine_archive(settings)]
    findings += await _examine_lake(settings)
    monitor, has_monitor = await _examine_monitor(settings)
    findings += [monitor, *await _examine_guards(settings, has_monitor=has_monitor)]
    findings += [*await _examine_gates(settings), *await _examine_judges(settings)]
    findings += [*await _examine_shares(settings), *await _examine_erasures(settings)]
    findings += [*await _examine_loading(settings), *await _examine_files(settings)]
    findings += await _examine_keys(settings)
    return [*findings, *await _examine_policies(settings, checkup)]


def _examine_config(settings: Settings) -> Finding:
    bare = ("DATABASE_URL", "REDIS_URL", f"DATABASE_URL{FILE_SUFFIX}", f"REDIS_URL{FILE_SUFFIX}")
    named = [name for name in os.environ if name.startswith("UNDERSTUDY_") or name in bare]
    return judge_config(len(named), settings.host, needs_key=settings.needs_key, is_local=settings.is_local)


def _examine_tokens() -> list[Finding]:
    return judge_token_hosts([name for name in os.environ if name.startswith(TOKEN_PREFIX)], HOSTS_SUFFIX)


async def _examine_cache(settings: Settings) -> Finding:
    if settings.redis_url is None:
        return UNSEEN_REDIS
    found = await examine_redis(settings.redis_url.get_secret_value())
    return judge_redis(
        found.problem,
        found.version,
        found.round_trip_seconds,
        found.eviction_policy,
        is_refusal=found.is_refusal,
    )


async def _examine_archive(settings: Settings) -> Finding:
    try:
        found = await examine_archive(
            settings.database_url.get_secret_value(), timeout_seconds=settings.database_timeout_seconds
        )
    except RegistryUnavailable as problem:
        return Finding("archive", State.WARNING, problem.detail, problem.next_step)
    after_days = max(settings.archive_after_days, settings.input_sample_days)
    return judge_archive(*found, after_days, is_set=settings.archive_url is not None)


async def _examine_monitor(settings: Settings) -> tuple[Finding, bool]:
    """Return what is found of the monitor, and whether one leads; so it is taken to be where that cannot be read."""
    try:
        found = await examine_monitor(
            settings.database_url.get_secret_value(), timeout_seconds=settings.database_timeout_seconds
        )
    except RegistryUnavailable as problem:
        return Finding("monitor", State.WARNING, problem.detail, problem.next_step), True
    finding = NO_MONITOR if found is None else judge_monitor(*found)
    return finding, finding.state is State.GOOD


async def _examine_lake(settings: Settings) -> list[Finding]:
    is_asked_for = settings.has_lake or settings.log_reads == "lake"
    try:
        waiting = await waiting_files(settings)
    except RegistryUnavailable as problem:
        return [Finding("lake", State.PROBLEM, problem.detail, problem.next_step)] if is_asked_for else []
    # Proxies may write files although this process, and so perhaps the monitor, was not told of the lake.
    return [judge_lake(*waiting)] if is_asked_for or waiting.files else []


async def _examine_guards(settings: Settings, *, has_monitor: bool) -> list[Finding]:
    try:
        found = await examine_guards(
            settings.database_url.get_secret_value(), timeout_seconds=settings.database_timeout_seconds
        )
    except RegistryUnavailable as problem:
        return [Finding("guards", State.WARNING, problem.detail, problem.next_step)]
    return [
        judge_guard(one.model_name, one.guard, one.failure, is_watched=one.is_watched, has_monitor=has_monitor)
        for one in found
    ]


async def _examine_gates(settings: Settings) -> list[Finding]:
    try:
        found = await examine_gates(
            settings.database_url.get_secret_value(), timeout_seconds=settings.database_timeout_seconds
        )
    except RegistryUnavailable as problem:
        return [Finding("gates", State.WARNING, problem.detail, problem.next_step)]
    return [judge_gate(*one) for one in found]


async def _examine_judges(settings: Settings) -> list[Finding]:
    findings = []
    try:
        async with session_of(settings) as session, session.rollouts.shared_session():
            for rollout_id in await session.rollouts.open_ids():
                record, now = await session.rollouts.record(rollout_id)
                limit, state = judge_wanted(record.state), record.state
                if limit is not None:
                    said = await judgements_stored(session.rollouts, record, now)
                    is_guard = state.kind is Kind.GUARD
                    findings.append(judge_asked(state.model_name, state.challenger, limit, said, is_guard=is_guard))
    except (MigrationNeeded, RegistryUnavailable) as problem:
        return [Finding("judges", State.WARNING, problem.detail, problem.next_step)]
    return findings


async def _examine_shares(settings: Settings) -> list[Finding]:
    try:
        found = await examine_shares(
            settings.database_url.get_secret_value(),
            MIN_CALLS,
            MAX_FAILING_RATIO,
            timeout_seconds=settings.database_timeout_seconds,
        )
    except RegistryUnavailable as problem:
        return [Finding("shares", State.WARNING, problem.detail, problem.next_step)]
    return [judge_failing_share(*share[:4], has_fallback=share.has_fallback, hours=share.hours) for share in found]


async def _examine_erasures(settings: Settings) -> list[Finding]:
    try:
        found = await examine_erasures(
            settings.database_url.get_secret_value(),
            ERASURE_LATE_SECONDS,
            MAX_ERASURES,
            timeout_seconds=settings.database_timeout_seconds,
        )
    except RegistryUnavailable as problem:
        return [Finding("erasures", State.WARNING, problem.detail, problem.next_step)]
    return [judge_erasure(*erasure) for erasure in found]


async def _examine_loading(settings: Settings) -> list[Finding]:
    try:
        async with session_of(settings) as session:
            missing, servers = await session.loading.list_missing(), await session.loading.list_servers()
            unvalidated = await session.loading.list_unvalidated()
    except RegistryUnavailable as problem:
        return [Finding("loading", State.WARNING, problem.detail, problem.next_step)]
    return [*map(judge_missing, missing), *map(judge_unvalidated, unvalidated), *judge_agents(servers)]


async def _examine_files(settings: Settings) -> list[Finding]:
    try:
        async with session_of(settings) as session:
            applied = await session.registry.list_applied()
            models = await session.registry.list_models() if applied else ()
    except (MigrationNeeded, RegistryUnavailable) as problem:
        return [Finding("policy files", State.WARNING, problem.detail, problem.next_step)]
    policies = {model.model_name: model.policy for model in models}
    found = [(one, policies.get(one.model_name)) for one in applied]
    return judge_files([(one, contradictions_of(one, policy)) for one, policy in found if policy is not None])


async def _examine_keys(settings: Settings) -> list[Finding]:
    try:
        async with session_of(settings) as session:
            keys = await session.registry.list_keys()
    except LoginNotAllowed:  # a monitor's login reads none
        return []
    except (MigrationNeeded, RegistryUnavailable) as problem:
        return [Finding("keys", State.WARNING, problem.detail, problem.next_step)]
    return judge_keys(keys, datetime.now(UTC))


async def _examine_policies(settings: Settings, checkup: PostgresCheckup) -> list[Finding]:
    try:
        async with session_of(settings) as session:
            snapshot = await policies_of_proxies(session)
    except (MigrationNeeded, RegistryUnavailable) as problem:
        return [Finding("policies", State.PROBLEM, problem.detail, problem.next_step)]
    rejected = [
        judge_rejected(name, why, is_served=name in snapshot.policies) for name, why in snapshot.rejected.items()
    ]
    servers = await _examine_all_servers(settings, snapshot)
    settled = {name: number for name, number in checkup.settled.items() if name in snapshot.policies}
    proxies = [judge_proxy(p.instance, p.generations, settled, p.age_seconds) for p in checkup.proxies]
    return [
        *rejected,
        *servers,
        *_same_calls(snapshot),
        *_tokens_in_plain_text(snapshot),
        *(proxies or [HIDDEN_PROXIES if checkup.proxies_hidden else NO_PROXY]),
    ]


async def _examine_folder(settings: Settings) -> list[Finding]:
    """Return what a proxy of this state folder has to go on with while Postgres is away."""
    folder, waiting, problem = str(settings.state_dir.absolute()), 0, ""
    try:
        waiting = await asyncio.to_thread(bytes_in, settings.spool_dir)
    except OSError as failed:
        problem = str(failed)
    spool = judge_spool(folder, waiting, problem)
    try:
        document = await asyncio.to_thread(JsonSnapshotFile(settings.snapshot_path).load)
    except (OSError, ValueError) as failed:
        return [judge_saved_policies(folder, None, str(failed)), *spool]
    if document is None:
        return [judge_saved_policies(folder, None, ""), *spool]
    snapshot = apply_document(PolicySnapshot(), document, complete=True, protocols=PROTOCOLS)
    policies = judge_saved_policies(folder, len(snapshot.policies), "")
    return [policies, *spool, *await _examine_all_servers(settings, snapshot, asks_proxies=False)]


async def _examine_all_servers(
    settings: Settings, snapshot: PolicySnapshot, *, asks_proxies: bool = True
) -> Sequence[Finding]:
    turns = asyncio.Semaphore(VERSIONS_AT_ONCE)
    return await asyncio.gather(
        *(
            _examine_servers(settings, policy, role, version, turns, asks_proxies=asks_proxies)
            for policy in snapshot.policies.values()
            for role, version in _roles(policy)
        )
    )


def _same_calls(snapshot: PolicySnapshot) -> list[Finding]:
    """Return which versions with a role their model server may not tell from the champion; calls of none fail."""
    found = []
    for policy in snapshot.policies.values():
        versions = {version.id: version for _, version in _roles(policy)}
        same = [same_call(version, policy.champion) for version in versions.values() if version != policy.champion]
        for judged in (judge_same_call(one, are_alike=False) for one in same if one is not None):
            what = f"{policy.model_name}: {judged.what}"
            found.append(judged._replace(what=what, model_name=policy.model_name))
    return found


def _tokens_in_plain_text(snapshot: PolicySnapshot) -> list[Finding]:
    versions = {version.id: version for policy in snapshot.policies.values() for _, version in _roles(policy)}
    return [
        finding
        for version in versions.values()
        if (token := version.backend.get("token_env")) is not None and version.backend.get("tls", False) is False
        for finding in judge_token_wire(version.model_name, version.version, str(token), version.endpoints)
    ]


def _roles(policy: ServingPolicy) -> list[tuple[Role, ModelVersion]]:
    arms = [(Role.CHALLENGER, version) for version in (policy.challenger, *policy.arm_percents)]
    roles = [(Role.CHAMPION, policy.champion), *arms, (Role.SHADOW, policy.shadow)]
    return [(role, version) for role, version in roles if version is not None]


async def _examine_servers(
    settings: Settings,
    policy: ServingPolicy,
    role: Role,
    version: ModelVersion,
    turns: asyncio.Semaphore,
    *,
    asks_proxies: bool,
) -> Finding:
    model_name, has_share = policy.model_name, role is not Role.SHADOW and version.id in policy.called_ids
    try:
        backend = connector_of(settings)(version)
    except BackendUnavailable as problem:
        name = f"{model_name} {version.version} {role}"
        return Finding(name, State.PROBLEM, problem.detail, problem.next_step, model_name)
    through = None
    async with turns:
        try:
            seen = await examine_servers(backend, READY_SECONDS)
            is_reached = backend.is_connected or not all(server.problem for server in seen)
        finally:
            await backend.close()
        if seen and not is_reached and asks_proxies:
            async with session_of(settings) as session:
                through = await ask_proxies(proxy_warm_up(settings, session.warm_ups), version, 0)
    seconds = version.timeout_seconds
    return judge_servers(model_name, role, version.version, seen, seconds, through=through, has_share=has_share)
