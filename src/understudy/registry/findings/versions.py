"""Findings about one version before callers depend on it: its model servers, its inputs, its answers."""

from collections.abc import Sequence
from shlex import quote

from understudy.core.durations import short_duration
from understudy.core.rollout.proxy_warm_up import through_words
from understudy.core.rollout.state import WarmUpResult
from understudy.core.schema.input_diff import InputDifferences
from understudy.core.upstream.same_call import SameCall
from understudy.ports.loading.loading_registry import VersionLoadingRecord
from understudy.ports.registry.registry import RETIRED
from understudy.ports.upstream.model_backend import ServerSeen
from understudy.registry.findings.finding import Finding, State

_INPUTS_ADVICE = "docs/how-to/connect-a-model-server.md has what to do about inputs that differ."

NO_CHAMPION = Finding("inputs", State.GOOD, "not compared: the model has no champion yet; --against names a version")
IS_CHAMPION = Finding("inputs", State.GOOD, "not compared: it is the champion itself; --against names another version")


def judge_status(model: str, version: str, status: str) -> list[Finding]:
    """Judge whether a version may get a role; nothing is found of one that may."""
    if status != RETIRED:
        return []
    advice = f"understudy version restore {quote(model)} {quote(version)} makes it staging again."
    return [Finding("status", State.PROBLEM, "retired: it gets no role, and no rollout of it starts", advice)]


def judge_each_server(
    model: str, version: str, servers: Sequence[ServerSeen], timeout_seconds: float, through: Sequence[str] = ()
) -> list[Finding]:
    """Judge each model server by itself; one that does not serve is a problem when no other one does.

    ``through`` names the live proxies that reach them, where this process does not.
    """
    if not servers:
        advice = f"Name one: understudy version add-endpoint {quote(model)} {quote(version)} HOST:PORT."
        return [Finding("servers", State.PROBLEM, "the version has no model server", advice)]
    if through:
        return [reached_by_proxies(server, len(through)) for server in servers]
    away = State.PROBLEM if all(server.problem for server in servers) else State.WARNING
    remove = f"understudy version remove-endpoint {quote(model)} {quote(version)}"
    return [_judge_server(server, remove, away, timeout_seconds) for server in servers]


def judge_unloaded(loading: VersionLoadingRecord) -> Finding:
    """Return that agents have loaded a version nowhere, and what is in their way: no person is to name a server."""
    named, group = f"{quote(loading.model_name)} {quote(loading.version)}", loading.group_name
    what = f"no server of the group {group!r} has loaded the version"
    if loading.groups is not None and group not in loading.groups:
        there = ", ".join(loading.groups) or "none"
        what = f"no server of the group {group!r} is known; there are: {there}"
        return Finding("servers", State.PROBLEM, what, f"understudy version load {named} --group GROUP names one.")
    failed = [f"{one.server}: {one.error_code} {one.error}" for one in loading.servers if one.error_code]
    advice = f"understudy version load {named} --wait waits until it is loaded."
    return Finding("servers", State.PROBLEM, "; ".join([what, *failed]), advice)


def _judge_server(server: ServerSeen, remove: str, away: State, timeout_seconds: float) -> Finding:
    took = short_duration(server.seconds)
    if server.problem:
        advice = f"Mend it, or take it away: {remove} {quote(server.endpoint)}."
        if server.address:
            advice = "Mend it, or have its name no longer lead there: proxies follow the name by themselves."
        return Finding("server", away, f"{server.place}: {server.problem} ({took})", advice)
    what = f"{server.place} says in {took} that it serves the version"
    if server.seconds > timeout_seconds:
        advice = f"Calls may take {short_duration(timeout_seconds)}: what does it wait for?"
        return Finding("server", State.WARNING, what, advice)
    return Finding("server", State.GOOD, what)


def reached_by_proxies(server: ServerSeen, proxies: int) -> Finding:
    """Return what is found of a model server that is not reached from here, as it need not be."""
    what = f"{server.place} is reached {through_words(proxies)}, and not from here: {server.problem}"
    return Finding("server", State.GOOD, what)


def judge_same_call(found: SameCall, *, are_alike: bool) -> Finding:
    """Judge two versions that a model server does not tell apart.

    It is a problem where that is certain, the two are to be compared, and ``are_alike``: they take and read the same,
    so that every comparison of them says that nothing differs.
    """
    state = State.PROBLEM if found.is_certain and are_alike else State.WARNING
    return Finding("same call", state, found.words, found.advice)


def judge_inputs(against: str, version: str, found: InputDifferences) -> Finding:
    """Judge what a version asks of callers whose calls fit another one, ``against``."""
    lines = found.lines()
    if not lines:
        return Finding("inputs", State.GOOD, f"every call that fits {against} fits {version} too")
    state, fails = (State.PROBLEM, "fails") if found.breaking else (State.WARNING, "may fail")
    what = f"a call that fits {against} {fails} at {version} (422): {'; '.join(lines)}"
    return Finding("inputs", state, what, _INPUTS_ADVICE)


def judge_warm_up(result: WarmUpResult | None) -> Finding:
    """Judge the example calls; ``None`` where no model server was there to be called."""
    if result is None:
        advice = "It is called as soon as one of its model servers says that it serves the version."
        return Finding("warm-up", State.WARNING, "no example call was made", advice)
    if result.passed:
        return Finding("warm-up", State.GOOD, result.detail)
    advice = "The model server's log may say why; no rollout of the version starts until it answers."
    return Finding("warm-up", State.PROBLEM, result.detail, advice)
