"""Findings about versions that agents are to load, and about the servers that they load them into."""

from collections.abc import Sequence
from shlex import quote

from understudy.core.durations import duration_words
from understudy.core.loading.wanted import SILENT_SECONDS, Why
from understudy.lifecycle.server_findings import Finding, State
from understudy.ports.loading.loading_registry import MissingVersion, ServerRecord

MAX_NAMED = 3
"""Servers without a version that are named."""


def missing_words(missing: MissingVersion) -> str:
    """Return what a wanted version lacks."""
    wanted = f"wanted as {missing.why}, and"
    if not missing.servers:
        return f"{wanted} no agent reports a server of its group {missing.group_name}"
    named = "; ".join([*missing.without[:MAX_NAMED], *(["…"] if len(missing.without) > MAX_NAMED else [])])
    have = "does not have it" if len(missing.without) == 1 else "do not have it"
    return f"{wanted} {len(missing.without)} of {missing.servers} servers of {missing.group_name} {have}: {named}"


def judge_missing(missing: MissingVersion) -> Finding:
    """Judge a version that not every server has that is to; a champion that no call can reach is a problem."""
    model, version = quote(missing.model_name), quote(missing.version)
    state = State.PROBLEM if missing.why == Why.CHAMPION and not missing.has_endpoint else State.WARNING
    advice = f"understudy version load {model} {version} tries again, once what is wrong is mended."
    if not missing.servers:
        advice = f"Start understudy serve agent there, or move it: understudy version load {model} {version} --group …"
    return Finding(f"{missing.model_name} {missing.version} loading", state, missing_words(missing), advice)


def judge_agents(servers: Sequence[ServerRecord]) -> list[Finding]:
    """Judge the model servers with an agent, one by one."""
    return [_judge_agent(server) for server in servers]


def _judge_agent(server: ServerRecord) -> Finding:
    name = f"server {server.name}"
    if server.seen_seconds > SILENT_SECONDS:
        what = f"its agent has been silent for {duration_words(server.seen_seconds)}"
        advice = "Start understudy serve agent beside it; a server that is gone for good is forgotten after a day."
        return Finding(name, State.WARNING, what, advice)
    if server.problem:
        return Finding(
            name, State.WARNING, server.problem, "docs/how-to/load-models.md says how its control is started."
        )
    what = f"{server.available} of {server.wanted} wanted versions loaded, at {server.target}"
    return Finding(name, State.GOOD, what)
