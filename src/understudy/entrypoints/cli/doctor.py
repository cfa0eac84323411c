"""``understudy doctor``: everything that an installation depends on, looked at once."""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import typer
from rich.table import Table
from rich.text import Text

from understudy.adapters import migrations
from understudy.adapters.backends import connect
from understudy.adapters.postgres_checkup import PostgresCheckup, examine_postgres
from understudy.adapters.postgres_policy import PostgresPolicySource
from understudy.adapters.redis_checkup import examine_redis
from understudy.core.policy import ModelVersion, PolicySnapshot, Role, ServingPolicy, apply_document
from understudy.entrypoints.cli.environment import settings_with_demo
from understudy.entrypoints.cli.failure import ExitCode
from understudy.entrypoints.cli.options import AsJson
from understudy.entrypoints.cli.rendering import show
from understudy.errors import BackendUnavailable, MigrationNeeded, RegistryUnavailable
from understudy.lifecycle.findings import (
    SLOW_SECONDS,
    Finding,
    State,
    judge_clock,
    judge_partitions,
    judge_proxy,
    judge_servers,
)
from understudy.settings import Settings

app = typer.Typer(add_completion=False)
READY_SECONDS = 2.0
_MARKS = {State.GOOD: ("✔", "green"), State.WARNING: ("!", "yellow"), State.PROBLEM: ("✖", "red")}


@app.command()
def doctor(*, as_json: AsJson = False) -> None:
    """Check the configuration, Postgres, Redis, the model servers and the proxies; leaves with 1 for a problem."""
    settings = settings_with_demo()
    findings = asyncio.run(examine(settings))
    found = Counter(finding.state for finding in findings)
    problems, warnings = found[State.PROBLEM], found[State.WARNING]
    document = {"findings": [finding._asdict() for finding in findings], "problems": problems, "warnings": warnings}
    verdict = (
        f"{_count(problems, 'problem')}, {_count(warnings, 'warning')}." if problems or warnings else "All is well."
    )
    show(document, findings_table(findings), Text(verdict, "bold"), as_json=as_json)
    raise typer.Exit(ExitCode.PROBLEM if problems else ExitCode.DONE)


async def examine(settings: Settings) -> list[Finding]:
    """Look at everything; what depends on a part that is away is left out."""
    findings = [config_finding(settings), *await _examine_cache(settings)]
    database_url = settings.database_url.get_secret_value()
    try:
        checkup = await examine_postgres(database_url, timeout_seconds=settings.database_timeout_seconds)
    except RegistryUnavailable as problem:
        return [*findings, Finding("postgres", State.PROBLEM, problem.detail, problem.next_step)]
    findings += [_postgres_finding(checkup), judge_clock(checkup.clock_ahead_seconds, checkup.round_trip_seconds)]
    try:
        revision = await migrations.check(database_url)
    except (MigrationNeeded, RegistryUnavailable) as problem:
        return [*findings, Finding("schema", State.PROBLEM, problem.detail, problem.next_step)]
    this_month = datetime.now(UTC).strftime("%Y-%m")
    findings += [Finding("schema", State.GOOD, f"at {revision}"), judge_partitions(checkup.last_partition, this_month)]
    return [*findings, *await _examine_policies(settings, checkup)]


def config_finding(settings: Settings) -> Finding:
    """Say where the settings come from, and warn of a proxy that anybody may call."""
    names = [name for name in os.environ if name.startswith("UNDERSTUDY_") or name in ("DATABASE_URL", "REDIS_URL")]
    what = f"{_count(len(names), 'setting')} from the environment"
    if not settings.needs_key and settings.host not in ("127.0.0.1", "localhost", "::1"):
        return Finding("config", State.WARNING, f"{what}; anybody may call {settings.host}", "Unset UNDERSTUDY_AUTH.")
    return Finding("config", State.GOOD, what)


def findings_table(findings: Sequence[Finding]) -> Table:
    """Return a line for each finding, with what to do next below it."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for finding in findings:
        mark, style = _MARKS[finding.state]
        text = Text(finding.what)
        if finding.next_step and finding.state is not State.GOOD:
            text.append(f"\n→ {finding.next_step}", "cyan")
        grid.add_row(Text(mark, style), finding.name, text)
    return grid


def _postgres_finding(checkup: PostgresCheckup) -> Finding:
    what = f"{checkup.server_version}, {checkup.round_trip_seconds * 1_000:.1f} ms"
    if checkup.round_trip_seconds > SLOW_SECONDS:
        return Finding("postgres", State.WARNING, what, "Policies arrive late and logging is slow: is it far away?")
    return Finding("postgres", State.GOOD, what)


async def _examine_cache(settings: Settings) -> list[Finding]:
    if settings.redis_url is None:
        return [Finding("redis", State.GOOD, "not used: REDIS_URL is not set, each proxy caches for itself")]
    found = await examine_redis(settings.redis_url.get_secret_value())
    if found.problem:
        advice = "Predictions go on without it, and cost more: check REDIS_URL and the server."
        return [Finding("redis", State.WARNING, found.problem, advice)]
    what = f"{found.version}, {found.round_trip_seconds * 1_000:.1f} ms, {found.eviction_policy}"
    if found.eviction_policy == "noeviction":
        return [
            Finding("redis", State.WARNING, what, "A full cache takes nothing new: set maxmemory-policy allkeys-lru.")
        ]
    return [Finding("redis", State.GOOD, what)]


async def _examine_policies(settings: Settings, checkup: PostgresCheckup) -> list[Finding]:
    source = PostgresPolicySource(
        settings.database_url.get_secret_value(), timeout_seconds=settings.database_timeout_seconds
    )
    try:
        snapshot = apply_document(PolicySnapshot(), await source.load(), complete=True)
    finally:
        await source.close()
    rejected = [
        Finding(f"policy {name}", State.PROBLEM, why, "No proxy can use it: correct the version's schema.")
        for name, why in snapshot.rejected.items()
    ]
    servers = await asyncio.gather(
        *(
            _examine_servers(policy, role, version)
            for policy in snapshot.policies.values()
            for role, version in _roles(policy)
        )
    )
    generations = {name: policy.generation for name, policy in snapshot.policies.items()}
    proxies = [judge_proxy(p.instance, p.generations, generations, p.age_seconds) for p in checkup.proxies]
    if not proxies:
        proxies = [
            Finding("proxies", State.WARNING, "none was seen in the last day", "understudy serve proxy runs one.")
        ]
    return [*rejected, *servers, *proxies]


def _roles(policy: ServingPolicy) -> list[tuple[Role, ModelVersion]]:
    roles = [(Role.CHAMPION, policy.champion), (Role.CHALLENGER, policy.challenger), (Role.SHADOW, policy.shadow)]
    return [(role, version) for role, version in roles if version is not None]


async def _examine_servers(policy: ServingPolicy, role: Role, version: ModelVersion) -> Finding:
    if not version.endpoints:
        return judge_servers(policy.model_name, role, version.version, 0, ready=False)
    try:
        backend = connect(version)
    except BackendUnavailable as problem:
        return Finding(
            f"{policy.model_name} {version.version} {role}", State.PROBLEM, problem.detail, problem.next_step
        )
    try:
        ready = await backend.ready(READY_SECONDS)
    finally:
        await backend.close()
    return judge_servers(policy.model_name, role, version.version, len(version.endpoints), ready=ready)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
