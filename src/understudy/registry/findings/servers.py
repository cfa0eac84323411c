"""Findings of ``understudy doctor`` about servers: good, worth a look, or a problem, each with what to do next."""

from collections.abc import Mapping, Sequence
from functools import partial
from shlex import quote
from urllib.parse import parse_qsl, urlsplit

from understudy.core.durations import short_duration
from understudy.core.first_names import first_names
from understudy.core.rollout.state import WarmUpResult
from understudy.core.routing.proxy_liveness import HIDDEN_WORDS, is_live
from understudy.ports.monitoring.lease import LEASE_SECONDS
from understudy.ports.upstream.model_backend import ServerSeen
from understudy.registry.findings.finding import MAX_NAMED, Finding, State

CLOCK_WARNING_SECONDS, CLOCK_PROBLEM_SECONDS = 0.25, 1.0
"""Predictions are stamped by the proxy's clock and cut into windows by Postgres'."""
SLOW_SECONDS = 0.05
ROLES_ADVICE = (
    "As a login that may make roles: CREATE ROLE understudy_proxy NOLOGIN, and so on; then: understudy db upgrade."
)


_WITHOUT_POSTGRES = (
    "if proxies do not reach Postgres either, those that run answer by the policies that they read last and keep rows "
    "on disk; then no policy changes, no rollback reaches a proxy, no rollout moves, and commands leave with 69"
)
_RESTORE_ADVICE = "docs/how-to/back-up-and-restore.md says what proxies do meanwhile, and how a backup is restored."
UNSEEN_REDIS = Finding(
    "redis",
    State.UNKNOWN,
    "not looked at: this process has no REDIS_URL, and Postgres does not know whether proxies have one",
    "understudy doctor with a proxy's own settings looks at it; how a proxy fares with it, its metric "
    "understudy_cache_errors_total says.",
)
MONITOR_ADVICE = (
    "understudy serve monitor runs one. Until then rollouts stand still, a bad version is not taken back, months of "
    "the log are not made ahead, and no alert is sent."
)
CATCH_UP_SECONDS = 10.0
"""A proxy reads a new policy within five seconds and reports that; after this one with an older policy is behind."""
NO_MONITOR = Finding("monitor", State.WARNING, "none leads", MONITOR_ADVICE, is_pressing=True)
HIDDEN_PROXIES = Finding(
    "proxies",
    State.WARNING,
    HIDDEN_WORDS,
    "docs/explanation/security.md (Locks of a proxy's login) has the SQL that finds that session and ends it.",
    is_pressing=True,
)
NO_PROXY = Finding(
    "proxies", State.WARNING, "none was seen in the last day", "understudy serve proxy runs one.", is_pressing=True
)


def judge_config(settings_count: int, host: str, *, needs_key: bool, is_local: bool) -> Finding:
    """Judge a proxy's settings, so many of which the environment gives: may any client on the network call it?"""
    what = f"{_count(settings_count, 'setting')} from the environment"
    if not needs_key and not is_local:
        return Finding("config", State.WARNING, f"{what}; any client may call {host}", "Unset UNDERSTUDY_AUTH.")
    return Finding("config", State.GOOD, what)


def judge_postgres(server_version: str, round_trip_seconds: float) -> Finding:
    """Judge how far away Postgres is."""
    what = f"{server_version}, {round_trip_seconds * 1_000:.1f} ms"
    if round_trip_seconds > SLOW_SECONDS:
        advice = "Policies arrive late and logging is slow: is it far away?"
        return Finding("postgres", State.WARNING, what, advice, is_pressing=True)
    return Finding("postgres", State.GOOD, what)


OUTAGE = Finding("meanwhile", State.WARNING, _WITHOUT_POSTGRES, _RESTORE_ADVICE, is_pressing=True)
"""What goes on while Postgres is away; one process that does not reach it cannot tell whether others do."""


def judge_saved_policies(state_dir: str, models: int | None, problem: str) -> Finding:
    """Judge what a proxy that starts without Postgres would answer by.

    Args:
        state_dir: The folder that was looked into.
        models: How many models the policies have that a proxy saved there; ``None``: there is no such file, or this
            process cannot read it.
        problem: Why it cannot; empty where there is no such file.
    """
    if models is not None:
        what = f"of {_count(models, 'model')} in {state_dir}: a proxy that starts with it answers by these policies"
        return Finding("policy.json", State.GOOD, what)
    if problem:
        what = f"that in {state_dir} is not readable here, so model servers are not asked: {problem}"
        advice = (
            "Run doctor as the user whom the proxy runs as. A damaged file is of no use to a proxy that starts, either."
        )
        return Finding("policy.json", State.WARNING, what, advice)
    what = f"none in {state_dir}: model servers are not asked, and a proxy that starts with it refuses calls"
    advice = "Run doctor where a proxy runs: in its folder, or with its UNDERSTUDY_STATE_DIR."
    return Finding("policy.json", State.WARNING, what, advice)


def judge_redis(
    problem: str, version: str, round_trip_seconds: float, eviction_policy: str, *, is_refusal: bool = False
) -> Finding:
    """Judge the shared cache; ``problem`` is empty when it answers, and ``is_refusal`` says that it refused us."""
    if is_refusal:
        advice = "Predictions go on without it, and cost more: correct the user and password in REDIS_URL."
        return Finding("redis", State.WARNING, problem, advice, is_pressing=True)
    if problem:
        advice = "Predictions go on without it, and cost more: check REDIS_URL and the server."
        return Finding("redis", State.WARNING, problem, advice, is_pressing=True)
    what = f"{version}, {round_trip_seconds * 1_000:.1f} ms, {eviction_policy}"
    if eviction_policy == "noeviction":
        advice = "A full cache takes nothing new: set maxmemory-policy allkeys-lru."
        return Finding("redis", State.WARNING, what, advice)
    return Finding("redis", State.GOOD, what)


def judge_clock(ahead_seconds: float, round_trip_seconds: float) -> Finding:
    """Judge this machine's clock against Postgres'; half a round trip of the difference cannot be known."""
    off = max(0.0, abs(ahead_seconds) - round_trip_seconds / 2)
    side = "ahead of" if ahead_seconds > 0 else "behind"
    what = f"{abs(ahead_seconds) * 1_000:.0f} ms {side} Postgres"
    if off < CLOCK_WARNING_SECONDS:
        return Finding("clock", State.GOOD, what)
    state = State.PROBLEM if off >= CLOCK_PROBLEM_SECONDS else State.WARNING
    return Finding("clock", state, what, "Windows of the prediction log are cut wrong: enable NTP on this machine.")


def judge_wire(name: str, url: str) -> list[Finding]:
    """Judge whether a man in the middle can read along, or answer for the server; the URL is not shown."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return []  # connecting says what is wrong with it
    if not host or host == "localhost" or host.startswith("127.") or host == "::1":
        return []
    asked = dict(parse_qsl(parts.query))
    if parts.scheme.startswith("redis"):
        is_good, advice = parts.scheme == "rediss", "Use rediss:// with ssl_ca_certs."
    else:
        is_good = asked.get("sslmode") == "verify-full"
        advice = "Add sslmode=verify-full and sslrootcert to DATABASE_URL."
    if is_good:
        return [Finding(f"{name} tls", State.GOOD, f"{host} must show a certificate of its own name")]
    return [
        Finding(
            f"{name} tls",
            State.WARNING,
            f"{host} is not verified: a man in the middle can answer for it or read along",
            advice,
        )
    ]


def judge_roles(without_rights: Sequence[str]) -> Finding:
    """Judge whether each process can have a role of its own; ``without_rights`` are those that are not there."""
    if not without_rights:
        return Finding("roles", State.GOOD, "each process and person can have their own")
    what = f"missing, or without rights in this database: {', '.join(without_rights)}"
    return Finding("roles", State.WARNING, what, ROLES_ADVICE)


def judge_proxy(instance: str, acts_on: Mapping[str, int], policies: Mapping[str, int], age_seconds: float) -> Finding:
    """Judge one proxy: whether it lives, and acts on the newest generation of every model's policy.

    Args:
        instance: Its name.
        acts_on: The generation of each model's policy that it reported.
        policies: The generation of each policy that has stood for :data:`CATCH_UP_SECONDS`.
        age_seconds: Time since its report.
    """
    name = f"proxy {instance}"
    seen = f"seen {age_seconds:.0f} s ago"
    if not is_live(age_seconds):
        what = f"stale, {seen}: killed, frozen or cut off from Postgres; if it runs, by an old policy"
        advice = "End it if it runs. Once it is gone, delete its row of ProxyInstance; after a day it is forgotten."
        return Finding(name, State.WARNING, what, advice, is_pressing=True)
    behind = [
        f"{model} {acts_on.get(model, 'none')} instead of {newest}"
        for model, newest in policies.items()
        if acts_on.get(model, 0) < newest
    ]
    if behind:
        advice = "It had time to catch up: look at its log and at /readyz."
        return Finding(name, State.WARNING, f"{seen}, behind: {', '.join(behind)}", advice, is_pressing=True)
    return Finding(name, State.GOOD, f"{seen}, on the newest generation of {len(policies)} models")


def judge_monitor(holder: str, age_seconds: float) -> Finding:
    """Judge the monitor that led last, by the time since it renewed its lease."""
    if age_seconds <= LEASE_SECONDS:
        return Finding("monitor", State.GOOD, f"{holder} leads, seen {age_seconds:.0f} s ago")
    what = f"none leads: {holder} was seen {age_seconds:.0f} s ago"
    return Finding("monitor", State.WARNING, what, MONITOR_ADVICE, is_pressing=True)


def judge_servers(
    model: str,
    role: str,
    version: str,
    servers: Sequence[ServerSeen],
    timeout_seconds: float,
    *,
    through: WarmUpResult | None = None,
    has_share: bool = False,
) -> Finding:
    """Judge the model servers of one role of one model.

    Args:
        model: Its name.
        role: What the version does for it; without a server a champion is a problem, anything else a warning.
        version: Its label.
        servers: All of them, as they were found.
        timeout_seconds: What a call of the version may take; a server that needs longer to say that it serves is slow.
        through: What live proxies found of them, where this process reaches none; ``None``: none was asked.
        has_share: Whether callers get its answers: a version that warms up may have no server yet.
    """
    name = f"{model} {version} {role}"
    found = partial(Finding, name, model_name=model, is_pressing=has_share)
    state = State.PROBLEM if role == "champion" else State.WARNING
    if not servers:
        advice = (
            f"Have agents load it: understudy version load {quote(model)} {quote(version)}; or name one: "
            f"understudy version add-endpoint {quote(model)} {quote(version)} HOST:PORT."
        )
        return found(state, "has no model server", advice)
    ready = sorted((server for server in servers if not server.problem), key=lambda server: -server.seconds)
    away = [
        f"{server.place}: {server.problem} ({short_duration(server.seconds)})" for server in servers if server.problem
    ]
    answered = [f"{server.place} in {short_duration(server.seconds)}" for server in ready]
    all_servers = _count(len(servers), "model server")
    if away and not ready and through is not None and through.passed:
        what = f"reached through proxies: {through.detail}; not from here: {first_names(away, MAX_NAMED, '; ')}"
        return found(State.GOOD, what)
    if away:
        what = f"served by {len(ready) or 'none'} of its {all_servers}; {first_names(away, MAX_NAMED, '; ')}"
        what += f"; answered: {first_names(answered, MAX_NAMED)}" if answered else ""
        what += f"; {through.detail}" if through is not None else ""
        advice = (
            f"Mend what is not ready; of one that is gone or wrong: understudy version remove-endpoint {quote(model)} "
            f"{quote(version)} HOST:PORT, after add-endpoint where it is the only one."
        )
        return found(State.WARNING if ready else state, what, advice)
    what = f"served by {all_servers}: {first_names(answered, MAX_NAMED)}"
    if ready[0].seconds > timeout_seconds:
        advice = f"Calls may take {short_duration(timeout_seconds)}: what does the slow server wait for?"
        return found(State.WARNING, what, advice)
    return found(State.GOOD, what)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
