"""Findings about versions that agents are to load, and about the servers that they load them into."""

from collections.abc import Sequence
from shlex import quote

from understudy.core.durations import duration_words
from understudy.core.first_names import first_names
from understudy.core.loading.wanted import SILENT_SECONDS, Why
from understudy.errors import NothingFits
from understudy.ports.loading.loading_registry import (
    MissingVersion,
    ServerRecord,
    UnvalidatedVersion,
    VersionLoadingRecord,
)
from understudy.ports.registry.registry import RETIRED, STAGING
from understudy.registry.findings.finding import Finding, State

DROPPED_SECONDS = 60.0
"""After so long the monitor takes a silent server's endpoints back where another server has the version."""
MAX_NAMED = 3
"""Servers without a version that are named."""


def missing_words(missing: MissingVersion) -> str:
    """Return what a wanted version lacks."""
    wanted = f"wanted as {missing.why}, and"
    if not missing.servers:
        return f"{wanted} no agent reports a server of its group {missing.group_name}"
    if missing.replicas is not None:
        return f"{wanted} {_too_few_words(missing)}"
    named = "; ".join([*missing.without[:MAX_NAMED], *(["…"] if len(missing.without) > MAX_NAMED else [])])
    have = "does not have it" if len(missing.without) == 1 else "do not have it"
    return f"{wanted} {len(missing.without)} of {missing.servers} servers of {missing.group_name} {have}: {named}"


def _too_few_words(missing: MissingVersion) -> str:
    """Return what a version lacks that is to be on some servers of its group."""
    assert missing.replicas is not None
    on = f"on {missing.has} of the {missing.replicas} servers of {missing.group_name} that it is to be on"
    unplaced = missing.replicas - missing.has - len(missing.without)
    no_room = [f"{NothingFits.code} no other server has room, or none is there"] if unplaced > 0 else []
    return f"is {on}: {first_names([*no_room, *missing.without], MAX_NAMED, '; ')}"


def judge_missing(missing: MissingVersion) -> Finding:
    """Judge a version that not every server has that is to; a champion that no call can reach is a problem."""
    model, version = quote(missing.model_name), quote(missing.version)
    state = State.PROBLEM if missing.why == Why.CHAMPION and not missing.has_endpoint else State.WARNING
    advice = f"understudy version load {model} {version} tries again, once what is wrong is mended."
    if missing.replicas is not None and missing.replicas - missing.has > len(missing.without):
        advice = f"Start a further server, unload others, or ask for fewer: understudy version load {model} {version}"
        advice += " --replicas …"
    elif missing.without and all(NothingFits.code in words for words in missing.without):
        advice = f"It is loaded once there is room: unload others there, or move it: understudy version load {model} "
        advice += f"{version} --group …"
    if not missing.servers:
        advice = f"Start understudy serve agent there, or move it: understudy version load {model} {version} --group …"
    name = f"{missing.model_name} {missing.version} loading"
    return Finding(name, state, missing_words(missing), advice, missing.model_name)


def judge_unvalidated(found: UnvalidatedVersion) -> Finding:
    """Judge a version whose validation failed, is missing, or was of another build or artifact."""
    what = f"{found.problem}; it gets no larger share until a validation holds" if found.is_required else found.problem
    advice = f"{_validate_again(found.model_name, found.version, found.status)} asks it anew."
    name = f"{found.model_name} {found.version} validation"
    return Finding(name, State.WARNING, what, advice, found.model_name)


def judge_validation(loading: VersionLoadingRecord | None, status: str) -> list[Finding]:
    """Judge whether a version that agents load may get a role; nothing is found of one that was never validated."""
    if loading is None:
        return []
    again = _validate_again(loading.model_name, loading.version, status)
    if loading.unvalidated is not None:
        what = f"{loading.unvalidated}; it gets no role, and no larger share"
        return [Finding("validation", State.PROBLEM, what, f"{again} has it validated.")]
    asked = [one for one in loading.validations if one.passed is not None]
    stale = [one.problem for one in asked if one.problem is not None]
    if stale:
        return [Finding("validation", State.WARNING, stale[0], f"{again} asks it anew.")]
    return [Finding("validation", State.GOOD, f"{one.said}, at {one.server} ({one.build})") for one in asked[:1]]


def _validate_again(model: str, version: str, status: str) -> str:
    command = f"understudy version validate {quote(model)} {quote(version)}"
    return command if status in (STAGING, RETIRED) else f"{command} --while-serving"


def server_trouble(server: ServerRecord) -> str:
    """Return in a few words why it is not known what a server has; empty where its agent sees it.

    A server's problem is always that its control does not answer or refuses (E215): the agent's own words follow the
    code, and can be long.
    """
    if server.seen_seconds > SILENT_SECONDS:
        return f"agent silent for {duration_words(round(server.seen_seconds))}"
    code = server.problem.partition(" ")[0]
    return f"control refused ({code})" if server.problem else ""


def server_trouble_line(server: ServerRecord) -> str:
    """Return the whole of a server's trouble, and when its agent last reported it."""
    if server.seen_seconds > SILENT_SECONDS:
        last = f"; it last said: {server.problem}" if server.problem else ""
        return f"{server.name}: its agent has been silent for {duration_words(round(server.seen_seconds))}{last}"
    return f"{server.name} did not answer its agent {duration_words(round(server.seen_seconds))} ago: {server.problem}"


def judge_agents(servers: Sequence[ServerRecord]) -> list[Finding]:
    """Judge the model servers with an agent, one by one."""
    return [_judge_agent(server) for server in servers]


def _judge_agent(server: ServerRecord) -> Finding:
    name = f"server {server.name}"
    if server.is_draining:
        what = f"draining: it is given no version until its agent is started anew, at {server.target}"
        return Finding(name, State.GOOD, what)
    if server.seen_seconds > SILENT_SECONDS:
        what = f"its agent has been silent for {duration_words(server.seen_seconds)}"
        what += "; proxies call it only for what no other server has" if server.seen_seconds > DROPPED_SECONDS else ""
        advice = "Start understudy serve agent beside it; a server that is gone for good is forgotten after a day."
        return Finding(name, State.WARNING, what, advice, is_pressing=True)
    if server.problem:
        advice = "docs/how-to/load-models.md says how its control is started."
        return Finding(name, State.WARNING, server.problem, advice, is_pressing=True)
    what = f"{server.available} of {server.wanted} wanted versions loaded, at {server.target}"
    return Finding(name, State.GOOD, what)
