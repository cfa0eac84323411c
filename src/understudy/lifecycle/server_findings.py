"""Findings of ``understudy doctor`` about servers: good, worth a look, or a problem, each with what to do next."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from shlex import quote
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from understudy.core.durations import duration_words, short_duration
from understudy.core.rollout.state import WarmUpResult
from understudy.core.routing.proxy_liveness import HIDDEN_WORDS, is_live
from understudy.ports.monitoring.lease import LEASE_SECONDS
from understudy.ports.upstream.model_backend import ServerSeen

CLOCK_WARNING_SECONDS, CLOCK_PROBLEM_SECONDS = 0.25, 1.0
"""Predictions are stamped by the proxy's clock and cut into windows by Postgres'."""
SLOW_SECONDS = 0.05
MONTHS_AHEAD = 2
LAKE_LATE_SECONDS = 600.0
ARCHIVE_LATE_DAYS = 3
"""Runs that may fail, one a day, before doctor warns."""
DAY_SECONDS = 86_400.0
MAX_SERVERS = 8
"""Model servers that a finding names of those that serve, and of those that do not."""
ROLES_ADVICE = (
    "As a login that may make roles: CREATE ROLE understudy_proxy NOLOGIN, and so on; then: understudy db upgrade."
)


class State(StrEnum):
    """How a finding is."""

    GOOD = "good"
    UNKNOWN = "unknown"
    """It cannot be seen from where the checkup runs."""
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """One line of a checkup."""

    name: str
    state: State
    what: str
    next_step: str = ""
    model_name: str | None = None
    """The model that it is about; ``None``: it is about the installation."""
    is_pressing: bool = False
    """Whether a warning is of what goes wrong at this moment, and pages of models tell of it, as of each problem. Other
    warnings are of how things were set up, and wait for daylight."""


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
LEAST_CALLS = 100
"""Of a challenger or an arm in an hour, before a share of failing ones says something."""
MOST_FAILING = 0.01
"""Share of a challenger's or an arm's calls that may fail."""
ERASURE_LATE_SECONDS = 1_800.0
"""An erasure that began so long ago and is not finished was stopped, or could not reach a month's files."""
MOST_ERASURES = 3
"""Unfinished erasures that are told one by one."""
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


def judge_spool(state_dir: str, waiting_bytes: int, problem: str) -> list[Finding]:
    """Judge the rows that wait on disk: at most so many bytes, or why that cannot be known here."""
    if problem:
        advice = "Run doctor as the user whom the proxy runs as."
        return [Finding("spool", State.WARNING, f"rows that wait in {state_dir} were not counted: {problem}", advice)]
    if not waiting_bytes:
        return []
    what = f"at most {waiting_bytes / 1_048_576:.1f} MiB of rows wait in {state_dir}; they are shipped later"
    return [Finding("spool", State.GOOD, what)]


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


def judge_partitions(last_month: str | None, this_month: str) -> Finding:
    """Judge how far ahead PredictionLog has partitions; both months are ``YYYY-MM``, in UTC."""
    make = "understudy db partitions makes them."
    if last_month is None:
        return Finding("partitions", State.PROBLEM, "PredictionLog has none: nothing can be logged", make)
    ahead = _months(last_month) - _months(this_month)
    what = f"PredictionLog to the end of {last_month}"
    if ahead < 0:
        return Finding("partitions", State.PROBLEM, f"{what}: nothing can be logged any more", make)
    if ahead < MONTHS_AHEAD:
        return Finding("partitions", State.WARNING, f"{what}: {ahead} months ahead", make)
    return Finding("partitions", State.GOOD, what)


def judge_archive(
    oldest_days: float | None, succeeded_seconds: float | None, after_days: float, *, is_set: bool
) -> Finding:
    """Judge whether old months go.

    Args:
        oldest_days: How long ago the oldest month ended that has rows in Postgres.
        succeeded_seconds: How long ago a run of the archiver came to its end.
        after_days: How long after its end a month has to go.
        is_set: Whether ``UNDERSTUDY_ARCHIVE_URL`` is set.
    """
    if not is_set and succeeded_seconds is None:
        return Finding("archive", State.GOOD, "not used: UNDERSTUDY_ARCHIVE_URL is not set, months stay in Postgres")
    ran = "it never ran" if succeeded_seconds is None else f"it ran {succeeded_seconds / DAY_SECONDS:.1f} days ago"
    if oldest_days is not None and oldest_days > after_days + ARCHIVE_LATE_DAYS:
        what = f"a month that ended {oldest_days:.0f} days ago has rows in Postgres; {ran}"
        return Finding("archive", State.WARNING, what, "understudy db archive moves it; run that once a day.")
    return Finding("archive", State.GOOD, f"no month is late, {ran}")


def judge_lake(files: int, oldest_seconds: float) -> Finding:
    """Judge whether files of the lake come into its table.

    Args:
        files: How many are stored and in no commit that has ended.
        oldest_seconds: How long the oldest of them has waited.
    """
    if oldest_seconds > LAKE_LATE_SECONDS:
        what = f"{files:,} stored files are not in the table yet, the oldest for {oldest_seconds / 60:.0f} minutes"
        step = (
            "The log of the monitor that leads has the reason, as monitor.job_failed of the job lake; without one, its "
            "UNDERSTUDY_LOG is neither postgres+lake nor lake."
        )
        return Finding("lake", State.WARNING, what, step, is_pressing=True)
    return Finding("lake", State.GOOD, f"{files:,} stored files wait for their commit")


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


def judge_guard(model: str, guard: str, failure: str | None, *, is_watched: bool, has_monitor: bool) -> Finding:
    """Judge the split of a model: has its guard failed within a day, and does anything watch it?

    Args:
        model: Its name.
        guard: ``ServingPolicy.guard``.
        failure: What a guard that failed within a day found.
        is_watched: Whether a guard or a rollout is open.
        has_monitor: Whether a monitor leads: without one an open guard or rollout is judged by nothing.
    """
    name = f"guard {model}"
    if failure is not None:
        advice = f"understudy rollout list {quote(model)} has the guard; understudy rollout show its evidence."
        return Finding(name, State.PROBLEM, failure, advice, model)
    if not has_monitor:
        what = f"no monitor leads, so nothing watches the split or its rollout, or takes it back (guard = {guard})"
        advice = f"understudy serve monitor runs one; until then: understudy rollback {quote(model)} --reason '…'"
        return Finding(name, State.PROBLEM, what, advice, model)
    if is_watched:
        return Finding(name, State.GOOD, f"the split is watched, guard = {guard}", model_name=model)
    why = "guard is off" if guard == "off" else "no guard is open; the monitor opens one"
    advice = f"understudy model set {quote(model)} --guard rollback, or understudy rollout start, watches a challenger."
    return Finding(name, State.WARNING, f"the split is watched by nothing: {why}", advice, model)


def judge_gate(model: str, waiting_for: str, reason: str, waited_seconds: float) -> Finding:
    """Judge a rollout that waits at a gate: a person has to decide, or a service still has time to answer.

    Args:
        model: Its model.
        waiting_for: ``approval``, or ``gate``.
        reason: What waits, and for whom.
        waited_seconds: Since it came to the gate.
    """
    what = f"{reason}; for {duration_words(waited_seconds)} now"
    advice = f'understudy rollout show {quote(model)}, then: understudy rollout approve {quote(model)} --reason "…"'
    state = State.WARNING if waiting_for == "approval" else State.GOOD
    return Finding(f"gate {model}", state, what, advice if state is State.WARNING else "", model)


def judge_failing_share(
    model: str, version: str, errors: int, calls: int, *, has_fallback: bool, hours: int = 1
) -> Finding:
    """Judge a challenger or an arm that failed more than ``MOST_FAILING`` of its calls in the last hour, or day.

    Args:
        model: Its model.
        version: Its label.
        errors: Calls that it failed.
        calls: Its calls.
        has_fallback: Whether the champion answers what it fails.
        hours: Of how long the calls are.
    """
    lately = "hour" if hours == 1 else "day, and fewer in the last hour"
    then = "the champion answers them, later" if has_fallback else "their callers get the error"
    what = f"fails {errors / calls:.1%} of its calls, {errors:,} of {calls:,} in the last {lately}; {then}"
    return Finding(
        f"{model} {version} share",
        State.WARNING,
        what,
        f"understudy rollout show {quote(model)} has what was found; understudy rollback {quote(model)} --reason '…' "
        "takes its calls away.",
        model,
        is_pressing=True,
    )


def judge_erasure(model: str | None, age_seconds: float) -> Finding:
    """Judge an erasure of an entity that no run has finished; the id of the entity is nowhere.

    Args:
        model: Its model; ``None``: every model.
        age_seconds: Time since its first run began.
    """
    return Finding(
        f"erasure in {model or 'all models'}",
        State.WARNING,
        f"began {duration_words(age_seconds)} ago and is not finished: old rows or files may still name the entity",
        f"Run it again, it goes on: understudy entity forget {quote(model or 'all')} ID --reason '…'. Its row in "
        "EntityErasure, which has no finished_at, says who asked for it and why.",
        model,
    )


def judge_rejected(model: str, why: str, *, is_served: bool) -> Finding:
    """Judge a policy of which proxies cannot use something; without a champion the model is not served at all."""
    if is_served:
        advice = "Proxies do without it: correct the version's schema."
        return Finding(f"policy {model}", State.WARNING, why, advice, model, is_pressing=True)
    return Finding(f"policy {model}", State.PROBLEM, why, "No proxy can use it: correct the version's schema.", model)


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
        f"{server.endpoint}: {server.problem} ({short_duration(server.seconds)})"
        for server in servers
        if server.problem
    ]
    answered = [f"{server.endpoint} in {short_duration(server.seconds)}" for server in ready]
    all_servers = _count(len(servers), "model server")
    if away and not ready and through is not None and through.passed:
        what = f"reached through proxies: {through.detail}; not from here: {_listed(away, '; ')}"
        return found(State.GOOD, what)
    if away:
        what = f"served by {'none' if not ready else len(ready)} of its {all_servers}; {_listed(away, '; ')}"
        what += f"; answered: {_listed(answered)}" if answered else ""
        what += f"; {through.detail}" if through is not None else ""
        advice = (
            f"Mend what is not ready; of one that is gone or wrong: understudy version remove-endpoint {quote(model)} "
            f"{quote(version)} HOST:PORT, after add-endpoint where it is the only one."
        )
        return found(State.WARNING if ready else state, what, advice)
    what = f"served by {all_servers}: {_listed(answered)}"
    if ready[0].seconds > timeout_seconds:
        advice = f"Calls may take {short_duration(timeout_seconds)}: what does the slow server wait for?"
        return found(State.WARNING, what, advice)
    return found(State.GOOD, what)


def _listed(words: Sequence[str], between: str = ", ") -> str:
    more = [f"and {len(words) - MAX_SERVERS} more"] if len(words) > MAX_SERVERS else []
    return between.join([*words[:MAX_SERVERS], *more])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _months(month: str) -> int:
    year, number = map(int, month.split("-"))
    return year * 12 + number
